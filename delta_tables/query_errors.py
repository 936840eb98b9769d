"""What is wrong with a statement, for the person who wrote it.

Owns the reading of the engine's errors, which are text: names that are not there become those that are, with
the nearest; a mistake in the syntax gets its place; what the engine puts around a reason is left out.

Invariants: one sentence, always; a text of the engine that is not known here is shown by its first line.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable

from delta_tables.views import TABLES, VIEWS

_SYNTAX = re.compile(r'(?:Parser|Tokenizer)Error\("(.*?)(?: at Line: (\d+), Column: (\d+))?"\)', re.DOTALL)
_NO_TABLE = re.compile(r"\btable '(?:datafusion\.public\.)?(.+)' not found")
_NO_TABLE_FUNCTION = re.compile(r"table function '(.+)' not found")
_NO_COLUMN = re.compile(r"No field named (.+?)\.(?: Did you mean|\n|$)")
_COLUMNS = re.compile(r"Valid fields are (.*?)\.?$", re.MULTILINE)
_NO_FUNCTION = re.compile(r"Invalid function '(.+?)'")
_AMBIGUOUS = re.compile(r"Ambiguous reference to unqualified field (\S+)")
_NO_SIGNATURE = re.compile(r"No function matches the given name and argument types '(.+?)'")
_NO_COMPARISON = re.compile(
    r"Cannot infer common argument type for comparison operation (.+)"
    r"|There isn't a common type to coerce (.+?) in (?:I?LIKE) expression"
)
_NO_NUMBER = re.compile(r"Cannot cast string '(.*?)' to value of (\w+) type", re.DOTALL)
_AROUND = re.compile(
    r"\s*(?:(?:Optimizer rule '[^']*' failed|type_coercion)\s+caused by\s+"
    r"|(?:Error during planning|(?:External|Arrow|Execution|Schema|SQL|Internal|Cast) error): )"
)
_TYPES = {
    "Utf8View": "STRING",
    "LargeUtf8": "STRING",
    "Utf8": "STRING",
    "BinaryView": "BINARY",
    "Int32": "INT",
    "Int64": "BIGINT",
    "Float64": "DOUBLE",
}
_TYPE = re.compile(rf"\b(?:{'|'.join(_TYPES)})\b")
_FUNCTIONS = ("count", "sum", "min", "max", "avg", "coalesce", "lower", "upper", "length", "substr", "now")
_NOTHING_NEAR = ";"
_NEAR = 30
"""So many characters of the statement show where it is wrong."""


def explained(error: BaseException, text: str) -> str:
    """Says what is wrong with a statement.

    Args:
        error: The engine's.
        text: The statement.
    """
    said = str(error)
    for known, explain in _KNOWN:
        if found := known.search(said):
            return _plain_types(explain(found, text))
    bare = said
    while around := _AROUND.match(bare):
        bare = bare[around.end() :]
    first = next((line.strip() for line in bare.splitlines() if line.strip()), type(error).__name__)
    return _plain_types(first)


def _syntax(found: re.Match[str], text: str) -> str:
    reason, line, column = found[1].replace('\\"', '"').replace("\\\\", "\\"), found[2], found[3]
    reason = reason.rstrip(".").replace("Expected: ", "expected ").replace("found: ", "found ")
    reason = reason[:1].lower() + reason[1:]
    if line is None:
        return f"the SQL is wrong at its end: {reason.removesuffix(', found EOF')}"
    lines = text.split("\n")
    rest = lines[int(line) - 1][int(column) - 1 :] if int(line) <= len(lines) else ""
    near = f", near {rest.strip()[:_NEAR]!r}" if rest.strip() else ""
    return f"the SQL is wrong at line {line}, column {column}{near}: {reason}"


def _no_table(found: re.Match[str], text: str) -> str:
    tables = [table.name for table in TABLES]
    return (
        f"there is no table {found[1]}{_nearest(found[1], [*tables, *VIEWS])} "
        f"tables: {', '.join(tables)}; views: {', '.join(VIEWS)}"
    )


def _no_column(found: re.Match[str], text: str) -> str:
    listed = _COLUMNS.search(found.string)
    columns = list(dict.fromkeys(listed[1].split(", "))) if listed and listed[1] else []
    if len({column.rpartition(".")[0] for column in columns}) == 1:
        columns = [column.rpartition(".")[2] for column in columns]
    asked = found[1].replace('"', "").rpartition(".")[2]
    near = _nearest(asked, [column.rpartition(".")[2] for column in columns])
    if near == _NOTHING_NEAR and (others := [table.name for table in TABLES if asked in table.column_names]):
        near = f"; {', '.join(others)} {'has' if len(others) == 1 else 'have'} one;"
    there = f" columns here: {', '.join(columns)}" if columns else ""
    return f"there is no column {found[1]}{near}{there}"


def _no_comparison(found: re.Match[str], text: str) -> str:
    what = found[1] or found[2]
    if "List(" in what:
        return (
            "a list is compared with a text: array_contains(keys, 'k') finds k in a list; "
            "in the view delivery_history keys is a text"
        )
    return f"values of these types are not compared: {what.splitlines()[0]}"


def _no_function(found: re.Match[str], text: str) -> str:
    return f"there is no function {found[1]}{_nearest(found[1], _FUNCTIONS)}".removesuffix(";")


def _nearest(name: str, names: list[str] | tuple[str, ...]) -> str:
    """Asks about the name that is written most alike, or nothing where none is."""
    near = difflib.get_close_matches(name.lower(), names, n=1)
    return f"; did you mean {near[0]}?" if near else _NOTHING_NEAR


def _plain_types(text: str) -> str:
    return _TYPE.sub(lambda found: _TYPES[found[0]], text)


_KNOWN: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], str], str]], ...] = (
    (_SYNTAX, _syntax),
    (_NO_TABLE, _no_table),
    (_NO_TABLE_FUNCTION, lambda found, text: f"there is no table function {found[1]}"),
    (_NO_COLUMN, _no_column),
    (_NO_FUNCTION, _no_function),
    (_AMBIGUOUS, lambda found, text: f"several tables here have a column {found[1]}: write TABLE.{found[1]}"),
    (_NO_SIGNATURE, lambda found, text: f"no function takes these values: {found[1]}"),
    (_NO_COMPARISON, _no_comparison),
    (
        _NO_NUMBER,
        lambda found, text: (
            f"{found[1]!r} is a text and no {found[2]}: a text is compared with one, as in key = '77'"
        ),
    ),
    (re.compile("only supports a single SQL statement"), lambda found, text: "one statement at a time"),
)
"""What the engine's errors say, and who says it better; the first that is found counts."""
