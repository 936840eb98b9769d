"""Other bodies for dead letters: which lines are taken, what is sent, and what is written down."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.replays import REPLAYS
from jobs.dlq import edited_bodies
from jobs.dlq.choice import DeadLetterChoice, State
from jobs.dlq.discard import discard
from jobs.dlq.edited_bodies import EditedBodies
from jobs.dlq.export import export
from jobs.dlq.replay import Replay
from lakemq.cli.app import main
from store_native.errors import InvalidRequest
from tests.support.ledger_rows import append, path_ledger
from tests.unit.jobs.dlq.test_replay import _Sends, letter

PLACE = {"topic": "orders", "broker_name": "broker-a", "queue_id": 0, "queue_offset": 1, "attempts": 3}


class _Takes(_Sends):
    """A broker that says how large a body it takes, and keeps what it got."""

    def __init__(self, largest: int = 4 << 20) -> None:
        super().__init__()
        self.largest = largest
        self.bodies: dict[str, bytes] = {}

    def cluster(self) -> dict[str, Any]:
        return {"broker_name": "broker-a", "max_message_bytes": self.largest}

    def send_arrow(self, topic: str, data: Any, **given: Any) -> Any:
        super().send_arrow(topic, data, **given)
        self.bodies[data.column("message_id")[0].as_py()] = data.column("body")[0].as_py()


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    made = path_ledger(tmp_path / "ledger")
    append(made, DEAD_LETTERS, [letter(0), letter(1), letter(2), letter(3, "other")])
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "bodies.ndjson"


def choice(ledger: PathLedger, where: str = "true", state: State = "open") -> DeadLetterChoice:
    return DeadLetterChoice(str(ledger), "g", where, state)


def edited(file: Path, *lines: dict[str, Any] | str) -> EditedBodies:
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return EditedBodies(file)


def audit(ledger: PathLedger) -> dict[str, tuple[str | None, str | None]]:
    rows = pa.table(ledger.open(REPLAYS).to_pyarrow_table()).to_pylist()
    return {row["message_id"]: (row["old_body_sha256"], row["new_body_sha256"]) for row in rows}


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def test_a_letter_is_sent_with_another_body_and_the_audit_says_so(ledger: PathLedger, file: Path) -> None:
    bodies = edited(
        file,
        {"message_id": "M0", "body": '{"amount": "ä"}'},
        "",
        {**PLACE, "body_base64": base64.b64encode(b"\xff\x00").decode()},
    )
    broker = _Takes()
    assert Replay(choice(ledger), bodies).send(broker).sent == 3
    new = {"M0": '{"amount": "ä"}'.encode(), "M1": b"\xff\x00"}
    assert broker.bodies == {**new, "M2": b"x"}
    digests = {name: (sha256(b"x"), sha256(body)) for name, body in new.items()}
    assert audit(ledger) == {**digests, "M2": (None, None)}


def test_only_the_letters_of_the_file_are_sent_when_that_is_asked_for(ledger: PathLedger, file: Path) -> None:
    bodies = edited(file, {"message_id": "M0", "body": "new"}, {"message_id": "M1", "body": "x"})
    broker = _Takes()
    replay = Replay(choice(ledger), bodies, only_named=True)
    assert (replay.letters.num_rows, replay.send(broker).sent) == (2, 2)
    assert broker.bodies == {"M0": b"new", "M1": b"x"}
    assert audit(ledger) == {"M0": (sha256(b"x"), sha256(b"new")), "M1": (None, None)}


def test_another_body_has_another_key_and_the_same_one_the_same(tmp_path: Path, file: Path) -> None:
    keys = []
    for number, body in enumerate(("x", "new", "new", "newer")):
        ledger = path_ledger(tmp_path / str(number))
        append(ledger, DEAD_LETTERS, [letter(0)])
        broker = _Takes()
        Replay(choice(ledger), edited(file, {"message_id": "M0", "body": body})).send(broker)
        keys += broker.keys
    assert (len(set(keys)), keys[1]) == (3, keys[2])
    assert all(len(key) <= 255 and key.isascii() for key in keys)


def test_an_exported_file_with_edited_bodies_is_taken(ledger: PathLedger, file: Path) -> None:
    export(choice(ledger), file)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        line["body"] += line["message_id"]
    broker = _Takes()
    assert Replay(choice(ledger), edited(file, *lines)).send(broker).sent == 3
    assert broker.bodies == {"M0": b"xM0", "M1": b"xM1", "M2": b"xM2"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ("[]", "it is no object"),
        ({"message_id": "M0"}, "it takes one of body .text. and body_base64"),
        ({"message_id": "M0", "body": "a", "body_base64": "YQ=="}, "it takes one of body"),
        ({"message_id": "M0", "body": {"a": 1}}, "body is a text, JSON too: not dict"),
        ({"message_id": "M0", "body": None}, "body is a text"),
        ({"message_id": "M0", "body": ""}, "body is empty, which no broker takes"),
        ({"message_id": "M0", "body_base64": ""}, "body_base64 is empty"),
        ({"message_id": "M0", "body": "\ud800"}, "body cannot be written in UTF-8"),
        ({"message_id": "M0", "body_base64": "a"}, "body_base64 is none"),
        ({"message_id": "M0", "body_base64": "YQ==\n"}, "body_base64 is none"),
        ({"message_id": "M0", "body": "a", "bodi": 1}, "'bodi' is no field of a dead letter"),
        ({"body": "a"}, "it names a dead letter by message_id, or by topic, "),
        ({"message_id": 3, "body": "a"}, "it names a dead letter by message_id, or by"),
        ({"message_id": "M0", "topic": "orders", "body": "a"}, "it names a dead letter by"),
        ({**PLACE, "queue_offset": "1", "body": "a"}, "queue_offset is a whole number"),
        ({**PLACE, "queue_id": True, "body": "a"}, "queue_id is a whole number"),
        ({**PLACE, "topic": 7, "body": "a"}, "topic is a text"),
        ({"message_id": "M7", "body": "a"}, "it names none of the chosen dead letters"),
        ({"message_id": "M3", "body": "a"}, "it names none of the chosen dead letters"),
        ({**PLACE, "attempts": 4, "body": "a"}, "it names none of the chosen dead letters"),
        ({"message_id": "M2", "body": "a"}, "the dead letter of line 1 again"),
        ({**PLACE, "queue_offset": 2, "body": "a"}, "the dead letter of line 1 again"),
        ({"message_id": "M0", "tags": "A", "body": "a"}, "tags is not the dead letter's: a body alone"),
        ({**PLACE, "message_id": "M0", "body": "a"}, "message_id is not the dead letter's"),
    ],
    ids=lambda given: str(given)[:60],
)
def test_a_wrong_line_is_refused_by_its_number_before_anything_is_sent(
    ledger: PathLedger, file: Path, line: dict[str, Any] | str, said: str
) -> None:
    broker = _Takes()
    with pytest.raises(InvalidRequest, match=f"--bodies line 2: {said}"):
        Replay(choice(ledger), edited(file, {"message_id": "M2", "body": "a"}, line)).send(broker)
    assert broker.keys == []


def test_a_message_that_was_given_up_twice_is_named_by_its_key(ledger: PathLedger, file: Path) -> None:
    append(ledger, DEAD_LETTERS, [letter(0, attempts=6)])
    with pytest.raises(InvalidRequest, match="line 1: the message was given up 2 times: name it by topic"):
        Replay(choice(ledger), edited(file, {"message_id": "M0", "body": "a"}))
    named = edited(file, {**PLACE, "queue_offset": 0, "attempts": 6, "body": "a"})
    assert Replay(choice(ledger), named, only_named=True).letters.column("attempts").to_pylist() == [6]


def test_a_letter_that_the_condition_leaves_out_or_that_was_discarded_is_refused(
    ledger: PathLedger, file: Path
) -> None:
    bodies = edited(file, {"message_id": "M0", "body": "a"})
    with pytest.raises(InvalidRequest, match="line 1: it names none of the chosen"):
        Replay(choice(ledger, "queue_offset > 0"), bodies)
    with pytest.raises(InvalidRequest, match="line 1: the dead letter is not discarded, and --discarded"):
        Replay(choice(ledger, state="discarded"), bodies)
    discard(choice(ledger, "queue_offset = 0"), "no use")
    with pytest.raises(InvalidRequest, match=r"line 1: the dead letter was discarded by .*; --discarded"):
        Replay(choice(ledger), bodies)
    broker = _Takes()
    assert Replay(choice(ledger, state="discarded"), bodies).send(broker).sent == 1
    assert broker.bodies == {"M0": b"a"}


def test_a_run_that_broke_off_goes_on_with_the_same_file_and_refuses_another_one(
    ledger: PathLedger, file: Path
) -> None:
    first = {"message_id": "M0", "body": "a"}
    assert Replay(choice(ledger), edited(file, first), only_named=True).send(_Takes()).sent == 1
    broker = _Takes()
    rest = Replay(choice(ledger), edited(file, first, {"message_id": "M1", "body": "b"}), only_named=True)
    assert rest.edits is not None
    assert (rest.edits.sent_before, rest.send(broker).sent, broker.bodies) == (1, 1, {"M1": b"b"})
    for other in ("x", "b"):
        with pytest.raises(InvalidRequest, match=r"line 1: the dead letter was replayed at .* another body"):
            Replay(choice(ledger), edited(file, {"message_id": "M0", "body": other}))


def test_a_body_that_the_broker_does_not_take_is_refused_before_anything_is_sent(
    ledger: PathLedger, file: Path
) -> None:
    bodies = edited(file, {"message_id": "M1", "body": "abc"}, {"message_id": "M0", "body": "abcd"})
    broker = _Takes(3)
    replay = Replay(choice(ledger), bodies)
    for refused in (lambda: replay.check_sizes(broker), lambda: replay.send(broker)):
        with pytest.raises(InvalidRequest, match="line 2: the body has 4 bytes; broker-a takes 3 at most"):
            refused()
    assert (broker.keys, DeltaTable.is_deltatable(str(ledger.path(DEAD_LETTERS)))) == ([], True)
    assert Replay(choice(ledger), bodies).send(_Takes(4)).sent == 3


def test_an_empty_file_and_one_that_is_too_large_are_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidRequest, match=r"--bodies: .* has no line"):
        edited(file, "", " ")
    monkeypatch.setattr(edited_bodies, "MAX_FILE_BYTES", 10)
    with pytest.raises(InvalidRequest, match=r"--bodies: .* is larger than 10 bytes"):
        edited(file, {"message_id": "M0", "body": "a"})


def test_a_ledger_whose_replays_an_earlier_release_made_is_gone_on_with(
    ledger: PathLedger, file: Path
) -> None:
    names = [name for name in REPLAYS.column_names if not name.endswith("_sha256")]
    DeltaTable.create(
        str(ledger.path(REPLAYS)), pa.schema([REPLAYS.arrow_schema.field(name) for name in names])
    )
    bodies = edited(file, {"message_id": "M0", "body": "a"})
    assert Replay(choice(ledger), bodies, only_named=True).send(_Takes()).sent == 1
    assert audit(ledger) == {"M0": (sha256(b"x"), sha256(b"a"))}


def test_the_command_says_a_file_it_cannot_read_and_a_wrong_line_in_one_line(
    ledger: PathLedger, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["dlq", "replay", "--group", "g", "--ledger", str(ledger), "--bodies", str(file)]
    assert main(command) == 1
    assert f"{file}: No such file or directory" in capsys.readouterr().err
    file.write_text("{}\n")
    assert main(command) == 1
    said = capsys.readouterr().err
    assert ("--bodies line 1: it takes one of" in said, said.count("\n")) == (True, 1)
