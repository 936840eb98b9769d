"""A consumer group in a Python program: a function of DataFrames in the place of a handler.

Owns how the options of `lakemq consume` are written in Python.

Threads: `run` blocks the caller's; `stop` may be called in any.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from jobs.arguments import add_group_options, consume_settings
from jobs.frames.frame_handler import FrameFunction, FrameHandler
from store_native.errors import from_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.runtime.run_loop import RunLoop
    from jobs.settings import ConsumeSettings


class SparkGroup:
    """A consumer group whose handler is a function of DataFrames."""

    def __init__(
        self, name: str, options: Mapping[str, object], make_session: Callable[[], SparkSession]
    ) -> None:
        """Reads the options; nothing is started or asked.

        Args:
            name: the consumer group.
            options: those of `lakemq consume`, by their names in Python.
            make_session: makes or finds the Spark session.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL: an option is unknown or wrong.
        """
        parser = _Parser(prog="group", allow_abbrev=False, add_help=False)
        add_group_options(parser)
        self._args = parser.parse_args(arguments_of(options))
        self._args.group = name
        self._make_session = make_session
        self._asked = threading.Event()
        self._loop: RunLoop | None = None

    def run(self, function: FrameFunction) -> None:
        """Runs the group until it is stopped, or for as long as its options say.

        Args:
            function: takes the messages of a batch, gives the same rows with their verdicts.

        Raises:
            LakeMQError: wrong settings, a function whose frame is not of the form, a conflict about group or
                ledger, or a stream that failed.
        """
        from jobs.consume import consume

        try:
            consume(self.settings(function), self._make_session, started=self._began)
        finally:
            self._loop = None
            self._asked.clear()

    def settings(self, function: FrameFunction) -> ConsumeSettings:
        """The settings of a run.

        Raises:
            InvalidRequest: An option is wrong, or what it is given is no function.
        """
        if not callable(function):
            text = f"run takes a function of a DataFrame, not {function!r}: handlers are lakemq consume's"
            raise from_code("ARGUMENT_ILLEGAL", text)
        name = getattr(function, "__qualname__", type(function).__name__)
        return consume_settings(self._args, FrameHandler(name, function))

    def stop(self) -> None:
        """Asks the run under way to end between batches, from another thread; without one, the next.

        A function that hangs in the driver's own code (not in an action of Spark) is waited for.
        """
        self._asked.set()
        loop = self._loop  # the run may end meanwhile
        if loop is not None:
            loop.stop()

    def _began(self, loop: RunLoop) -> None:
        self._loop = loop
        if self._asked.is_set():
            loop.stop()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise from_code("ARGUMENT_ILLEGAL", f"options of the group: {message}")


def arguments_of(options: Mapping[str, object]) -> list[str]:
    """Writes options as the command line has them: `from_="earliest"` is `--from=earliest`.

    None and False are options that are not given, True is one without a value; `topic` may be several.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL: several values of another option.
    """
    written: list[str] = []
    for name, value in options.items():
        option = f"--{name.rstrip('_').replace('_', '-')}"
        values = value if isinstance(value, (list, tuple)) else [value]
        if len(values) != 1 and name != "topic":
            raise from_code("ARGUMENT_ILLEGAL", f"options of the group: {name} takes one value")
        for each in values:
            if each is True:
                written.append(option)
            elif each is not None and each is not False:
                written.append(f"{option}={each}")
    return written
