"""Completion: each shell's script, and what bash makes of it."""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
from pathlib import Path

import pytest

from lakemq.cli import app


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "lakemq.bash"
    path.write_text(printed("bash"))
    return path


def printed(shell: str) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert app.main(["completion", shell]) == 0
    return text.getvalue()


def offered(script: Path, *words: str) -> list[str]:
    """Returns what bash offers for the last of the words."""
    line = f"""
        source {script}
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)})
        COMP_CWORD={len(words) - 1}
        _shtab_lakemq
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    found = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=60)
    assert found.stderr == ""
    return found.stdout.split()


def test_bash_reads_the_script(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=60)


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (("lakemq", ""), {"serve", "produce", "tail", "completion"}),
        (("lakemq", "se"), {"serve"}),
        (("lakemq", "serve", "--po"), {"--port"}),
        (("lakemq", "serve", "--http.p"), {"--http.port"}),
        (("lakemq", "serve", "--flush", ""), {"sync", "async"}),
        (("lakemq", "group", ""), {"list", "reset"}),
        (("lakemq", "completion", ""), {"bash", "zsh"}),
    ],
)
def test_bash_offers_commands_options_and_choices(
    script: Path, words: tuple[str, ...], some: set[str]
) -> None:
    assert some <= set(offered(script, *words))


def test_the_modes_of_a_group_are_offered(script: Path) -> None:
    assert set(offered(script, "lakemq", "consume", "--mode", "")) == {"concurrent", "orderly", "broadcast"}


def test_a_file_is_offered_where_one_is_wanted(script: Path, tmp_path: Path) -> None:
    (tmp_path / "broker.toml").touch()
    assert str(tmp_path / "broker.toml") in offered(script, "lakemq", "serve", "--config", f"{tmp_path}/br")


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_have_a_script(shell: str) -> None:
    text = printed(shell)
    assert "serve" in text
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=text, text=True, check=True, timeout=60)


def test_an_unknown_shell_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["completion", "nush"]) == 2
    assert "invalid choice" in capsys.readouterr().err
