"""What `lakemq consume` and `lakemq archive` say of wrong arguments, and with which exit code.

Contract: 2 and one line that names the option where the arguments alone show it; 1 where the handler's
module, a table or the broker refuses. No JVM starts for either.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemq import spark
from lakemq.cli.app import main

HANDLER = ["--handler", "usage_handlers:take"]
TOPIC = ["--topic", "t"]
GROUP = ["--group", "g"]
ALL = [*GROUP, *TOPIC, *HANDLER]
NOBODY = ["--endpoint", "http://127.0.0.1:1"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def no_session(*args: object, **kwargs: object) -> None:
        raise AssertionError("a session was started")

    monkeypatch.setattr(spark, "session", no_session)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.sql").write_text("SELECT *, 'ACK' AS verdict FROM batch")
    (tmp_path / "usage_handlers.py").write_text("def take(message): pass\n")
    return tmp_path


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--group", "a b", *TOPIC, *HANDLER], "GROUP_ILLEGAL: --group: the group's name has characters"),
        (["--group", "", *TOPIC, *HANDLER], "GROUP_ILLEGAL: --group: a group's name has 1 to 120 bytes"),
        ([*GROUP, *HANDLER, "--topic", "a b"], "TOPIC_ILLEGAL: --topic: the topic's name has characters"),
        ([*GROUP, *HANDLER, "--topic-pattern", "("], "--topic-pattern is no regular expression of Python"),
        ([*ALL, "--tags", "A | B"], "--tags: "),
        ([*ALL, "--write-to", "rows"], "--write-to: 'rows' is not NAME=PLACE"),
        ([*ALL, "--write-to", "a b=/x"], "--write-to: 'a b' is no name of a table"),
        ([*ALL, "--write-to", "a=/x", "--write-to", "a=/y"], "--write-to: several tables are called a"),
        ([*ALL, "--write-to", "a=/x", "--mode", "broadcast"], "--write-to: verdicts write nothing in broad"),
        ([*ALL, "--write-to", "a=/x", "--mode", "orderly"], "--write-to: verdicts write nothing in orderly"),
        ([*ALL, "--send-to", "a b"], "TOPIC_ILLEGAL: --send-to: the topic's name has characters"),
        ([*ALL, "--send-to", "%RETRY%g"], "--send-to: %RETRY%g is no topic of yours"),
        ([*ALL, "--send-to", "x", "--mode", "orderly"], "--send-to: verdicts send nothing in orderly mode"),
        ([*ALL, "--vectorised", "yes", "--mode", "orderly"], "--vectorised yes: orderly mode calls with one"),
        ([*GROUP, *TOPIC, "--sql", "q.sql", "--mode", "orderly"], "--mode orderly: a function of DataFrames"),
        ([*GROUP, *TOPIC, "--sql", "q.sql", "--mode", "broadcast"], "--mode broadcast has no retries"),
        ([*GROUP, *TOPIC, "--sql", "none.sql"], "--sql: there is no file none.sql"),
        (
            [*GROUP, *TOPIC, "--handler", "usage_handlers"],
            "--handler is MODULE:FUNCTION, not 'usage_handlers'",
        ),
        ([*ALL, "--max-reconsume-times", "9" * 20], "is not a whole number from 0 to 2147483647"),
        ([*ALL, "--max-batch", "0"], "--max-batch: '0' is not a whole number above 0"),
        ([*ALL, "--isolation", "thread", "--handler-memory", "512m"], "--handler-memory bounds a process"),
        ([*ALL, "--ledger", "s3://b/l"], "--ledger: s3://b/l is an address"),
        ([*ALL, "--ledger", "main.lakemq"], "the ledger main.lakemq is in a catalog and needs --checkpoint"),
        ([*ALL, "--conf", "foo=bar"], "--conf foo: names of Spark's settings"),
        ([*ALL, "--py-files", "none.py"], "--py-files: there is no file none.py"),
        ([*ALL, "--path", "/nowhere"], "--path: there is no store at /nowhere"),
        ([*ALL, "--endpoint", "http://x:y"], "--endpoint: 'http://x:y' is not an endpoint such as"),
    ],
    ids=lambda given: " ".join(given)[-50:] if isinstance(given, list) else "",
)
def test_a_wrong_argument_is_code_2_and_one_line_that_names_it(
    capsys: pytest.CaptureFixture[str], given: list[str], said: str
) -> None:
    assert main(["consume", *given]) == 2
    error, *more = capsys.readouterr().err.splitlines()
    assert said in error
    assert more in ([], ["See 'lakemq consume --help' for usage."])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--topic", "a b"], "--topic: the topic's name"),
        ([*TOPIC, "--path", "/nowhere"], "--path: there is no store at /nowhere"),
        ([*TOPIC, "--ledger", "main.lakemq"], "needs --checkpoint"),
        ([*TOPIC, "--master", ""], "--master: it is empty"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_a_wrong_argument_of_the_archive_is_code_2_too(
    capsys: pytest.CaptureFixture[str], given: list[str], said: str
) -> None:
    assert main(["archive", *given]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([*ALL, *NOBODY], "SERVICE_NOT_AVAILABLE: no connection to http://127.0.0.1:1"),
        ([*ALL, *NOBODY, "--write-to", "a=none"], "TABLE_NOT_EXIST: --write-to a: there is no Delta table"),
        ([*GROUP, *TOPIC, "--handler", "usage_handlers:none"], "usage_handlers has no 'none'"),
        ([*GROUP, *TOPIC, "--handler", "no_such_module:take"], "there is no module 'no_such_module'"),
    ],
    ids=["broker", "table", "function", "module"],
)
def test_what_only_something_outside_can_refuse_is_code_1(
    capsys: pytest.CaptureFixture[str], given: list[str], said: str
) -> None:
    assert main(["consume", *given]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert said in error


def test_an_address_of_the_environment_is_no_argument(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEMQ_ENDPOINT", "http://x:y")
    assert main(["consume", *ALL]) == 1
    assert "'http://x:y' is not an endpoint" in capsys.readouterr().err
