"""Finding a user's handler: `module:function`, imported on whichever process runs it.

Owns the import and what kind of handler it is; nothing of it is called here.

Invariants: a target is code the person who starts the job names, never text that came over the network.

Processes: the driver, to fail early, and each executor's Python worker.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Literal

from jobs.handler import reasons
from lakemq import own_packages, sent_files
from lakemq.handler import is_thread_safe, is_vectorised
from store_native.errors import from_code

Vectorised = Literal["auto", "yes", "no"]


@dataclass(frozen=True)
class HandlerTarget:
    """Names a handler; small and picklable, it travels to the executors.

    Attributes:
        target: `module:function`, or a class with `__call__`; a function may be dotted
            (`module:Class.method`).
        vectorised: whether it takes batches; `auto` looks at its mark or annotation.
        search_path: directories put before `sys.path`, but for what was sent, so that a module beside the
            user is found on executors too.
    """

    target: str
    vectorised: Vectorised = "auto"
    search_path: tuple[str, ...] = ()

    def load(self) -> LoadedHandler:
        """Imports the handler, once per process.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL when the text, the module or the function is wrong, or the module
                fails when it is imported.
        """
        return _load(self)


@dataclass(frozen=True)
class LoadedHandler:
    """A handler, imported.

    Attributes:
        function: the function, or the class.
        vectorised: whether it takes batches.
        thread_safe: whether several threads may call it at a time.
        is_async: whether a call is a coroutine.
    """

    function: Callable[..., Any]
    vectorised: bool
    thread_safe: bool = True
    is_async: bool = False


@cache
def _load(wanted: HandlerTarget) -> LoadedHandler:
    module_name, colon, attribute = wanted.target.partition(":")
    if not (module_name and colon and attribute):
        raise from_code("ARGUMENT_ILLEGAL", f"a handler is named module:function, not {wanted.target!r}")
    own_packages.claim()
    for directory in reversed(wanted.search_path):
        if directory not in sys.path:
            sys.path.insert(0, directory)
    sent_files.put_first()
    function: Any = _module(module_name)
    try:
        for name in attribute.split("."):
            function = getattr(function, name)
    except AttributeError as error:
        raise from_code("ARGUMENT_ILLEGAL", f"{module_name} has no {attribute!r}") from error
    if not callable(function):
        raise from_code("ARGUMENT_ILLEGAL", f"{wanted.target} is not a function")
    called = function
    if inspect.isclass(function):
        called = next((vars(base)["__call__"] for base in function.__mro__ if "__call__" in vars(base)), None)
        if called is None:
            raise from_code("ARGUMENT_ILLEGAL", f"{wanted.target} is a class without __call__")
    is_method = called is not function and not isinstance(called, staticmethod)
    _check_arguments(wanted.target, called, 2 if is_method else 1)
    takes_batches = is_vectorised(function) if wanted.vectorised == "auto" else wanted.vectorised == "yes"
    is_async = any(
        inspect.iscoroutinefunction(each)
        for each in (called, getattr(called, "__call__", None))  # noqa: B004
    )
    if is_async and takes_batches:
        raise from_code(
            "ARGUMENT_ILLEGAL", f"{wanted.target} takes batches: it cannot be a coroutine function"
        )
    return LoadedHandler(function, takes_batches, is_thread_safe(function), is_async)


def _check_arguments(target: str, called: Callable[..., Any], count: int) -> None:
    """Looks whether it can be called with one message, or one batch.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL.
    """
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return  # of C: it says so itself
    try:
        signature.bind(*(None,) * count)
    except TypeError as error:
        raise from_code(
            "ARGUMENT_ILLEGAL", f"{target} is called with one argument, a message or a batch of them: {error}"
        ) from error


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise from_code("ARGUMENT_ILLEGAL", f"there is no module {name!r} to import here") from error
        # It is there, and fails by itself, or something it imports is not there.
        calls = traceback.extract_tb(error.__traceback__)[2:]  # behind this one and importlib's
        places = [f" ({call.filename}:{call.lineno})" for call in calls if not call.filename.startswith("<")]
        what = f"{reasons.reason_text(error)}{''.join(places[-1:])}"
        raise from_code(
            "ARGUMENT_ILLEGAL", f"the handler's module {name} cannot be imported: {what}"
        ) from error
