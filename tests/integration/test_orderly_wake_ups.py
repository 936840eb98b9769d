"""A message that makes a batch for parked messages: sent until a broker takes it, and not more often.

Contract: what is refused is sent again; one that no batch has read is not sent twice; what nobody waits for
is not sent; close ends it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobs.group.orderly.wake_ups import WakeUps
from lakemq.client import Client
from store_native.names import PERM_READ, PERM_WRITE, retry_topic
from structured_streaming.offsets import MessageQueue
from tests.support.broker_process import BrokerProcess
from tests.support.dispatch_barrier import await_dispatch
from tests.support.waiting import wait_until

PAUSE_S = 0.05


@pytest.fixture
def client(shared_broker: BrokerProcess) -> Iterator[Client]:
    with shared_broker.client() as made:
        yield made


def refusing(client: Client, group: str) -> WakeUps:
    """Wake-ups of a group whose retry topic takes no messages; one was asked for."""
    client.put_topic(retry_topic(group), read_queue_nums=1, write_queue_nums=1, perm=PERM_READ)
    wake_ups = WakeUps(client, group, first_pause_s=PAUSE_S)
    wake_ups.ask()
    assert wake_ups.refusal is not None
    assert retry_topic(group) in str(wake_ups.refusal)
    return wake_ups


def stored(client: Client, group: str) -> int:
    await_dispatch(client)
    (queue,) = client.queues(retry_topic(group))
    return queue.max_offset


def take_messages(client: Client, group: str) -> None:
    client.put_topic(retry_topic(group), perm=PERM_READ | PERM_WRITE)


def test_a_refused_wake_up_is_sent_again_until_the_broker_takes_it(client: Client) -> None:
    wake_ups = refusing(client, "refused-once")
    wake_ups.ask()
    take_messages(client, "refused-once")
    wait_until(lambda: wake_ups.refusal is None)
    assert stored(client, "refused-once") == 1
    wake_ups.ask()
    assert stored(client, "refused-once") == 1, "no batch has read the first one"
    wake_ups.end()
    wake_ups.ask()
    assert stored(client, "refused-once") == 2
    wake_ups.close()


def test_what_is_refused_and_nobody_waits_for_any_longer_is_not_sent(client: Client) -> None:
    wake_ups = refusing(client, "in-vain")
    wake_ups.end()
    take_messages(client, "in-vain")
    wake_ups.ask()
    wake_ups.close()
    assert stored(client, "in-vain") == 1


def test_a_refusal_of_a_later_one_is_met_in_the_same_way(client: Client) -> None:
    wake_ups = refusing(client, "refused-twice")
    wake_ups.end()
    wake_ups.ask()
    assert wake_ups.refusal is not None
    take_messages(client, "refused-twice")
    wait_until(lambda: wake_ups.refusal is None)
    wake_ups.close()
    assert stored(client, "refused-twice") == 1


def test_nothing_is_sent_once_it_is_closed(client: Client) -> None:
    wake_ups = refusing(client, "closed")
    wake_ups.close()
    take_messages(client, "closed")
    wake_ups.ask()
    assert stored(client, "closed") == 0


def test_one_that_an_earlier_driver_sent_and_no_batch_has_read_is_not_sent_again(client: Client) -> None:
    topic = retry_topic("started-anew")
    client.put_topic(topic, read_queue_nums=1, write_queue_nums=1)
    WakeUps(client, "started-anew").ask()  # its driver is killed then
    assert stored(client, "started-anew") == 1
    queue = MessageQueue(topic, client.cluster()["broker_name"], 0)
    for reached, expected in (({}, 1), ({queue: 0}, 1), ({queue: 1}, 2), ({queue: 1}, 2)):
        wake_ups = WakeUps(client, "started-anew")
        wake_ups.begin(reached)
        wake_ups.ask()
        wake_ups.begin(reached)
        wake_ups.ask()
        assert stored(client, "started-anew") == expected
