"""Settings: defaults < file < command line; whatever is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest_api.settings import load_settings
from store_native.errors import InvalidRequest


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "broker.toml"
    path.write_text(text)
    return path


def test_defaults_flush_before_the_answer_and_listen_on_loopback() -> None:
    settings = load_settings(None, {})
    assert settings.store.flush == "sync"
    assert settings.http.host == "127.0.0.1"
    assert settings.http.port == 8090
    assert settings.limits.max_message_bytes == 4 * 1024 * 1024
    assert settings.limits.max_request_bytes == 64 * 1024 * 1024


def test_the_file_wins_over_defaults_and_options_win_over_the_file(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        'broker_name = "b"\n[http]\nport = 1\n[store]\nflush = "async"\n[limits]\nbody_timeout_s = 2\n',
    )
    settings = load_settings(path, {"http.port": 2, "store.flush": None, "broker_name": None})
    assert settings.http.port == 2
    assert settings.store.flush == "async"
    assert settings.broker_name == "b"
    assert settings.limits.body_timeout_s == 2.0


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[http]\nprot = 1\n", "http.prot"),
        ("[http]\nport = '8090'\n", "http.port"),
        ("[http]\nport = true\n", "http.port"),
        ("[http]\nport = 70000\n", "http.port"),
        ("[store]\nflush = 'sometimes'\n", "store.flush"),
        ("store = 'here'\n", "store"),
        ("[limits]\ndisk_full_ratio = 2.0\n", "limits.disk_full_ratio"),
        ("[limits]\nmax_inflight_sends = 0\n", "limits.max_inflight_sends"),
        ("this is no toml", "--config"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(tmp_path: Path, text: str, name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        load_settings(written(tmp_path, text), {})
    assert refused.value.code == "ARGUMENT_ILLEGAL"
    assert refused.value.context["setting"] == name


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot read"):
        load_settings(tmp_path / "none.toml", {})


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "::", "broker.example.org"])
def test_an_address_others_reach_needs_insecure(host: str) -> None:
    with pytest.raises(InvalidRequest, match="--insecure"):
        load_settings(None, {"http.host": host})
    assert load_settings(None, {"http.host": host, "http.insecure": True}).http.host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_loopback_needs_nothing(host: str) -> None:
    assert load_settings(None, {"http.host": host}).http.host == host
