"""What the environment says of lineage: whether it is wanted, and of what a run is part.

Owns the variables of OpenLineage that are read here; the others its client reads itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

_ASK = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
_ASK_FOR_ANY = "OPENLINEAGE__TRANSPORT"
FILES = ("openlineage.yml", "~/.openlineage/openlineage.yml")
"""Where OpenLineage's client looks for what it is to do."""


@dataclass(frozen=True)
class ParentRun:
    """The run that started this one, such as a scheduler's task.

    Attributes:
        namespace, job: of the job.
        run_id: a UUID.
    """

    namespace: str
    job: str
    run_id: str


def is_asked_for(environment: Mapping[str, str], files: Sequence[str] = FILES) -> bool:
    """Whether somebody wants lineage.

    Args:
        environment: the variables.
        files: one that is there asks for it too.
    """
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    if any(map(environment.get, _ASK)) or any(name.startswith(_ASK_FOR_ANY) for name in environment):
        return True
    return any(_is_file(file) for file in files)


def _is_file(file: str) -> bool:
    try:
        return Path(file).expanduser().is_file()
    except (OSError, RuntimeError):  # nobody's home, or not to be looked into
        return False


def namespace_of(environment: Mapping[str, str]) -> str:
    """Where jobs are named: OPENLINEAGE_NAMESPACE, or `default`."""
    return environment.get("OPENLINEAGE_NAMESPACE", "").strip() or "default"


def parent_of(environment: Mapping[str, str]) -> ParentRun | None:
    """What OPENLINEAGE_PARENT_ID names, as `namespace/job/run`; a namespace may have a `/` in it.

    Raises:
        ValueError: it is not of that form.
    """
    said = environment.get("OPENLINEAGE_PARENT_ID", "").strip()
    if not said:
        return None
    job, _, run_id = said.rpartition("/")
    namespace, _, name = job.rpartition("/")
    try:
        run = UUID(run_id)
    except ValueError:
        run = None
    if run is None or not (namespace and name):
        raise ValueError(f"OPENLINEAGE_PARENT_ID is no namespace/job/run with a UUID: {said!r}")
    return ParentRun(namespace, name, str(run))
