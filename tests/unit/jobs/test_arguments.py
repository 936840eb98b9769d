"""What the arguments of a group say of its handler's host; those of all tasks have whole names."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from delta_tables.user_tables.catalog_table import CatalogTable
from delta_tables.user_tables.path_table import PathTable
from jobs.arguments import (
    add_archive_arguments,
    add_consume_arguments,
    archive_settings,
    consume_settings,
)
from jobs.entry_points import archive_task, maintenance_task
from jobs.handler.invocation import HandlerHost
from jobs.settings import MAX_PARKED, ConsumeSettings
from store_native.errors import InvalidRequest


def settings(*options: str) -> ConsumeSettings:
    parser = argparse.ArgumentParser()
    add_consume_arguments(parser)
    given = ("--group", "g", "--topic", "t", "--handler", "m:f", *options)
    return consume_settings(parser.parse_args(given))


def archive_arguments(*options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_archive_arguments(parser)
    return parser.parse_args(("--topic", "t", *options))


def test_a_catalogs_schema_may_have_the_name_of_a_file_and_what_no_file_can_have_is_left_to_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main.lmq").touch()
    assert str(settings("--ledger", "main.lmq", "--checkpoint", "c").ledger) == "main.lmq"
    long = "x" * 5_000
    assert settings("--ledger", long, "--checkpoint", long).checkpoint == tmp_path / long


def host(*options: str) -> HandlerHost:
    return settings(*options).host


def test_places_that_are_files_and_options_of_another_mode_are_refused_by_name(
    tmp_path: Path,
) -> None:
    file = tmp_path / "file"
    file.touch()
    for options, said in (
        (["--ledger", str(file)], f"--ledger: {file} is a file"),
        (["--checkpoint", str(file)], f"--checkpoint: {file} is a file"),
        (["--max-parked", "3"], "--max-parked: nothing is parked in concurrent mode"),
        (["--max-parked", "3", "--mode", "broadcast"], "--max-parked: nothing is parked in broadcast mode"),
        (["--endpoint", "ftp://h"], "--endpoint: 'ftp://h' is not an endpoint"),
    ):
        with pytest.raises(InvalidRequest, match=re.escape(said)):
            settings(*options)
    with pytest.raises(InvalidRequest, match=r"--ledger: .* is a file"):
        archive_settings(archive_arguments("--ledger", str(file)))
    assert settings("--max-parked", "3", "--mode", "orderly").max_parked == 3
    assert settings("--mode", "orderly").max_parked == MAX_PARKED


def test_a_bound_of_the_handlers_memory_means_a_process_of_its_own() -> None:
    assert host() == HandlerHost()
    assert host("--isolation", "process") == HandlerHost(isolation="process")
    assert host("--handler-memory", "1g") == HandlerHost(isolation="process", memory=1 << 30)


def test_a_bound_of_the_handlers_memory_in_sparks_worker_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="--isolation process"):
        host("--handler-memory", "1g", "--isolation", "thread")


def test_a_task_takes_an_option_by_its_whole_name_only(capsys: pytest.CaptureFixture[str]) -> None:
    for task, words in (
        (maintenance_task, ["--ledger", "d", "--keep", "1"]),
        (archive_task, ["--topi", "t"]),
    ):
        with pytest.raises(SystemExit) as ended:
            task(words)
        assert ended.value.code == 2
        assert "error: " in capsys.readouterr().err


def test_a_table_is_a_name_and_an_absolute_path_a_url_or_a_name_in_a_catalog(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parser = argparse.ArgumentParser()
    add_consume_arguments(parser)
    given = ("--group", "g", "--topic", "t", "--handler", "m:f", "--write-to")
    tables = consume_settings(
        parser.parse_args([*given, "a=./x=y", "--write-to", "b=s3://bucket/b"])
    ).write_to
    assert tables == (PathTable("a", str(Path("x=y").absolute())), PathTable("b", "s3://bucket/b"))
    (tmp_path / "main.sales.is_there").mkdir()
    places = ["main.sales.invoices", "main.sales.is_there", "sales.invoices", "./main.sales.invoices"]
    named = [word for n, place in enumerate(places) for word in ("--write-to", f"t{n}={place}")]
    assert consume_settings(parser.parse_args([*given[:-1], *named])).write_to == (
        CatalogTable("t0", "main.sales.invoices"),
        *(PathTable(f"t{n}", str(Path(places[n]).absolute())) for n in (1, 2, 3)),
    )
    for wrong in ("a", "=x", "a="):
        with pytest.raises(SystemExit):
            parser.parse_args([*given, wrong])
        assert f"argument --write-to: {wrong!r} is not NAME=PLACE" in capsys.readouterr().err
