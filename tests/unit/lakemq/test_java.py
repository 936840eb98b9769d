"""A missing Java is one sentence that says what to install, not a trace of Spark's start."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemq.java import require_java
from store_native.errors import InvalidRequest


def test_without_any_java_it_is_said_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no java on the PATH, and JAVA_HOME is not set; install"):
        require_java({"PATH": str(tmp_path)})


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=f"JAVA_HOME is {tmp_path}, which holds no bin/java"):
        require_java({"JAVA_HOME": str(tmp_path)})


def test_java_home_wins_and_the_path_comes_second(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    require_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    require_java({"PATH": str(java.parent)})
