"""A cluster on this machine, for trying: a name server, masters and their slaves as child processes.

Owns their directories, names and order: whoever is asked by another one starts before it; and which broker of
a name is its master.

Invariants: the master of a name is the store of its highest epoch, and no other is started as one. Leaving
the context stops all of them, slaves first, and the end of this process does, however it ends. Only processes
of this machine reach them: they listen on loopback, and have no secret.
"""

from __future__ import annotations

import signal
import string
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lakemq.broker_process import BrokerProcess, NotReady
from store_native.epoch_file import read_epoch_file
from store_native.errors import InvalidRequest, Unavailable

MOST_MASTERS = 26
MOST_SLAVES = 8
LOG = "broker.log"

# The defaults reserve 1.5 GB of sparse files for each store.
_SMALL_FILES = """\
[store]
commitlog_file_size = 67108864
consumequeue_file_entries = 30000
index_slots = 500000
index_entries = 2000000
"""


@dataclass(frozen=True, slots=True)
class Member:
    """One process of the cluster.

    Attributes:
        broker_name: Its own and its master's or slaves'; empty: it is the name server.
        role: As it was started.
    """

    name: str
    broker_name: str
    role: str
    process: BrokerProcess

    @property
    def endpoint(self) -> str:
        """Where it answers."""
        return self.process.endpoint


class LocalCluster:
    """Starts the cluster on entering and stops it on leaving.

    Args:
        home: Gets a directory for each process.
        masters: How many masters: broker-a, broker-b, ... A slave of one that was promoted in the
            directory is the master in its place, and that one a slave.
        slaves: How many slaves each master has.
        sync: Masters acknowledge what a slave has; they need one.
        port: The name server's, 0 for a free one.

    Attributes:
        master_role: What its masters are: sync-master or async-master.
    """

    def __init__(self, home: Path, masters: int, slaves: int, *, sync: bool = False, port: int = 0) -> None:
        self._home = home
        self._names = [f"broker-{letter}" for letter in string.ascii_lowercase[:masters]]
        self._slaves = slaves
        self.master_role = "sync-master" if sync else "async-master"
        self._port = port
        self._on_exit = ExitStack()
        self._starting: BrokerProcess | None = None
        self._is_given_up = False
        self.members: list[Member] = []

    def __enter__(self) -> Self:
        """Returns when all serve.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL, the master of a name is not among them; nothing was started.
            DataCorrupt: An epoch file is not readable; nothing was started.
            Unavailable: One did not start; says which, why and where its log is. Or the start was given up.
        """
        masters = {name: self._master_of(name) for name in self._names}
        with ExitStack() as started:
            self._on_exit = started
            names = self._start("nameserver", "nameserver", ["--port", str(self._port)])
            for name, first in masters.items():
                ready = ["--nameserver", names.endpoint]
                master = self._start(first, self.master_role, ready, name)
                for place, broker_id in self._ids_as_slaves(name).items():
                    if place != first:
                        follows = ["--master", master.endpoint, "--broker-id", str(broker_id)]
                        self._start(place, "slave", [*ready, *follows], name)
            self._on_exit = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._on_exit.close()

    @property
    def endpoint(self) -> str:
        """The name server's address, which clients take."""
        return self.members[0].endpoint

    def left_out(self) -> list[str]:
        """Returns the brokers that have a store in the directory and are not among the members."""
        named = {member.name for member in self.members}
        return sorted(
            store.parent.name for store in self._home.glob("*/store") if store.parent.name not in named
        )

    def give_up(self) -> None:
        """Ends a start that is under way, which raises Unavailable then; a signal's handler may call it."""
        self._is_given_up = True
        if self._starting is not None:
            self._starting.send_signal(signal.SIGTERM)

    def ended(self) -> list[Member]:
        """Returns those that do not run any more."""
        return [member for member in self.members if not member.process.alive]

    def _ids_as_slaves(self, name: str) -> dict[str, int]:
        """The brokers of a name, with the ids that they have while another one is the master."""
        slaves = {f"{name}-slave-{number}": number for number in range(1, self._slaves + 1)}
        return {name: MOST_SLAVES + 1, **slaves}

    def _master_of(self, name: str) -> str:
        """Which broker of a name is its master: the one whose epoch is the highest that any heard of."""
        places = sorted({name, *(store.parent.name for store in self._home.glob(f"{name}-slave-*/store"))})
        known = {place: file for place in places if (file := read_epoch_file(self._home / place / "store"))}
        if not known:
            return name
        epoch = max(file.seen for file in known.values())
        master = next((place for place, file in known.items() if file.master_of == epoch), None)
        if master is None:
            by_hand = f"lakemq serve --role slave --store {self._home}/.../store --broker-name {name}"
            detail = (
                f"{self._home} has {', '.join(known)}, and not the master that {name} has had since epoch "
                f"{epoch}: promote the one that is to take its place by hand "
                f"({by_hand} --broker-id 1, lakemq ha promote), then start again"
            )
            raise InvalidRequest("ARGUMENT_ILLEGAL", detail)
        if master not in self._ids_as_slaves(name):
            detail = f"{master} is the master of {name} since its promotion: --slaves {self._slaves} omits it"
            raise InvalidRequest("ARGUMENT_ILLEGAL", detail)
        return master

    def _start(
        self, place: str, role: str, arguments: Sequence[str], broker_name: str | None = None
    ) -> BrokerProcess:
        if self._is_given_up:
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"{place} was not started: the start was given up")
        name = "" if role == "nameserver" else broker_name or place
        directory = self._home / place
        directory.mkdir(parents=True, exist_ok=True)
        log = directory / LOG
        if role == "nameserver":
            process = BrokerProcess(arguments, log, command="nameserver", ends_with_caller=True)
        else:
            config = directory / "broker.toml"
            config.write_text(_SMALL_FILES, encoding="utf-8")
            own = ["--config", str(config), "--store", str(directory / "store"), "--port", "0"]
            own += ["--broker-name", name, "--role", role, "--ha-port", "0"]
            process = BrokerProcess([*own, *arguments], log, ends_with_caller=True)
        self._on_exit.callback(process.stop)
        self._starting = process
        if self._is_given_up:
            self.give_up()  # meanwhile
        try:
            process.wait_ready()
        except NotReady as error:
            detail = f"{place} did not start ({error.how}): {error.cause}; its log is {log}"
            raise Unavailable("SERVICE_NOT_AVAILABLE", detail) from error
        finally:
            self._starting = None
        self.members.append(Member(place, name, role, process))
        return process
