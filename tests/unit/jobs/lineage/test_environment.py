"""Whether lineage is asked for, and what the environment names.

Contract: OpenLineage's own variables and files decide; without them nothing of it is imported.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jobs.lineage.environment import ParentRun, is_asked_for, namespace_of, parent_of

ROOT = Path(__file__).resolve().parents[4]
URL = {"OPENLINEAGE_URL": "http://127.0.0.1:1"}
RUN = "0190a1b2-0000-7000-8000-00000000000f"


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, False),
        ({"OPENLINEAGE_NAMESPACE": "shop"}, False),
        (URL, True),
        ({"OPENLINEAGE_URL": ""}, False),
        ({"OPENLINEAGE_CONFIG": "lineage.yml"}, True),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "console"}, True),
        ({"OPENLINEAGE__TRANSPORT": '{"type": "console"}'}, True),
        ({**URL, "OPENLINEAGE_DISABLED": "True"}, False),
        ({**URL, "OPENLINEAGE_DISABLED": "false"}, True),
    ],
)
def test_the_environment_says_whether_lineage_is_wanted(environment: dict[str, str], asked: bool) -> None:
    assert is_asked_for(environment, files=()) == asked


def test_a_file_of_the_clients_asks_for_it_too(tmp_path: Path) -> None:
    file = tmp_path / "openlineage.yml"
    assert not is_asked_for({}, [str(file)])
    file.write_text("transport: {type: console}\n")
    assert is_asked_for({}, [str(file)])
    assert not is_asked_for({"OPENLINEAGE_DISABLED": "true"}, [str(file)])
    assert not is_asked_for({}, [str(file / "below"), "~nobody-of-that-name/openlineage.yml"])


@pytest.mark.parametrize(
    ("said", "parent"),
    [
        ("", None),
        (f"dags/nightly.load/{RUN}", ParentRun("dags", "nightly.load", RUN)),
        (f"airflow://host/a/nightly.load/{RUN}", ParentRun("airflow://host/a", "nightly.load", RUN)),
    ],
)
def test_a_parent_is_named_by_namespace_job_and_run(said: str, parent: ParentRun | None) -> None:
    assert parent_of({"OPENLINEAGE_PARENT_ID": said}) == parent


@pytest.mark.parametrize("said", ["nightly", "dags/nightly.load/7", f"dags/{RUN}", f"/nightly/{RUN}"])
def test_what_names_no_parent_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match="no namespace/job/run with a UUID"):
        parent_of({"OPENLINEAGE_PARENT_ID": said})


def test_the_namespace_is_default_unless_it_is_said() -> None:
    assert namespace_of({}) == namespace_of({"OPENLINEAGE_NAMESPACE": " "}) == "default"
    assert namespace_of({"OPENLINEAGE_NAMESPACE": "shop"}) == "shop"


def test_nothing_of_openlineage_is_imported_unasked(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import jobs.consume, jobs.archive\n"
        "from jobs.lineage.job_run import job_run\n"
        "with job_run('ARCHIVE', 'archive.x', True, [], list, None) as run: assert run is None\n"
        "print([name for name in sys.modules if name.startswith('openlineage')])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ended.stdout == "[]\n"
