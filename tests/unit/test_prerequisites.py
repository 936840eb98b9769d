"""What is missing is named with a command that works where it is missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(tools: Path, *asked: str) -> subprocess.CompletedProcess[str]:
    """Asks for tools on a machine that has only what lies in a directory, and a shell's own."""
    for name in ("bash", "sed", "head"):
        found = shutil.which(name)
        assert found is not None
        if not (tools / name).exists():
            (tools / name).symlink_to(found)
    return subprocess.run(
        [str(tools / "bash"), str(ROOT / ".ci/prerequisites"), *asked],
        env={"PATH": str(tools), "HOME": str(tools)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def put(tools: Path, name: str, text: str) -> None:
    path = tools / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{shutil.which('bash')}\n{text}\n")
    path.chmod(0o755)


def test_rust_comes_from_its_own_installer_where_apt_has_no_rustup(tmp_path: Path) -> None:
    put(tmp_path, "apt-cache", "exit 100")  # Debian 12 has none
    said = run(tmp_path, "cargo")
    assert said.returncode == 1
    assert "https://sh.rustup.rs" in said.stderr
    assert ".cargo/env" in said.stderr  # in this shell, too
    assert "apt-get install rustup" not in said.stderr


def test_rust_comes_from_apt_where_it_has_rustup(tmp_path: Path) -> None:
    put(tmp_path, "apt-cache", '[ "$*" = "show rustup" ]')
    assert "apt-get install rustup && rustup default stable" in run(tmp_path, "cargo").stderr


def test_an_old_cargo_of_rustup_is_brought_up_to_date(tmp_path: Path) -> None:
    put(tmp_path, "rustup", "")
    put(tmp_path, "cargo", "echo cargo 1.87.0")
    said = run(tmp_path, "cargo").stderr
    assert "rustup update stable && rustup default stable" in said
    put(tmp_path, "cargo", "echo cargo 1.88.0")
    put(tmp_path, "cc", "")
    assert run(tmp_path, "cargo").returncode == 0


def test_cargo_that_is_only_not_on_the_path_is_put_there(tmp_path: Path) -> None:
    put(tmp_path, ".cargo/bin/cargo", "echo cargo 1.90.0")
    assert '. "$HOME/.cargo/env"' in run(tmp_path, "cargo").stderr


def test_java_is_the_distributions_own(tmp_path: Path) -> None:
    said = run(tmp_path, "java", "mvn").stderr
    assert "apt-get install default-jdk-headless" in said  # 17 on Debian 12, 21 on Debian 13
    assert "openjdk-17" not in said  # Debian 13 has none
