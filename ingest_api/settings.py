"""The broker's settings, parsed once from defaults, a TOML file, the environment and the command line.

Owns names, types and defaults; setting_bounds.py has what a value may be.

Invariants: an unknown name or a value of the wrong type is refused with its full name, so a typing error
never means a silent default.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from ingest_api import setting_bounds
from ingest_api.broker.settings import BrokerSettings, LimitSettings, StoreSettings
from ingest_api.setting_bounds import illegal as _illegal
from ingest_api.setting_environment import read_environment

LogFormat = Literal["plain", "json"]
Section = TypeVar("Section")


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where the broker listens.

    Attributes:
        host: An address that is not loopback needs ``insecure`` until requests are authenticated.
        port: 0 takes a free one.
        keep_alive_s: An idle connection is closed after it.
        stop_timeout_s: What is in flight at a stop gets this long to finish.
        max_connections: Further ones are refused; at most what the limit of open files leaves.
        max_pipelined: Requests of a connection that wait behind an earlier one.
        max_target_bytes: Of a request's path and query string.
        max_header_bytes: Of a request's head, names and values together; also of what a chunked body has
            besides its bytes (extensions, trailers) in one piece.
        max_headers: Their number.
        head_timeout_s: A head must have arrived within it.
        write_timeout_s: A client that does not read 64 KiB of its answer in it, or the rest, is cut off.
        allowed_hosts: Names, besides those of loopback and ``host``, by which requests may reach the
            broker; ``*`` allows any, and with it pages that make a name of their own lead here.
        allowed_origins: Pages of these origins (``https://console.example.com``) may use the broker from
            a browser; ``*`` allows all.
    """

    host: str = "127.0.0.1"
    port: int = 8090
    insecure: bool = False
    keep_alive_s: int = 75
    stop_timeout_s: int = 10
    max_connections: int = 10_000
    max_pipelined: int = 128
    max_target_bytes: int = 16 << 10
    max_header_bytes: int = 64 << 10
    max_headers: int = 256
    head_timeout_s: float = 10.0
    write_timeout_s: float = 30.0
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What the broker writes about itself.

    Attributes:
        slow_request_ms: A request slower than it gets a line.
    """

    format: LogFormat = "plain"
    level: Literal["debug", "info", "warning", "error"] = "info"
    slow_request_ms: int = 1000


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything `lakemq serve` can be told."""

    broker_name: str = "broker-a"
    cluster: str = "DefaultCluster"
    http: HttpSettings = field(default_factory=HttpSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    log: LogSettings = field(default_factory=LogSettings)

    @property
    def broker(self) -> BrokerSettings:
        """What the broker core needs of them; the rest is the front door's and the process's."""
        return BrokerSettings(self.broker_name, self.cluster, self.store, self.limits)

    def checked(self) -> Settings:
        """Returns itself when the values fit together.

        Raises:
            InvalidRequest: They do not; the detail says which and why.
        """
        if not self.http.insecure and not _is_loopback(self.http.host):
            raise _illegal(
                "http.host",
                f"{self.http.host} can be reached from other machines and requests are not authenticated "
                "yet; listen on 127.0.0.1, or accept it with --insecure",
            )
        setting_bounds.check(self)
        return self


def load_settings(
    config: Path | None, overrides: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> Settings:
    """Builds the settings: defaults, then the file, then the environment, then the command line.

    Args:
        config: A TOML file with the tables ``[http]``, ``[store]``, ``[limits]``, ``[log]``, or None.
        overrides: Dotted names (``http.port``) to values; None counts as not given.
        environment: Variables such as ``LAKEMQ_HTTP_PORT``; None means there are none.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL with the name in question.
    """
    settings = Settings()
    if config is not None:
        settings = _merge(settings, _read(config), "")
    settings = _merge(settings, read_environment(settings, environment or {}), "")
    tree: dict[str, Any] = {}
    for dotted, value in overrides.items():
        if value is None:
            continue
        section, _, name = dotted.rpartition(".")
        (tree.setdefault(section, {}) if section else tree)[name] = value
    return _merge(settings, tree, "").checked()


def _read(config: Path) -> dict[str, Any]:
    try:
        with config.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise _illegal("--config", f"cannot read {config}: {error.strerror}") from error
    except (RecursionError, ValueError) as error:  # TOMLDecodeError, not UTF-8, a number of too many digits
        raise _illegal("--config", f"{config} is not TOML: {error}") from error


def _merge(section: Section, values: Mapping[str, Any], prefix: str) -> Section:
    known = get_type_hints(type(section))
    changed: dict[str, Any] = {}
    for name, value in values.items():
        full = f"{prefix}{name}"
        if name not in known:
            raise _illegal(full, f"no such setting; known here: {', '.join(sorted(known))}")
        current = getattr(section, name)
        if is_dataclass(current):
            if not isinstance(value, Mapping):
                raise _illegal(full, "must be a table")
            changed[name] = _merge(current, value, f"{full}.")
        else:
            changed[name] = _typed(value, known[name], full)
    return replace(section, **changed)  # type: ignore[type-var]  # every section is a dataclass


def _typed(value: Any, wanted: Any, full: str) -> Any:
    if get_origin(wanted) is Literal:
        if value not in get_args(wanted):
            raise _illegal(full, f"must be one of {', '.join(get_args(wanted))}")
        return value
    if get_origin(wanted) is tuple:
        if not isinstance(value, (list, tuple)) or any(type(entry) is not str for entry in value):
            raise _illegal(full, "must be a list of text")
        return tuple(value)
    if wanted is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise _illegal(full, "has too many digits") from None
    if type(value) is not wanted:  # not isinstance: true is no number here
        raise _illegal(full, f"must be {wanted.__name__}, is {type(value).__name__}")
    return value


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
