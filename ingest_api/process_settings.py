"""The settings of every process with a front door: the broker's and the name server's.

Owns where it listens, what it logs, its certificates, the cluster's secret, and the form of a table;
settings.py has what a broker takes besides.

Invariants: an address that others reach needs ``insecure``; a certificate has its key.
"""

from __future__ import annotations

import re
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

from ha_replicator.nameserver.route_tables import HEARTBEAT_TIMEOUT_S
from ha_replicator.wire.credentials import MIN_SECRET_BYTES
from ingest_api.advertised import parsed
from ingest_api.setting_errors import illegal
from lakemq.tls.files import TlsFiles

LogFormat = Literal["plain", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

SECTION = ConfigDict(strict=True, extra="forbid")
ORIGIN = re.compile(r"https?://[A-Za-z0-9_.:\[\]-]{1,261}")
_HOST_NAME = re.compile(r"[A-Za-z0-9_.-]{1,253}")


def _split(value: Any) -> Any:
    """Reads the environment's form of a list: ``one, two``."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_split), Field(strict=False)]


class Section:
    """A table of the settings."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        """Called once by pydantic: a table becomes a section, although its values must be of their types."""
        schema = handler(source)
        handler.resolve_ref_schema(schema)["strict"] = False  # type: ignore[index]  # one of a union of tables
        return schema


@dataclass(frozen=True, slots=True, config=SECTION)
class HttpSettings(Section):
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
        return _each(origins, ORIGIN, form)


@dataclass(frozen=True, slots=True, config=SECTION)
class LogSettings(Section):
    """What the broker writes about itself.

    Attributes:
        slow_request_ms: A request slower than it gets a line.
    """

    format: LogFormat = "plain"
    level: LogLevel = "info"
    slow_request_ms: Annotated[int, Interval(ge=0, le=3_600_000)] = 1000


@dataclass(frozen=True, slots=True, config=SECTION)
class _Tls(Section, TlsFiles):
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
    def _has_one_secret(self) -> Self:
        if self.cluster_secret and self.cluster_secret_file:
            raise illegal(
                "cluster_secret",
                f"is given beside cluster_secret_file, {self.cluster_secret_file}: which counts?",
            )
        return self

    @model_validator(mode="after")
    def _has_both_files(self) -> Self:
        cert, key = self.tls.cert, self.tls.key
        if bool(cert) != bool(key):
            missing, given = ("tls.key", "tls.cert") if cert else ("tls.cert", "tls.key")
            raise illegal(missing, f"is missing: {given} is {cert or key}, and TLS needs both")
        return self


@dataclass(frozen=True, slots=True, config=SECTION)
class NameServerHttpSettings(HttpSettings):
    """Where the name server listens; otherwise as a broker's."""

    port: Annotated[int, Interval(ge=0, le=65_535)] = 9876


class NameServerSettings(ProcessSettings):
    """Everything `lakemq nameserver` takes."""

    http: NameServerHttpSettings = NameServerHttpSettings()
    heartbeat_timeout_s: Annotated[float, Interval(ge=1, le=86_400)] = HEARTBEAT_TIMEOUT_S


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
