"""Texts a handler gave, made fit for the ledger.

Owns what is stored of an exception or of a verdict's reason. Pure.

Invariants: making the text never raises, whatever the object's own methods do, and the text is Unicode that
every reader of the table takes, of a bounded length.
"""

from __future__ import annotations

import traceback

MAX_REASON = 2_000
MAX_ERROR_TYPE = 200
MAX_ERROR_TEXT = 2_000
MAX_ERROR_TRACE = 8_000

_NAME_OF_TYPE = type.__dict__["__name__"]


def reason_text(reason: object) -> str | None:
    """The reason of a verdict: a text, an exception or any object; None stays None."""
    if reason is None:
        return None
    if isinstance(reason, BaseException):
        text = error_text(reason)
        return _storable(f"{error_type(reason)}: {text}" if text else error_type(reason), MAX_REASON)
    return _text_of(reason, MAX_REASON)


def error_type(error: BaseException) -> str:
    """The name of an exception's class."""
    return _class_name(error)


def error_text(error: BaseException) -> str:
    """What an exception says."""
    return _text_of(error, MAX_ERROR_TEXT)


def error_trace(error: BaseException) -> str:
    """Its traceback; of a long one the end, where the handler's own frames and the error are."""
    try:
        lines = "".join(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001 - it runs the exception's own __str__, __cause__ and __notes__
        return f"{error_type(error)}: its traceback cannot be shown"
    return _storable(lines[-MAX_ERROR_TRACE:], MAX_ERROR_TRACE)


def _text_of(value: object, longest: int) -> str:
    try:
        # An exact str: a subclass may bring its own slicing and encoding.
        text = str.__str__(value) if isinstance(value, str) else str(value)
    except BaseException:  # noqa: BLE001  (foreign code: whatever it raises, the message has its verdict)
        return f"<{_class_name(value)} whose text cannot be made>"
    return _storable(text, longest)


def _class_name(value: object) -> str:
    """The name the class was made with, past a metaclass with a __name__ of its own."""
    return _storable(_NAME_OF_TYPE.__get__(type(value)), MAX_ERROR_TYPE)


def _storable(text: str, longest: int) -> str:
    """Cuts a text and replaces lone surrogates, which no UTF-8 column can hold."""
    return str.encode(str.__getitem__(text, slice(longest)), "utf-8", "replace").decode("utf-8")
