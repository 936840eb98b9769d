"""The broker's settings: one model for the file, the environment and the command line.

Owns names, types, defaults, bounds and what the values must be together; broker/settings.py has the part
that the broker core takes, setting_sources.py reads.

Invariants: an unknown name, a value of the wrong type, one outside its bounds and values that do not fit
together are refused: a store that its files cannot hold or a time-out that never ends is no settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from annotated_types import Interval
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic_core import CoreSchema
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from ha_replicator.nameserver.registrar import HEARTBEAT_S
from ha_replicator.nameserver.route_tables import HEARTBEAT_TIMEOUT_S
from ha_replicator.wire.credentials import MIN_SECRET_BYTES
from ingest_api.advertised import parsed
from ingest_api.broker.settings import BrokerSettings, LimitSettings, ReplicationSettings, StoreSettings
from ingest_api.setting_errors import illegal
from ingest_api.setting_fields import SettingField, setting_fields
from lakemq.duration import format_ms, parse_ms
from lakemq.tls.files import TlsFiles

LogFormat = Literal["plain", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

MAX_INDEX_FILE_BYTES = (1 << 31) - 1
"""RocketMQ maps an index file with a 32-bit length: a header of 40 bytes, 4 a slot, 20 an entry."""

RECORD_OVERHEAD = 33 << 10
"""What a log file holds beside a message's body: the record's fields, its topic, 32,767 bytes of properties
at most, and the end of the file."""

MAX_DELAY_LEVELS = 64
MAX_DELAY_MS = 365 * 86_400_000
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,127}")
_HOST_NAME = re.compile(r"[A-Za-z0-9_.-]{1,253}")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9_.:\[\]-]{1,261}")
_HA_ADDRESS = re.compile(r"ha://[A-Za-z0-9_.:\[\]-]{1,255}:[0-9]{1,5}")
_NAME_SERVER = re.compile(r"https?://(?:[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})")
_DEFAULTS = BrokerSettings()
_SECTION = ConfigDict(strict=True, extra="forbid")


def _split(value: Any) -> Any:
    """Reads the environment's form of a list: ``one, two``."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_split), Field(strict=False)]


class _Section:
    """A table of the settings."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        """Called once by pydantic: a table becomes a section, although its values must be of their types."""
        schema = handler(source)
        handler.resolve_ref_schema(schema)["strict"] = False  # type: ignore[index]  # one of a union of tables
        return schema


@dataclass(frozen=True, slots=True, config=_SECTION)
class HttpSettings(_Section):
    """Where the broker listens.

    Attributes:
        host: An address that is not loopback needs ``insecure`` until requests are authenticated.
        port: 0 takes a free one.
        advertised_address: Where others reach the broker, ``host`` or ``host:port``: what routes say. Empty
            is ``host``, and for a wildcard this machine's IPv4 address, else its name.
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
        allowed_hosts: Names, besides those of loopback, ``host`` and ``advertised_address``, by which
            requests may reach the broker; ``*`` allows any, and with it pages that make a name of their own
            lead here.
        allowed_origins: Pages of these origins (``https://console.example.com``) may use the broker from
            a browser; ``*`` allows all.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Interval(ge=0, le=65_535)] = 8090
    advertised_address: str = ""
    insecure: bool = False
    keep_alive_s: Annotated[int, Interval(ge=1, le=3_600)] = 75
    stop_timeout_s: Annotated[int, Interval(ge=1, le=3_600)] = 10
    max_connections: Annotated[int, Interval(ge=1, le=1_000_000)] = 10_000
    max_pipelined: Annotated[int, Interval(ge=1, le=10_000)] = 128
    max_target_bytes: Annotated[int, Interval(ge=256, le=64 << 10)] = 16 << 10
    max_header_bytes: Annotated[int, Interval(ge=1 << 10, le=1 << 20)] = 64 << 10
    max_headers: Annotated[int, Interval(ge=8, le=10_000)] = 256
    head_timeout_s: Annotated[float, Interval(ge=0.05, le=3_600)] = 10.0
    write_timeout_s: Annotated[float, Interval(ge=0.05, le=3_600)] = 30.0
    allowed_hosts: Texts = ()
    allowed_origins: Texts = ()

    @field_validator("advertised_address")
    @classmethod
    def _is_a_place(cls, place: str) -> str:
        if place:
            parsed(place)
        return place

    @field_validator("allowed_hosts")
    @classmethod
    def _are_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        named = tuple(host for host in hosts if not _is_address(host))
        _each(named, _HOST_NAME, "a name or an address, without a port")
        return hosts

    @field_validator("allowed_origins")
    @classmethod
    def _are_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        form = "scheme and host, with a port if it is not the scheme's: https://console.example.com"
        return _each(origins, _ORIGIN, form)


@dataclass(frozen=True, slots=True, config=_SECTION)
class LogSettings(_Section):
    """What the broker writes about itself.

    Attributes:
        slow_request_ms: A request slower than it gets a line.
    """

    format: LogFormat = "plain"
    level: LogLevel = "info"
    slow_request_ms: Annotated[int, Interval(ge=0, le=3_600_000)] = 1000


@dataclass(frozen=True, slots=True, config=_SECTION)
class _Store(_Section, StoreSettings):
    """The store's table, checked."""

    @field_validator("path")
    @classmethod
    def _is_named(cls, path: str) -> str:
        if not path:
            raise ValueError("is empty")
        return path

    @field_validator("delay_levels")
    @classmethod
    def _are_delays(cls, text: str) -> str:
        levels = text.split()
        if not 1 <= len(levels) <= MAX_DELAY_LEVELS:
            raise ValueError(f"has {len(levels)} levels, not 1 to {MAX_DELAY_LEVELS}")
        return " ".join(format_ms(_delay_ms(level)) for level in levels)  # as the store reads them


@dataclass(frozen=True, slots=True, config=_SECTION)
class _Limits(_Section, LimitSettings):
    """The limits' table, checked."""


@dataclass(frozen=True, slots=True, config=_SECTION)
class _Replication(_Section, ReplicationSettings):
    """The replication's table, checked."""

    @field_validator("master")
    @classmethod
    def _is_url(cls, master: str) -> str:
        if master and not (_ORIGIN.fullmatch(master) or _HA_ADDRESS.fullmatch(master)):
            raise ValueError("is a broker's URL, as http://host:8090, or ha://host:10912")
        return master


@dataclass(frozen=True, slots=True, config=_SECTION)
class _Tls(_Section, TlsFiles):
    """The table of certificates, checked."""


class ProcessSettings(BaseSettings):
    """What every process with a front door takes.

    Raises:
        ValidationError: A value is wrong by itself.
        InvalidRequest: The values do not fit together; the detail says which and why.
    """

    model_config = SettingsConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        env_prefix="LAKEMQ_",
        env_nested_delimiter="_",
        env_nested_max_split=1,
        enable_decoding=False,
    )

    cluster_secret: str = ""
    cluster_secret_file: str = ""
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()
    tls: _Tls = _Tls()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Called at each construction: what is built by hand takes nothing from the environment."""
        return (init_settings,)

    def secret(self) -> bytes | None:
        """Reads the cluster's secret; None without one.

        Raises:
            InvalidRequest: The file cannot be read, or the secret is too short.
        """
        name, secret = "cluster_secret", self.cluster_secret.encode()
        if self.cluster_secret_file:
            name = "cluster_secret_file"
            try:
                secret = Path(self.cluster_secret_file).read_bytes().strip()
            except OSError as error:
                raise illegal(name, f"cannot be read: {error.strerror or error}") from error
        elif not secret:
            return None
        if len(secret) < MIN_SECRET_BYTES:
            raise illegal(name, f"has {len(secret)} bytes, at least {MIN_SECRET_BYTES} are a secret")
        return secret

    @model_validator(mode="after")
    def _listens_where_it_may(self) -> Self:
        http = self.http
        if not http.insecure and not _is_loopback(http.host):
            raise illegal(
                "http.host",
                f"{http.host} can be reached from other machines and requests are not authenticated "
                "yet; listen on 127.0.0.1, or accept it with --insecure",
            )
        return self

    @model_validator(mode="after")
    def _has_both_files(self) -> Self:
        cert, key = self.tls.cert, self.tls.key
        if bool(cert) != bool(key):
            missing, given = ("tls.key", "tls.cert") if cert else ("tls.cert", "tls.key")
            raise illegal(missing, f"is missing: {given} is {cert or key}, and TLS needs both")
        return self


class NameServerSettings(ProcessSettings):
    """Everything `lakemq nameserver` takes."""

    http: HttpSettings = HttpSettings(port=9876)
    heartbeat_timeout_s: Annotated[float, Interval(ge=1, le=86_400)] = HEARTBEAT_TIMEOUT_S


class Settings(ProcessSettings):
    """Everything `lakemq serve` takes."""

    broker_name: str = _DEFAULTS.broker_name
    cluster: str = _DEFAULTS.cluster
    nameservers: Texts = ()
    nameserver_heartbeat_s: Annotated[float, Interval(ge=1, le=60)] = HEARTBEAT_S
    store: _Store = _Store()
    limits: _Limits = _Limits()
    replication: _Replication = _Replication()

    @property
    def broker(self) -> BrokerSettings:
        """What the broker core needs of them; the rest is the front door's and the process's."""
        return BrokerSettings(
            self.broker_name,
            self.cluster,
            self.store,
            self.limits,
            self.replication,
            self.secret(),
            self.nameservers,
            self.nameserver_heartbeat_s,
            self.tls,
        )

    @field_validator("broker_name", "cluster")
    @classmethod
    def _is_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError("has 1 to 127 letters, digits, hyphens and underscores")
        return name

    @field_validator("nameservers")
    @classmethod
    def _are_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        bare = tuple(url.removesuffix("/") for url in urls)
        for url in bare:
            found = _NAME_SERVER.fullmatch(url)
            if found is None or not 0 < int(found[1]) < 1 << 16:
                raise ValueError(
                    f"{url!r} is none; a name server's URL is http://host:9876, or https://host:9876"
                )
        return bare

    @model_validator(mode="after")
    def _fit_together(self) -> Settings:
        store, limits = self.store, self.limits
        if 40 + 4 * store.index_slots + 20 * store.index_entries > MAX_INDEX_FILE_BYTES:
            raise illegal(
                "store.index_entries",
                "40 + 4 x index_slots + 20 x index_entries bytes are a file's, at most "
                f"{MAX_INDEX_FILE_BYTES}",
            )
        name, size = "limits.max_message_bytes", limits.max_message_bytes
        fits = store.commitlog_file_size - RECORD_OVERHEAD
        if size > fits:
            raise illegal(name, f"is {size}, a log file of store.commitlog_file_size bytes takes {fits}")
        if size > limits.max_request_bytes:
            raise illegal(name, f"is more than limits.max_request_bytes, {limits.max_request_bytes}")
        replication = self.replication
        if (replication.role == "slave") == (replication.broker_id == 0):
            raise illegal(
                "replication.broker_id", f"is {replication.broker_id}: 0 is the master's, slaves have others"
            )
        if replication.master and replication.role != "slave":
            raise illegal("replication.master", f"is a slave's, this broker is {replication.role}")
        if replication.ha_protocol == "rocketmq" and replication.role == "sync-master":
            raise illegal(
                "replication.ha_protocol", "RocketMQ's proves nothing, a synchronous master cannot rely on it"
            )
        if replication.ha_protocol == "rocketmq" and self.tls.cert:
            raise illegal(
                "replication.ha_protocol",
                "RocketMQ's is not encrypted, a broker with tls.cert does not speak it",
            )
        if replication.ha_protocol == "rocketmq" and replication.master.startswith("http"):
            raise illegal("replication.master", "a RocketMQ master is named by ha://host:port")
        if replication.role == "sync-master" and replication.ha_port < 0:
            raise illegal("replication.ha_port", "a synchronous master needs a port for its slaves")
        return self


@cache
def known_settings(model: type[ProcessSettings] = Settings) -> Mapping[str, SettingField]:
    """Returns every setting of a process by its name."""
    return setting_fields(model())


def _delay_ms(level: str) -> int:
    try:
        delay_ms = parse_ms(level)
    except ValueError:
        delay_ms = 0
    if not 0 < delay_ms <= MAX_DELAY_MS or delay_ms % 1_000:
        raise ValueError(f"{level!r} is no delay of whole seconds such as 10s, 5m, 2h or 1d, up to 365d")
    return delay_ms


def _each(values: tuple[str, ...], form: re.Pattern[str], meaning: str) -> tuple[str, ...]:
    for value in values:
        if value != "*" and not form.fullmatch(value):
            raise ValueError(f"{value!r} is none; {meaning}")
    return values


def _is_address(host: str) -> bool:
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        ip_address(bare)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
