"""The jobs of the Databricks bundle: what they name is there. No workspace is asked."""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from jobs.arguments import (
    add_archive_arguments,
    add_consume_arguments,
    archive_settings,
    consume_settings,
)
from lakemq.cli import app

ROOT = Path(__file__).resolve().parents[3]
RESOURCES = sorted((ROOT / "jobs" / "resources").glob("*.job.yml"))


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def jobs_of(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = read(file)["resources"]["jobs"]
    return found


@pytest.mark.parametrize("file", RESOURCES, ids=lambda file: file.name)
def test_what_a_job_names_is_there(file: Path) -> None:
    bundle = read(ROOT / "databricks.yml")
    asked = set(re.findall(r"\$\{var\.(\w+)\}", file.read_text(encoding="utf-8")))
    assert asked <= bundle["variables"].keys()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for job in jobs_of(file).values():
        clusters = {cluster["job_cluster_key"] for cluster in job.get("job_clusters", ())}
        environments = {each["environment_key"] for each in job.get("environments", ())}
        for task in job["tasks"]:
            assert task["python_wheel_task"]["entry_point"] in project["scripts"]
            assert task.get("job_cluster_key") in {None, *clusters}
            assert task.get("environment_key") in {None, *environments}


@pytest.mark.parametrize(("name", "runs_end"), [("group", False), ("group_scheduled", True)])
def test_a_groups_parameters_are_settings(name: str, runs_end: bool) -> None:
    (job,) = jobs_of(ROOT / "jobs" / "resources" / f"{name}.job.yml").values()
    (task,) = job["tasks"]
    values = {"catalog": "main", "schema": "lakemq", "handler": "shop:handle", "checkpoints": "/Volumes/x"}
    given = [
        re.sub(r"\$\{var\.(\w+)\}", lambda found: values.get(found[1], found[1]), parameter)
        for parameter in task["python_wheel_task"]["parameters"]
    ]
    parser = argparse.ArgumentParser()
    add_consume_arguments(parser)
    settings = consume_settings(parser.parse_args(given))
    assert settings.available_now is runs_end
    assert str(settings.checkpoint_of("group")) == "/Volumes/x/group/group"


@pytest.mark.parametrize("on_data_loss", ["fail", "skip"])
def test_the_archives_parameters_are_settings(on_data_loss: str) -> None:
    bundle = read(ROOT / "databricks.yml")["variables"]
    assert bundle["archive_on_data_loss"]["default"] == "fail", "as the command's"
    (job,) = jobs_of(ROOT / "jobs" / "resources" / "archive.job.yml").values()
    values = {"catalog": "main", "schema": "lakemq", "checkpoints": "/Volumes/x"}
    values["archive_on_data_loss"] = on_data_loss
    given = [
        re.sub(r"\$\{var\.(\w+)\}", lambda found: values.get(found[1], found[1]), parameter)
        for parameter in job["tasks"][0]["python_wheel_task"]["parameters"]
    ]
    parser = argparse.ArgumentParser()
    add_archive_arguments(parser)
    settings = archive_settings(parser.parse_args(given))
    assert (settings.on_data_loss, settings.topics) == (on_data_loss, ("topic",))


def test_the_scheduled_group_waits_to_be_chosen_and_has_the_continuous_ones_checkpoint() -> None:
    (continuous,) = jobs_of(ROOT / "jobs" / "resources" / "group.job.yml").values()
    (scheduled,) = jobs_of(ROOT / "jobs" / "resources" / "group_scheduled.job.yml").values()
    assert scheduled["schedule"]["pause_status"] == "PAUSED"
    assert scheduled["max_concurrent_runs"] == 1
    first, *others = scheduled["tasks"][0]["python_wheel_task"]["parameters"]
    assert first == "--available-now"
    assert others == continuous["tasks"][0]["python_wheel_task"]["parameters"]


def test_the_operators_command_is_one_that_there_is() -> None:
    (job,) = jobs_of(ROOT / "jobs" / "resources" / "operator.job.yml").values()
    words = job["tasks"][0]["python_wheel_task"]["parameters"]
    parser, _ = app.parser_for(words[0])
    assert parser.parse_args(words).ledger == "${var.catalog}.${var.schema}"
