"""The quick start's broker: a store of its own, sized for the flights, on a free port.

Owns its configuration file.
"""

from __future__ import annotations

from pathlib import Path

from lakemq.broker_process import BrokerProcess, NotReady
from lakemq.terminal.failure import CommandFailed

# The flights need 200 MB of log; the defaults reserve gigabytes for a store that is to grow.
_CONFIG = """\
[store]
path = "{store}"
commitlog_file_size = 268435456
consumequeue_file_entries = 300000
index_slots = 500000
index_entries = 2000000
"""


def config_of(home: Path) -> Path:
    """Returns the configuration file; ``lakemq serve --config`` starts the same broker again."""
    return home / "broker.toml"


def start(home: Path) -> BrokerProcess:
    """Starts the broker, whose context ends it, and returns when it serves.

    Args:
        home: Gets the store, the broker's configuration and its log.

    Raises:
        CommandFailed: It did not start; says why.
    """
    config_of(home).write_text(_CONFIG.format(store=_toml_text(home / "store")), encoding="utf-8")
    log = home / "broker.log"
    log.unlink(missing_ok=True)
    try:
        arguments = ["--config", str(config_of(home)), "--port", "0"]
        return BrokerProcess(arguments, log, ends_with_caller=True).wait_ready()
    except NotReady as error:
        raise CommandFailed(f"the broker did not start: {error.cause} (all of it: {log})") from error


def _toml_text(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')
