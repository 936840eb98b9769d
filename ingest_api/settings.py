"""The broker's settings: one model for the file, the environment and the command line.

Owns names, types, defaults, bounds and what the values must be together; process_settings.py has what a name
server takes too, broker/settings.py the part that the broker core takes, setting_sources.py reads.

Invariants: an unknown name, a value of the wrong type, one outside its bounds and values that do not fit
together are refused: a store that its files cannot hold or a time-out that never ends is no settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval
from pydantic import field_validator, model_validator
from pydantic.dataclasses import dataclass

from ha_replicator.nameserver.registrar import HEARTBEAT_S
from ingest_api.broker.settings import BrokerSettings, LimitSettings, ReplicationSettings, StoreSettings
from ingest_api.process_settings import ORIGIN, SECTION, ProcessSettings, Section, Texts
from ingest_api.setting_errors import illegal
from ingest_api.setting_fields import SettingField, setting_fields
from lakemq.duration import format_ms, parse_ms
from store_native.places import why_no_directory

MAX_INDEX_FILE_BYTES = (1 << 31) - 1
"""RocketMQ maps an index file with a 32-bit length: a header of 40 bytes, 4 a slot, 20 an entry."""

RECORD_OVERHEAD = 33 << 10
"""What a log file holds beside a message's body: the record's fields, its topic, 32,767 bytes of properties
at most, and the end of the file."""

MAX_DELAY_LEVELS = 64
MAX_DELAY_MS = 365 * 86_400_000
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,127}")
_HA_ADDRESS = re.compile(r"ha://[A-Za-z0-9_.:\[\]-]{1,255}:[0-9]{1,5}")
_NAME_SERVER = re.compile(r"https?://(?:[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})")
_DEFAULTS = BrokerSettings()


@dataclass(frozen=True, slots=True, config=SECTION)
class _Store(Section, StoreSettings):
    """The store's table, checked."""

    @field_validator("path")
    @classmethod
    def _is_named(cls, path: str) -> str:
        if not path:
            raise ValueError("is empty")
        if why := why_no_directory(Path(path)):
            raise ValueError(f"is no place for a store: {why}")
        return path

    @field_validator("delay_levels")
    @classmethod
    def _are_delays(cls, text: str) -> str:
        levels = text.split()
        if not 1 <= len(levels) <= MAX_DELAY_LEVELS:
            raise ValueError(f"has {len(levels)} levels, not 1 to {MAX_DELAY_LEVELS}")
        return " ".join(format_ms(_delay_ms(level)) for level in levels)  # as the store reads them


@dataclass(frozen=True, slots=True, config=SECTION)
class _Limits(Section, LimitSettings):
    """The limits' table, checked."""


@dataclass(frozen=True, slots=True, config=SECTION)
class _Replication(Section, ReplicationSettings):
    """The replication's table, checked."""

    @field_validator("master")
    @classmethod
    def _is_url(cls, master: str) -> str:
        if master and not (ORIGIN.fullmatch(master) or _HA_ADDRESS.fullmatch(master)):
            raise ValueError("is a broker's URL, as http://host:8090, or ha://host:10912")
        return master


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

    @model_validator(mode="before")
    @classmethod
    def _asks_no_slaves_of_a_role_that_waits_for_none(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Looks at what was given: the default is no wish, the same number said is one."""
        replication, default = given.get("replication"), _DEFAULTS.replication.role
        if isinstance(replication, dict) and "min_in_sync" in replication:
            role = replication.get("role", default)
            if role == "async-master":
                raise illegal(
                    "replication.min_in_sync",
                    f"is a sync-master's (--role sync-master), this broker is {role} and waits for no slave",
                )
        return given

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
            held = f"a log file of store.commitlog_file_size, {store.commitlog_file_size} bytes, takes {fits}"
            raise illegal(name, f"is {size}, and {held}: lower {name} to {fits}")
        if size > (most := limits.max_request_bytes):
            raise illegal(
                name, f"is {size}, more than limits.max_request_bytes, {most}: lower {name} to {most}"
            )
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
