"""Settings: defaults < file < environment < command line; whatever is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest_api.process_settings import NameServerSettings, ProcessSettings
from ingest_api.setting_sources import load, load_settings
from ingest_api.settings import Settings, known_settings
from lakemq.cli.commands import serve
from lakemq.cli.parser import Parser
from store_native import option_bounds
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


def test_the_environment_wins_over_the_file_and_options_win_over_it(tmp_path: Path) -> None:
    path = written(tmp_path, "[http]\nport = 1\nmax_headers = 50\n[store]\nauto_create_topics = true\n")
    environment = {
        "LAKEMQ_BROKER_NAME": "b",
        "LAKEMQ_HTTP_PORT": "2",
        "LAKEMQ_HTTP_ALLOWED_HOSTS": "one, two",
        "LAKEMQ_STORE_AUTO_CREATE_TOPICS": "false",
        "LAKEMQ_LIMITS_BODY_TIMEOUT_S": "1.5",
        "LAKEMQ_LOG_FORMAT": "json",
        "LAKEMQ_ENDPOINT": "the client's",
        "HTTP_PORT": "nobody's",
    }
    settings = load_settings(path, {"log.format": "plain"}, environment)
    assert (settings.broker_name, settings.http.port, settings.http.max_headers) == ("b", 2, 50)
    assert settings.http.allowed_hosts == ("one", "two")
    assert settings.store.auto_create_topics is False
    assert settings.limits.body_timeout_s == 1.5
    assert settings.log.format == "plain"


@pytest.mark.parametrize(
    ("variable", "text", "name"),
    [
        ("LAKEMQ_HTTP_SUPPER", "1", "http.supper"),
        ("LAKEMQ_HTTP_PORT", "eight", "http.port"),
        ("LAKEMQ_HTTP_PORT", "70000", "http.port"),
        ("LAKEMQ_HTTP_INSECURE", "perhaps", "http.insecure"),
        ("LAKEMQ_STORE_FLUSH", "sometimes", "store.flush"),
        ("LAKEMQ_CLUSTER", "a b", "cluster"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_settings_name(variable: str, text: str, name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        load_settings(None, {}, {variable: text})
    assert refused.value.context["setting"] == name


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("LAKEMQ_NAMESERVER", "LAKEMQ_NAMESERVERS"),
        ("LAKEMQ_BROKERNAME", "LAKEMQ_BROKER_NAME"),
        ("LAKEMQ_HTTP_PROT", "LAKEMQ_HTTP_PORT"),
    ],
)
def test_a_variable_that_is_nearly_a_settings_is_no_silent_default(variable: str, meant: str) -> None:
    with pytest.raises(
        InvalidRequest, match=f"^ARGUMENT_ILLEGAL: {variable}: is no setting; it may have meant {meant}$"
    ):
        load_settings(None, {}, {variable: "1"})


@pytest.mark.parametrize(
    "variable",
    ["LAKEMQ_ENDPOINT", "LAKEMQ_PORT", "LAKEMQ_SERVICE_HOST", "LAKEMQ_PORT_8090_TCP", "MQ_CLUSTER"],
)
def test_a_variable_of_another_program_is_passed_over(variable: str) -> None:
    assert load_settings(None, {}, {variable: "tcp://10.0.0.1:8090"}) == load_settings(None, {}, {})


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("False", False), ("yes", True), ("off", False), ("1", True)]
)
def test_a_variable_says_yes_or_no_in_the_usual_words(text: str, value: bool) -> None:
    assert load_settings(None, {}, {"LAKEMQ_HTTP_INSECURE": text}).http.insecure is value


def test_an_option_and_a_variable_have_the_names_of_the_file(tmp_path: Path) -> None:
    parser = Parser()
    serve.register(parser.add_subparsers())
    for name, field in known_settings().items():
        if name == "cluster_secret":
            continue  # everybody on a machine can read a command line
        if field.kind is bool:
            assert getattr(parser.parse_args(["serve", f"--{name}"]), name) is True
            continue
        text = field.choices[0] if field.choices else "x" if field.default in ("", ()) else str(field.default)
        value = getattr(parser.parse_args(["serve", f"--{name}", text]), name)
        assert value == ([text] if field.kind is tuple else field.kind(text))
    assert getattr(parser.parse_args(["serve", "--port", "1"]), "http.port") == 1
    path = written(tmp_path, "[limits]\nmax_wait_ms = 1\n")
    assert load_settings(path, {}).limits.max_wait_ms == 1
    assert load_settings(path, {}, {"LAKEMQ_LIMITS_MAX_WAIT_MS": "2"}).limits.max_wait_ms == 2
    options = vars(parser.parse_args(["serve", "--limits.max_wait_ms", "3"])) | {"config": None}
    given = {name: options[name] for name in known_settings()}
    assert load_settings(path, given, {"LAKEMQ_LIMITS_MAX_WAIT_MS": "2"}).limits.max_wait_ms == 3


def test_an_empty_variable_is_an_empty_list(tmp_path: Path) -> None:
    path = written(tmp_path, "[http]\nallowed_hosts = ['one']\n")
    assert load_settings(path, {}, {"LAKEMQ_HTTP_ALLOWED_HOSTS": ""}).http.allowed_hosts == ()


def test_a_refusal_says_what_was_given_and_where(tmp_path: Path) -> None:
    path = written(tmp_path, "[http]\nmax_headers = 7\n")
    with pytest.raises(InvalidRequest) as refused:
        load_settings(path, {})
    assert refused.value.detail == "http.max_headers: is 7, it lies between 8 and 10000"
    with pytest.raises(InvalidRequest) as refused:
        load_settings(path, {}, {"LAKEMQ_HTTP_MAX_HEADERS": "many"})
    assert refused.value.detail == "http.max_headers: must be int, is 'many' (LAKEMQ_HTTP_MAX_HEADERS)"
    with pytest.raises(InvalidRequest) as refused:
        load_settings(path, {"log.slow_request_ms": -1, "http.max_headers": 8}, {})
    assert refused.value.detail == (
        "log.slow_request_ms: is -1, it lies between 0 and 3600000 (--log.slow_request_ms)"
    )
    with pytest.raises(InvalidRequest, match="no such setting; known here: format, level, slow_request_ms"):
        load_settings(written(tmp_path, "[log]\nlevels = 'info'\n"), {})
    with pytest.raises(InvalidRequest, match="no such setting; known here: broker_name, cluster, cluster_s"):
        load_settings(written(tmp_path, "colour = 'red'\n"), {})


def test_settings_built_by_hand_take_nothing_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEMQ_HTTP_PORT", "1")
    monkeypatch.setenv("LAKEMQ_BROKER_NAME", "b")
    assert Settings() == load_settings(None, {})


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
        ("[http]\nkeep_alive_s = -5\n", "http.keep_alive_s"),
        ("[http]\nstop_timeout_s = 0\n", "http.stop_timeout_s"),
        ("[store]\nretention_hours = -1\n", "store.retention_hours"),
        ("[store]\ndelete_when_hour = 99\n", "store.delete_when_hour"),
        ("[store]\nflush_interval_ms = 0\n", "store.flush_interval_ms"),
        ("[store]\ncommitlog_file_size = 2147483648\n", "store.commitlog_file_size"),
        ("[store]\ncommitlog_file_size = 65537\n", "store.commitlog_file_size"),
        ("[store]\nconsumequeue_file_entries = 99999999999999999999\n", "store.consumequeue_file_entries"),
        ("[store]\nindex_slots = 100_000_000\nindex_entries = 90_000_000\n", "store.index_entries"),
        ("[store]\ndelay_levels = ''\n", "store.delay_levels"),
        ("[store]\ndelay_levels = '1s 5x'\n", "store.delay_levels"),
        ("[store]\ndelay_levels = '1s 999999999d'\n", "store.delay_levels"),
        ("[store]\npath = ''\n", "store.path"),
        ("[limits]\nmax_message_bytes = 2147483648\n", "limits.max_message_bytes"),
        ("[limits]\nbody_timeout_s = nan\n", "limits.body_timeout_s"),
        ("[limits]\nbody_timeout_s = inf\n", "limits.body_timeout_s"),
        ("[log]\nslow_request_ms = -1\n", "log.slow_request_ms"),
        ("broker_name = 'a b'\n", "broker_name"),
        ("cluster = ''\n", "cluster"),
        ("this is no toml", "--config"),
        ("[http]\nport = " + "9" * 5_000, "--config"),
        ("x = " + "[" * 3_000, "--config"),
        ("[http]\nhead_timeout_s = 9" + "9" * 400, "http.head_timeout_s"),
        ("[store]\ncommitlog_file_size = 4194304\n", "limits.max_message_bytes"),
        ("[limits]\nmax_request_bytes = 4194303\n", "limits.max_message_bytes"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(tmp_path: Path, text: str, name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        load_settings(written(tmp_path, text), {})
    assert refused.value.code == "ARGUMENT_ILLEGAL"
    assert refused.value.context["setting"] == name


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_bytes(b'broker_name = "\xff"\n')
    with pytest.raises(InvalidRequest, match="is not TOML"):
        load_settings(path, {})


def test_the_largest_message_fits_a_log_file(tmp_path: Path) -> None:
    text = "[store]\ncommitlog_file_size = 65536\n[limits]\nmax_message_bytes = 31744\n"
    assert load_settings(written(tmp_path, text), {}).limits.max_message_bytes == 31_744
    with pytest.raises(InvalidRequest, match="takes 31744"):
        load_settings(written(tmp_path, text.replace("31744", "31745")), {})


@pytest.mark.parametrize(
    ("lowered", "said"),
    [
        (
            {"store.commitlog_file_size": 65_536},
            "is 4194304, and a log file of store.commitlog_file_size, 65536 bytes, takes 31744: "
            "lower limits.max_message_bytes to 31744",
        ),
        (
            {"limits.max_request_bytes": 1_000},
            "is 4194304, more than limits.max_request_bytes, 1000: lower limits.max_message_bytes to 1000",
        ),
    ],
    ids=str,
)
def test_what_has_to_be_lowered_too_is_said_with_its_number(lowered: dict[str, int], said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        load_settings(None, lowered)
    assert refused.value.detail == f"limits.max_message_bytes: {said}"
    most = int(said.rpartition(" ")[2])
    assert load_settings(None, {**lowered, "limits.max_message_bytes": most}).limits.max_message_bytes == most


@pytest.mark.parametrize(("name", "value"), [("http.port", -1), ("http.port", 65_536), ("broker_name", "")])
def test_an_option_is_held_to_the_same_bounds_as_the_file(name: str, value: object) -> None:
    with pytest.raises(InvalidRequest) as refused:
        load_settings(None, {name: value})
    assert refused.value.context["setting"] == name


def test_every_number_has_bounds_that_hold_its_default() -> None:
    numbers = [field for field in known_settings().values() if field.kind in (int, float)]
    assert len(numbers) > 30
    for field in numbers:
        assert field.bounds is not None, f"give {field.name} its Interval"
        assert field.bounds[0] <= field.default <= field.bounds[1]


@pytest.mark.parametrize("model", [Settings, NameServerSettings])
def test_a_setting_that_is_given_leaves_the_others_their_defaults(model: type[ProcessSettings]) -> None:
    defaults = model()
    for name, field in known_settings(model).items():
        if name != "replication.min_in_sync":  # refused beside the role that is the default
            assert load(model, None, {name: field.default}) == defaults, name


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


def test_names_of_the_file_are_written_as_they_are_and_a_list_is_a_list(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    for text, name in [
        ("[HTTP]\nport = 1\n[http]\nport = 2\n", "HTTP"),
        ('BROKER_NAME = "z"\n', "BROKER_NAME"),
        ('[http]\nallowed_hosts = "a.b"\n', "http.allowed_hosts"),
    ]:
        config.write_text(text)
        with pytest.raises(InvalidRequest, match=f"{name}:"):
            load_settings(config, {})
    config.write_text('[http]\nallowed_hosts = ["a.b"]\n')
    assert load_settings(config, {}).http.allowed_hosts == ("a.b",)


def test_a_number_of_thousands_of_digits_in_the_environment_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="LAKEMQ_HTTP_PORT: "):
        load_settings(None, {}, {"LAKEMQ_HTTP_PORT": "9" * 5000, "LAKEMQ_BROKER_NAME": "b"})


@pytest.mark.parametrize("host", ["1.2.3.4:80", "a.b:80", "face:9", "[::1]:80", "console.example.com:80"])
def test_an_allowed_host_has_no_port(host: str) -> None:
    with pytest.raises(InvalidRequest, match=r"http\.allowed_hosts: "):
        load_settings(None, {"http.allowed_hosts": (host,)})


def test_an_allowed_host_is_a_name_or_an_address() -> None:
    hosts = ("console.example.com", "10.0.0.1", "::1", "[fd00::1]", "*")
    assert load_settings(None, {"http.allowed_hosts": hosts}).http.allowed_hosts == hosts


def test_a_delay_is_at_most_what_the_store_takes() -> None:
    assert load_settings(None, {"store.delay_levels": "365d"}).store.delay_levels == "365d"
    with pytest.raises(InvalidRequest, match=r"store.delay_levels: .*365d"):
        load_settings(None, {"store.delay_levels": "366d"})


@pytest.mark.parametrize(
    ("variable", "text", "meant"),
    [
        ("LAKEMQ_LOG", "debug", ["LAKEMQ_LOG_LEVEL"]),
        ("LAKEMQ_STORE", "./x", ["LAKEMQ_STORE_PATH"]),
        ("LAKEMQ_HTTP", "8091", ["LAKEMQ_HTTP_PORT"]),
        ("LAKEMQ_LOG", "", ["LAKEMQ_LOG_LEVEL", "LAKEMQ_LOG_FORMAT"]),
    ],
)
def test_a_variable_that_is_a_tables_name_is_refused_with_what_it_may_have_meant(
    variable: str, text: str, meant: list[str]
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        load_settings(None, {}, {variable: text})
    assert refused.value.detail.startswith(f"{variable}: is no setting, ")
    for name in meant:
        assert name in refused.value.detail
    if variable == "LAKEMQ_LOG" and text:
        assert "LAKEMQ_LOG_FORMAT" not in refused.value.detail


def test_a_table_that_is_none_is_refused_also_beside_options_of_it(tmp_path: Path) -> None:
    path = written(tmp_path, "store = 'elsewhere'\n")
    for options in ({}, {"store.flush": "async"}):
        with pytest.raises(InvalidRequest, match="store: must be a table"):
            load_settings(path, options)
    with pytest.raises(InvalidRequest, match="nameservers: must be a list"):
        load_settings(written(tmp_path, "nameservers = 'http://a:1'\n"), {})


@pytest.mark.parametrize(
    "url", ["*", "http://x:0", "http://x:99999", "http://[::1:1", "https://x", "http://x"]
)
def test_what_is_no_name_server_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="nameservers"):
        load_settings(None, {"nameservers": (url,)})


def test_a_name_server_may_end_with_a_slash() -> None:
    given = load_settings(None, {"nameservers": ("http://[::1]:9876/", "https://a.b:1")}).nameservers
    assert given == ("http://[::1]:9876", "https://a.b:1")


def test_a_number_of_the_stores_has_the_stores_own_bounds() -> None:
    known = known_settings()
    for name, (least, most) in option_bounds().items():
        field = known.get(f"store.{name}") or known[f"limits.{name}"]
        assert field.bounds == (least, most), name


def test_a_certificate_and_its_key_come_together_from_everywhere(tmp_path: Path) -> None:
    path = written(tmp_path, "[tls]\ncert = 'a.pem'\nkey = 'a.key'\nca = 'ca.pem'\n")
    tls = load_settings(path, {"tls.ca": "other.pem"}, {"LAKEMQ_TLS_KEY": "b.key"}).tls
    assert (tls.cert, tls.key, tls.ca) == ("a.pem", "b.key", "other.pem")
    with pytest.raises(InvalidRequest, match=r"^ARGUMENT_ILLEGAL: tls\.key: is missing"):
        load_settings(None, {"tls.cert": "a.pem"})
    with pytest.raises(InvalidRequest, match=r"^ARGUMENT_ILLEGAL: tls\.cert: is missing"):
        load_settings(None, {}, {"LAKEMQ_TLS_KEY": "a.key"})


def test_rocketmqs_protocol_is_none_for_a_broker_with_a_certificate() -> None:
    with pytest.raises(InvalidRequest, match=r"replication\.ha_protocol: .*not encrypted"):
        load_settings(None, {"tls.cert": "a.pem", "tls.key": "a.key", "replication.ha_protocol": "rocketmq"})


def test_slaves_that_must_have_a_message_are_no_asynchronous_masters(tmp_path: Path) -> None:
    """It waits for none: who asks for one means another role, also where the one is the default."""
    said = (
        "replication.min_in_sync: is a sync-master's (--role sync-master), this broker is async-master and "
        "waits for no slave"
    )
    path = written(tmp_path, '[replication]\nrole = "async-master"\nha_port = 0\nmin_in_sync = 2\n')
    for config, given, environment in [
        (None, {"replication.min_in_sync": 1}, {}),
        (None, {"replication.ha_port": 0}, {"LAKEMQ_REPLICATION_MIN_IN_SYNC": "1"}),
        (path, {}, {}),
    ]:
        with pytest.raises(InvalidRequest) as refused:
            load_settings(config, given, environment)
        assert refused.value.detail == said
        assert refused.value.context["setting"] == "replication.min_in_sync"
    assert load_settings(path, {"replication.role": "sync-master"}).replication.min_in_sync == 2
    # It may be promoted.
    slave = {"replication.role": "slave", "replication.broker_id": 1}
    assert load_settings(path, slave).replication.min_in_sync == 2


def test_a_secret_and_a_file_of_one_are_refused_together(tmp_path: Path) -> None:
    """Of which the later source would be, nobody could see: the one would silently be passed over."""
    path = written(tmp_path, 'cluster_secret_file = "secret.txt"\n')
    with pytest.raises(InvalidRequest, match="cluster_secret: is given beside cluster_secret_file"):
        load_settings(path, {}, {"LAKEMQ_CLUSTER_SECRET": "0123456789abcdef"})
