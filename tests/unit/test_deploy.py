"""What docs/deploy asks for is there: commands, settings, limits. No image is built, no unit started."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from configparser import ConfigParser
from pathlib import Path

import pytest

from ingest_api.setting_sources import load_settings
from ingest_api.settings import Settings, known_settings
from lakemq.cli import app

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "docs" / "deploy"
STOPPED_WITHIN_S = Settings().http.stop_timeout_s


def unit() -> ConfigParser:
    parser = ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "lakemq.service", encoding="utf-8")
    return parser


def container_command(file: str) -> list[str]:
    """The words of the command that a file gives to the entry point `lakemq`."""
    text = (DEPLOY / file).read_text(encoding="utf-8")
    found = re.search(r"^(?:CMD|\s+command:) (\[.*?\])", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    words: list[str] = json.loads(found[1])
    return words


def settings_of(command: list[str], environment: Mapping[str, str] = {}) -> Settings:
    """What `lakemq serve` makes of its words; its file is the one of docs/deploy."""
    parser, _ = app.parser_for("serve")
    args = parser.parse_args(command)
    assert args.config in (None, Path("/etc/lakemq/broker.toml"))
    given = {name: getattr(args, name) for name in known_settings()}
    return load_settings(args.config and DEPLOY / "broker.toml", given, environment)


def test_the_units_command_and_file_are_settings_that_there_are() -> None:
    service = unit()["Service"]
    program, *command = service["ExecStart"].split()
    assert program == "/opt/lakemq/bin/lakemq"
    settings = settings_of(command)
    assert settings.store.path == f"/var/lib/{service['StateDirectory']}/store"
    assert int(service["TimeoutStopSec"]) > STOPPED_WITHIN_S


def test_the_unit_stays_down_when_it_cannot_start() -> None:
    head, service = unit()["Unit"], unit()["Service"]
    burst, within_s = int(head["StartLimitBurst"]), int(head["StartLimitIntervalSec"])
    assert 1 < burst <= 10
    assert within_s > 10 * burst * int(service["RestartSec"])  # also where each start takes a while


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "lakemq.service").read_text(encoding="utf-8")
    command = str(Path(sys.executable).with_name("lakemq"))
    (tmp_path / "lakemq.service").write_text(text.replace("/opt/lakemq/bin/lakemq", command))
    verified = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "lakemq.service")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "lakemq.service" not in verified.stderr, verified.stderr


def test_the_commented_settings_for_other_machines_are_settings_too(tmp_path: Path) -> None:
    text = (DEPLOY / "broker.toml").read_text(encoding="utf-8")
    open_to_others = re.sub(r"^host = .*\n|^# (?=\w+ = )", "", text, flags=re.MULTILINE)
    (tmp_path / "broker.toml").write_text(open_to_others)
    http = load_settings(tmp_path / "broker.toml", {}, {}).http
    assert (http.host, http.insecure, http.advertised_address) == ("0.0.0.0", True, "broker-a.internal:8090")


def test_the_file_states_the_defaults() -> None:
    assert load_settings(DEPLOY / "broker.toml", {}, {}) == Settings()


@pytest.mark.parametrize("file", ["Dockerfile", "compose.yaml"])
def test_a_containers_command_is_one_that_there_is(file: str) -> None:
    settings = settings_of(container_command(file))
    assert settings.http.host == "0.0.0.0"
    assert settings.store.path.startswith("/var/lib/lakemq/")


def test_the_image_has_the_rust_that_the_store_asks_for() -> None:
    manifest = tomllib.loads((ROOT / "store_native/Cargo.toml").read_text(encoding="utf-8"))
    asked = manifest["package"]["rust-version"]
    assert f"--default-toolchain {asked}." in (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", ["compose.yaml", "compose-cluster.yaml"])
def test_compose_gives_a_stop_its_time(file: str) -> None:
    text = (DEPLOY / file).read_text(encoding="utf-8")
    found = re.search(r"stop_grace_period: (\d+)s", text)
    assert found is not None
    assert int(found[1]) > STOPPED_WITHIN_S


def test_no_image_takes_what_git_does_not_know() -> None:
    """What the working directory gathers does not go into an image's layers."""
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for name in (".venv", ".peers", ".mutants", ".spark-versions", ".quickstart", "dist", ".hypothesis"):
        assert name in ignored
    assert "store_native/target" in ignored


def test_settings_that_documents_name_are_there() -> None:
    tables = sorted({name.partition(".")[0] for name in known_settings() if "." in name})
    named = re.compile(rf"`((?:{'|'.join(tables)})\.[a-z_]+)`")
    documents = [ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")]
    unknown = {
        (document.name, name)
        for document in documents
        for name in named.findall(document.read_text(encoding="utf-8"))
        if name not in known_settings() and not name.endswith(".json")
    }
    assert unknown == set()
