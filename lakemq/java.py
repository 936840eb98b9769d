"""Whether there is a Java for Spark, asked before anything is started that would need it.

Owns where it is looked for, JAVA_HOME and then the PATH, and what to install.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from store_native.errors import from_code


def require_java(environment: Mapping[str, str] = os.environ) -> None:
    """Returns when Spark will find a Java runtime where it looks for one: JAVA_HOME, then the PATH.

    Args:
        environment: The variables of the process that will start Spark.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL; the text says where it looked and what to install.
    """
    home = environment.get("JAVA_HOME")
    if home:
        if not os.access(Path(home) / "bin" / "java", os.X_OK):
            raise _missing(f"JAVA_HOME is {home}, which holds no bin/java")
    elif shutil.which("java", path=environment.get("PATH")) is None:
        raise _missing("there is no java on the PATH, and JAVA_HOME is not set")


def _missing(where: str) -> Exception:
    install = "install Java 17 or newer (on Debian: sudo apt-get install default-jre-headless)"
    return from_code("ARGUMENT_ILLEGAL", f"Spark needs Java: {where}; {install}")
