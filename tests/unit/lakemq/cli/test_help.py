"""What every --help tells: what each argument is, what happens without it, and in which units it is given."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from ingest_api.http.routes.groups import GroupChange
from ingest_api.http.routes.topics import TopicChange
from lakemq.argument_types import DURATION_HELP
from lakemq.cli import app
from lakemq.cli.commands import group, topic

NOTHING: tuple[object, ...] = (None, False, [], 0)


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of them
        if isinstance(action.choices, dict):
            for below in action.choices.values():
                yield from parsers(below)


def arguments() -> list[tuple[argparse.ArgumentParser, argparse.Action]]:
    return [
        (parser, action)
        for parser in parsers(app.whole_parser())
        for action in parser._actions  # noqa: SLF001
        if not isinstance(action.choices, dict) and action.help is not argparse.SUPPRESS
    ]


def name_of(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return f"{parser.prog} {action.option_strings[-1] if action.option_strings else action.dest}"


def test_every_argument_is_explained() -> None:
    assert len(arguments()) > 200
    assert [name_of(*each) for each in arguments() if not each[1].help] == []


def test_every_default_is_named() -> None:
    unnamed = [
        name_of(parser, action)
        for parser, action in arguments()
        if action.option_strings
        and action.default not in (*NOTHING, argparse.SUPPRESS)
        and "(default: %(default)s" not in str(action.help)
    ]
    assert unnamed == []


def test_every_duration_is_called_one_and_the_form_is_below() -> None:
    with_durations = {
        parser.prog: str(parser.epilog) for parser, action in arguments() if "DURATION" in str(action.metavar)
    }
    assert len(with_durations) >= 4
    assert set(with_durations.values()) == {DURATION_HELP}


def test_every_time_says_how_it_is_written() -> None:
    times = [(parser, action) for parser, action in arguments() if action.metavar in ("TIME", "PLACE")]
    assert len(times) >= 4
    assert [name_of(*each) for each in times if "1h (that long ago" not in str(each[1].help)] == []


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["group", "status", "g", "--watch", "0s"], "--watch"),
        (["ha", "status", "--watch", "0"], "--watch"),
        (["group", "create", "g", "--retry-max-times", "-1"], "--retry-max-times"),
        (["group", "create", "g", "--retry-max-times", "1001"], "--retry-max-times"),
        (["topic", "create", "t", "--queues", "1025"], "--queues"),
        (["cluster", "up", "--masters", "27"], "--masters"),
        (["cluster", "up", "--port", "65536"], "--port"),
        (["store", "dump", ".", "--from-offset", "-1"], "--from-offset"),
        *(
            (["consume", "--group", "g", "--topic", "t", "--handler", "m:f", option, value], option)
            for option, value in [
                ("--trigger", "0s"),
                ("--until-idle", "0"),
                ("--consume-timeout", "0s"),
                ("--stop-timeout", "999ms"),
                ("--batch-time", "31s"),
                ("--retry-delays", "soon"),
                ("--retry-delays", ""),
                ("--retry-backoff", "10m..1s"),
                ("--max-batch", "0"),
                ("--max-reconsume-times", "-1"),
                ("--driver-memory", "much"),
                ("--handler-memory", "127m"),
            ]
        ),
        (["archive", "--topic", "t", "--trigger", "0s"], "--trigger"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[-2:]),
)
def test_an_option_that_cannot_be_is_refused_by_its_name_before_any_work(
    words: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main(words) == 2
    said = capsys.readouterr().err.splitlines()[0]
    assert f": error: argument {option}: " in said


def test_bounds_are_the_brokers() -> None:
    GroupChange(retry_max_times=group.MOST_RETRIES)
    TopicChange(read_queue_nums=topic.MOST_QUEUES)
    with pytest.raises(ValidationError):
        GroupChange(retry_max_times=group.MOST_RETRIES + 1)
    with pytest.raises(ValidationError):
        TopicChange(read_queue_nums=topic.MOST_QUEUES + 1)
