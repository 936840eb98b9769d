"""Real RocketMQ and Kafka brokers for compatibility tests and for the bench.

Owns their configuration files, ports and processes in a directory the caller gives. A broker is ready when
it answers (RocketMQ: the name server knows it; Kafka: its admin client creates a topic), never after a
pause.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from tests.support.peer_jars import POMS, classes, jars
from tests.support.processes import LOOPBACK, ServerProcess, answers_on, free_ports

ROCKETMQ_TOOL: Final = Path(__file__).parent / "java" / "RocketTool.java"
KAFKA_LOAD: Final = POMS / "kafka" / "src" / "KafkaLoad.java"
START_TIMEOUT_S: Final = 90.0
TOOL_TIMEOUT_S: Final = 300.0
JAVA_OPTIONS: Final = "LAKEMQ_PEER_JAVA_OPTIONS"
_OPENS: Final = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.nio", "sun.nio.ch", "jdk.internal.ref")
)
"""What RocketMQ 4 reaches into to unmap a file: without it a stop breaks off on a Java of today."""
_REGISTER_BROKER: Final = 103
_CLUSTER_INFO: Final = 106

Row = dict[str, Any]


class ToolFailed(RuntimeError):
    """A Java tool ended with an error; the text is the end of its output."""


def run_java(class_path: str, main: str, *arguments: str, heap: str = "512m", home: Path) -> list[Row]:
    """Runs a Java tool to its end and returns the JSON objects it printed.

    Args:
        class_path: what `classes()` returned.
        main: the class to run.
        arguments: its arguments.
        heap: its largest heap.
        home: where RocketMQ's and Kafka's own log files go.

    Raises:
        ToolFailed: its exit code was not 0.
    """
    command = ["java", *_options(), f"-Xmx{heap}", f"-Duser.home={home}", "-cp", class_path, main, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise ToolFailed(f"{main} {' '.join(arguments[:1])}: {(done.stdout + done.stderr)[-3000:]}")
    # RocketMQ's client prints its logging set-up to stdout; a result is a line that is an object.
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


class RocketMQ:
    """A RocketMQ name server and one broker on free loopback ports.

    Args:
        directory: for configuration, logs and, unless `store` is given, the store.
        store: the store directory the broker opens (it writes to it: pass a copy).
        commitlog_file_size: mappedFileSizeCommitLog; RocketMQ opens only files of this size.
        settings: further lines of broker.conf.
        heap: of the broker.
        name_server_of: has the name server that this broker registers with, too; None starts one.
    """

    def __init__(
        self,
        directory: Path,
        *,
        store: Path | None = None,
        commitlog_file_size: int = 16 << 20,
        settings: Mapping[str, str | int | bool] | None = None,
        heap: str = "512m",
        name_server_of: RocketMQ | None = None,
    ) -> None:
        self.directory = directory
        self._name_server_of = name_server_of
        self.store = store or directory / "store"
        self._heap = heap
        self._settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerIP1": LOOPBACK,
            "storePathRootDir": self.store,
            "mappedFileSizeCommitLog": commitlog_file_size,
            "autoCreateTopicEnable": "true",
            # The disk of the machine under test is not the test's business.
            "fileReservedTime": 720,
            "diskMaxUsedSpaceRatio": 95,
            **(settings or {}),
        }
        self._name_server: ServerProcess | None = None
        self._broker: ServerProcess | None = None
        self.name_server_port = 0
        self.ha_port = 0
        (directory / "conf").mkdir(parents=True, exist_ok=True)
        for part in ("namesrv", "broker"):  # RocketMQ 4 does not start without
            (directory / "conf" / f"logback_{part}.xml").write_text("<configuration/>\n")

    @property
    def name_server(self) -> str:
        """Returns the name server's address, host:port."""
        return f"{LOOPBACK}:{self.name_server_port}"

    @property
    def pid(self) -> int:
        """Returns the broker's process id."""
        return self._require_broker().pid

    def start_name_server(self) -> None:
        """Starts the name server, unless it runs or is another's; returns when it takes connections."""
        if self._name_server_of is not None:
            self.name_server_port = self._name_server_of.name_server_port
        elif self._name_server is None:
            self.name_server_port = free_ports()
            configuration = self._write("namesrv.conf", {"listenPort": self.name_server_port})
            main = "org.apache.rocketmq.namesrv.NamesrvStartup"
            self._name_server = self._java("namesrv", main, configuration, "128m")
            self._name_server.wait_until(lambda: answers_on(self.name_server_port), START_TIMEOUT_S)

    @contextmanager
    def registered_master(self, ha_port: int) -> Iterator[None]:
        """Tells the name server of a master that takes slaves on a loopback port, as long as this lasts.

        RocketMQ's slaves find their master there (5.3.3 forgets the setting haMasterAddress).
        """
        self.start_name_server()
        fields = {
            "brokerName": self._settings["brokerName"],
            "brokerAddr": f"{LOOPBACK}:{free_ports()}",
            "clusterName": self._settings["brokerClusterName"],
            "haServerAddr": f"{LOOPBACK}:{ha_port}",
            "brokerId": "0",
            "compressed": "false",
            "bodyCrc32": "0",
        }
        with socket.create_connection((LOOPBACK, self.name_server_port), timeout=10) as connection:
            connection.sendall(_remoting_frame(_REGISTER_BROKER, fields))
            with connection.makefile("rb") as answer:
                (size,) = struct.unpack(">i", answer.read(4))
                said = answer.read(size)
            assert b'"code":0' in said, said
            yield

    def start(self) -> Self:
        """Starts the name server, once, and the broker; returns when the broker is registered."""
        self.start_name_server()
        port = free_ports(0, -2, 1)
        self.ha_port = port + 1
        ports = {"namesrvAddr": self.name_server, "listenPort": port, "haListenPort": port + 1}
        configuration = self._write("broker.conf", {**self._settings, **ports})
        main = "org.apache.rocketmq.broker.BrokerStartup"
        self._broker = self._java("broker", main, configuration, self._heap)
        address = f"{LOOPBACK}:{port}"
        self._broker.wait_until(lambda: address in self._registered() and answers_on(port), START_TIMEOUT_S)
        return self

    def stop_broker(self) -> None:
        """Stops the broker gracefully; the name server stays."""
        self._require_broker().stop()

    def kill_broker(self) -> None:
        """Sends SIGKILL to the broker."""
        self._require_broker().kill()

    def stop(self) -> None:
        """Stops the broker gracefully; kills the name server, which keeps nothing and takes seconds to go."""
        if self._broker is not None:
            self._broker.stop()
        if self._name_server is not None:
            self._name_server.kill()
        self._broker = self._name_server = None

    def tool(self, command: str, **options: str | int) -> list[Row]:
        """Runs tests/support/java/RocketTool.java against this broker and returns its rows."""
        arguments = [command, "--namesrv", self.name_server]
        for name, value in options.items():
            arguments += [f"--{name.replace('_', '-')}", str(value)]
        path = classes(ROCKETMQ_TOOL, "rocketmq")
        return run_java(path, "RocketTool", *arguments, home=self.directory)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _require_broker(self) -> ServerProcess:
        if self._broker is None:
            raise RuntimeError("the broker was not started")
        return self._broker

    def _registered(self) -> str:
        """Asks the name server for its cluster table; empty when it does not answer."""
        frame = _remoting_frame(_CLUSTER_INFO, {})
        try:
            with socket.create_connection((LOOPBACK, self.name_server_port), timeout=2) as connection:
                connection.sendall(frame)
                with connection.makefile("rb") as answer:
                    (size,) = struct.unpack(">i", answer.read(4))
                    return answer.read(size).decode(errors="replace")
        except (OSError, struct.error):
            return ""

    def _write(self, name: str, values: Mapping[str, object]) -> Path:
        path = self.directory / name
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        return path

    def _java(self, name: str, main: str, configuration: Path, heap: str) -> ServerProcess:
        command = [
            "java",
            *_options(),
            *_OPENS,
            f"-Xms{heap}",
            f"-Xmx{heap}",
            f"-Duser.home={self.directory}",
            "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
            "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
            "-cp",
            str(jars("rocketmq") / "*"),
            main,
            "-c",
            str(configuration),
        ]
        return ServerProcess(command, self.directory / f"{name}.log", {"ROCKETMQ_HOME": str(self.directory)})


def _options() -> list[str]:
    """Options of the JVM that the environment gives: those of tests, which live for seconds."""
    return os.environ.get(JAVA_OPTIONS, "").split()


def _remoting_frame(code: int, fields: Mapping[str, object]) -> bytes:
    """A request of RocketMQ's remoting protocol, its header in JSON, without a body."""
    header = json.dumps(
        {"code": code, "language": "OTHER", "version": 0, "opaque": 1, "flag": 0, "extFields": fields}
    ).encode()
    return struct.pack(">ii", 4 + len(header), len(header)) + header


class Kafka:
    """One Kafka node (broker and controller) on free loopback ports.

    Args:
        directory: for configuration, logs and data.
        settings: further lines of server.properties, e.g. log.flush.interval.messages=1.
        heap: of the node.
    """

    def __init__(
        self, directory: Path, *, settings: Mapping[str, str | int] | None = None, heap: str = "1g"
    ) -> None:
        self.directory = directory
        self._settings = dict(settings or {})
        self._heap = heap
        self._node: ServerProcess | None = None
        self.port = 0
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        """Returns the address clients connect to."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        """Returns the node's process id."""
        if self._node is None:
            raise RuntimeError("the node was not started")
        return self._node.pid

    def start(self) -> Self:
        """Formats the data directory the first time, starts the node, returns when it takes connections."""
        self.port = free_ports()
        controller = free_ports()
        data = self.directory / "data"
        values: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self.port},CONTROLLER://{LOOPBACK}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": data,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **self._settings,
        }
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        path = str(jars("kafka") / "*")
        if not data.exists():
            cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22]
            arguments = ["format", f"--cluster-id={cluster}", "-c", str(properties)]
            run_java(path, "kafka.tools.StorageTool", *arguments, home=self.directory)
        command = [
            "java",
            *_options(),
            f"-Xms{self._heap}",
            f"-Xmx{self._heap}",
            "-cp",
            path,
            "kafka.Kafka",
            str(properties),
        ]
        self._node = ServerProcess(command, self.directory / "kafka.log")
        self._node.wait_until(lambda: answers_on(self.port), START_TIMEOUT_S)
        return self

    def stop(self) -> None:
        """Stops the node."""
        if self._node is not None:
            self._node.stop()
            self._node = None

    def load(self, command: str, **options: str | int) -> list[Row]:
        """Runs benchmarks/peers/kafka/src/KafkaLoad.java against this node and returns its rows."""
        arguments = [command, "--bootstrap", self.bootstrap]
        for name, value in options.items():
            arguments += [f"--{name.replace('_', '-')}", str(value)]
        return run_java(classes(KAFKA_LOAD, "kafka"), "KafkaLoad", *arguments, home=self.directory)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def java_version() -> str:
    """Returns the first line of `java -version`."""
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True, env=os.environ)
    return done.stderr.splitlines()[0]
