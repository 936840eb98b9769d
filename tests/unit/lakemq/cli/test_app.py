"""The front door: exit codes, one line per error, nothing imported that is not asked for."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from lakemq.cli import app
from lakemq.client import InvalidRequest, Unavailable
from lakemq.terminal.failure import described


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in app.COMMANDS)


def test_help_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["help"]) == 0
    assert "usage: lakemq [-h]" in capsys.readouterr().out
    assert app.main(["help", "group", "reset"]) == 0
    assert "usage: lakemq group reset" in capsys.readouterr().out


def test_version_is_printed_even_where_nothing_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("lakemq 0")


def test_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main([]) == 2
    assert "usage: lakemq" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["frobnicate"], "lakemq"),
        (["topic"], "lakemq topic"),
        (["topic", "list", "--colour"], "lakemq topic list"),
        (["tail"], "lakemq tail"),
        (["consume", "--foo"], "lakemq consume"),
        (["serve", "--port", "none"], "lakemq serve"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_code_2_an_error_and_where_to_look(
    argv: list[str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main(argv) == 2
    error, where = capsys.readouterr().err.splitlines()
    assert error.startswith(f"{command}: error: ")
    assert where == f"See '{command} --help' for usage."


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            ["serve", "--prot", "1"],
            "lakemq serve: error: unrecognized arguments: --prot 1; did you mean --port?",
        ),
        (
            ["group", "status", "g", "--whatch=5s"],
            "lakemq group status: error: unrecognized arguments: --whatch=5s; did you mean --watch?",
        ),
        (["tail", "t", "--colour"], "lakemq tail: error: unrecognized arguments: --colour"),
        (
            ["topic", "list", "--endp", "127.0.0.1:1"],
            "lakemq topic list: error: unrecognized arguments: --endp 127.0.0.1:1; did you mean --endpoint?",
        ),
        (
            ["dlq", "list", "--gr=g"],
            "lakemq dlq list: error: unrecognized arguments: --gr=g; the following arguments are required: "
            "--group; did you mean --group?",
        ),
        (
            ["dlq", "export", "g"],
            "lakemq dlq export: error: unrecognized arguments: g; the following arguments are required: "
            "--to, --group; did you mean --group g?",
        ),
        (
            ["consume", "--grou", "g"],
            "lakemq consume: error: unrecognized arguments: --grou g; the following arguments are required: "
            "--group; did you mean --group?",
        ),
        (
            ["consume", "--group", "g", "--topc", "t"],
            "lakemq consume: error: unrecognized arguments: --topc t; one of the arguments --handler --sql "
            "is required; did you mean --topic?",
        ),
        (
            ["topic", "list", "--colour\nred"],
            "lakemq topic list: error: unrecognized arguments: --colour\\nred",
        ),
        (["topic", "list", "extra"], "lakemq topic list: error: unrecognized arguments: extra"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_option_that_is_not_there_names_the_one_that_may_be_meant(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main(argv) == 2
    assert capsys.readouterr().err.splitlines()[0] == said


def test_a_file_that_is_not_behind_its_option_names_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text("id,name\n")
    assert app.main(["produce", "x.csv"]) == 2
    said = "lakemq: x.csv is a file, not a topic: lakemq produce TOPIC --input x.csv\n"
    assert capsys.readouterr().err == said
    assert app.main(["produce", "t", "x.csv"]) == 2
    assert "arguments: x.csv; did you mean --input x.csv?\n" in capsys.readouterr().err


@pytest.mark.parametrize("job", [["consume", "--group", "g", "--handler", "m:f"], ["archive", "--once"]])
def test_a_store_that_is_not_there_is_said_before_spark_starts(
    job: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "none")
    assert app.main([*job, "--topic", "t", "--path", path]) == 2
    assert capsys.readouterr().err == f"lakemq: ARGUMENT_ILLEGAL: --path: there is no store at {path}\n"


@pytest.mark.parametrize("job", [["consume", "--group", "g", "--handler", "m:f"], ["archive", "--once"]])
def test_a_path_does_not_go_with_several_brokers(
    job: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*job, "--topic", "t", "--path", str(tmp_path), "--endpoint", "127.0.0.1:1,127.0.0.1:2"]
    assert app.main(words) == 2
    assert "ARGUMENT_ILLEGAL: --path is one broker's store" in capsys.readouterr().err


def test_a_terminal_is_told_how_its_input_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO()))
    assert app.main(["produce", "t", "--endpoint", "127.0.0.1:1"]) == 0
    assert "lakemq: a message a line; Ctrl-D ends the input\n" in capsys.readouterr().err


def test_options_that_do_not_fit_together_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["produce", "t", "--key", "k"]) == 2
    assert "--key-field" in capsys.readouterr().err


def test_missing_file_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["produce", "t", "--input", "no-such-file.ndjson"]) == 1
    assert capsys.readouterr().err == "lakemq: no-such-file.ndjson: No such file or directory\n"


def test_a_line_end_in_an_argument_does_not_end_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main(["produce", "t", "--input", f"{tmp_path}/a\nb"]) == 1
    assert capsys.readouterr().err == f"lakemq: {tmp_path}/a\\nb: No such file or directory\n"


def test_setting_outside_its_bounds_ends_the_start_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    config = tmp_path / "broker.toml"
    config.write_text(f"[store]\npath = '{store}'\nretention_hours = -1\n")
    assert app.main(["serve", "--config", str(config)]) == 1
    complaint = "lakemq: ARGUMENT_ILLEGAL: store.retention_hours: is -1, it lies between 1 and 878400\n"
    assert capsys.readouterr().err == complaint
    assert not store.exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["serve", "--port", "99999"], "http.port: is 99999, it lies between 0 and 65535 (--http.port)"),
        (["nameserver", "--port", "-1"], "http.port: is -1, it lies between 0 and 65535 (--http.port)"),
        (["serve", "--broker-id", "1"], "replication.broker_id: is 1: 0 is the master's, slaves have others"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_option_outside_its_bounds_is_wrong_usage(
    wrong: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert app.main(wrong) == 2
    assert capsys.readouterr().err == f"lakemq: ARGUMENT_ILLEGAL: {said}\n"
    assert list(tmp_path.iterdir()) == []


def test_argument_that_is_no_text_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for field, argv in (("body", ["--body", "x\udcff"]), ("keys", ["--body", "x", "--key", "\udcff"])):
        assert app.main(["produce", "t", *argv, "--endpoint", "127.0.0.1:1"]) == 1
        said = f"lakemq: ARGUMENT_ILLEGAL: {field} holds '\\udcff', which cannot be written in UTF-8\n"
        assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("noun", "verbs"),
    [
        *(("topic", "create"), ("group", "offsets"), ("message", "show"), ("store", "verify")),
        *(("ha", "promote"), ("cluster", "up"), ("dlq", "replay")),
    ],
)
def test_noun_without_a_verb_names_its_verbs(
    noun: str, verbs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main([noun]) == 2
    assert verbs in capsys.readouterr().err


def test_package_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "lakemq", "--version"]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout.startswith("lakemq 0")


def test_standard_output_may_be_closed() -> None:
    command = f"{sys.executable} -m lakemq.cli topic list --endpoint 127.0.0.1:1 >&-"
    refused = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    code = "import sys; from lakemq.cli import app; from lakemq.cli.commands import sql; "
    code += "sql.run = lambda args: print('x') or 0; sys.exit(app.main(['sql', 'SELECT 1']))"
    done = subprocess.run(
        ["bash", "-c", f'{sys.executable} -c "{code}" >&-'],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_store_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    # In /proc nothing can be made, and it says that it finds nothing.
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/below")):
        command = [
            sys.executable,
            "-m",
            "lakemq.cli",
            "serve",
            "--port",
            "0",
            "--store",
            str(place),
        ]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        said = ended.stderr.splitlines()[-1]
        if place == Path("/proc/below"):
            assert (ended.returncode, f"creating the store at {place}: " in said) == (1, True)
        else:
            assert (ended.returncode, "store.path: is no place for a store: " in said) == (2, True)


def test_error_is_one_line_with_its_place() -> None:
    error = InvalidRequest("MESSAGE_ILLEGAL", "tags are\nwrong", pointer="/messages/3/tags")
    assert described(error) == "MESSAGE_ILLEGAL: tags are wrong (at /messages/3/tags)"


def test_refused_connection_says_what_to_do() -> None:
    error = Unavailable("SERVICE_NOT_AVAILABLE", "no connection", sent=False)
    assert "lakemq serve" in described(error)


@pytest.mark.parametrize("heavy", ["pyspark", "fastapi", "pyarrow", "deltalake"])
def test_command_line_starts_without_what_it_does_not_need(heavy: str) -> None:
    code = (
        f"import sys; from lakemq.cli import app; app.parser_for('topic'); sys.exit({heavy!r} in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_sql_is_asked_without_an_http_client() -> None:
    pytest.importorskip("deltalake")
    code = (
        "import sys, delta_tables.ledger_reader; from lakemq.cli import app; app.parser_for('sql'); "
        "sys.exit('urllib3' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_missing_extra_is_named_and_own_defects_are_not_taken_for_one() -> None:
    missing = ModuleNotFoundError("No module named 'fastapi'", name="fastapi")
    assert app.is_missing_extra("serve", missing)
    assert app.missing_extra_text("serve", missing).startswith(
        "lakemq serve needs: pip install 'lakemq[server]'"
    )
    assert not app.is_missing_extra("serve", ModuleNotFoundError("x", name="ingest_api.nowhere"))
    assert not app.is_missing_extra("topic", missing)


@pytest.mark.parametrize("missing", ["pyspark", "deltalake", "uvicorn"])
def test_the_quick_start_says_what_it_needs_before_any_work(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)  # as if it were not installed
    home = tmp_path / "home"
    assert app.main(["quickstart", "--dir", str(home)]) == app.FAILED
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        f"lakemq: lakemq quickstart needs: pip install 'lakemq[all]' (there is no module {missing!r} here)\n"
    )
    assert not home.exists()
