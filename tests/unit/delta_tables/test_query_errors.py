"""A statement that is wrong is refused in words that help to mend it, and none of the engine's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger_reader import LedgerReader
from delta_tables.query_errors import explained
from delta_tables.views import TABLES, VIEWS
from store_native.errors import InvalidRequest
from tests.support.ledger_rows import append, delivery, path_ledger

ENGINES_WORDS = re.compile(
    r"datafusion|Schema error|planning|ParserError|Tokenizer|External|Arrow error|Optimizer|coercion"
    r"|Utf8|Int64"
)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> LedgerReader:
    location = path_ledger(tmp_path_factory.mktemp("ledger"))
    location.create(*TABLES)
    return LedgerReader(str(location))


def refused(reader: LedgerReader, text: str) -> str:
    with pytest.raises(InvalidRequest) as error:
        reader.sql(text)
    assert error.value.code == "ARGUMENT_ILLEGAL"
    assert not ENGINES_WORDS.search(error.value.detail), error.value.detail
    assert "\n" not in error.value.detail
    return error.value.detail


def test_an_unknown_table_names_those_there_are_and_the_nearest(reader: LedgerReader) -> None:
    said = refused(reader, "SELECT * FROM delivery_histroy")
    assert said.startswith("there is no table delivery_histroy; did you mean delivery_history? ")
    assert all(table.name in said for table in TABLES)
    assert all(view in said for view in VIEWS)
    assert said == refused(reader, "DESCRIBE delivery_histroy")
    assert "did you mean" not in refused(reader, "SELECT * FROM zebra")


def test_an_unknown_column_names_those_there_are_and_the_nearest(reader: LedgerReader) -> None:
    for column in ("verdct", "deliveries.verdct"):
        said = refused(reader, f"SELECT {column} FROM deliveries")
        assert said.startswith(f"there is no column {column}; did you mean verdict? columns here: ")
        assert "consumer_group, topic, broker_name, queue_id" in said
        assert "deliveries.topic" not in said
    said = refused(reader, 'SELECT "Topic" FROM deliveries ORDER BY 1')
    assert said.startswith('there is no column "Topic"; did you mean topic? ')
    said = refused(reader, "SELECT x.id FROM deliveries d JOIN dead_letters x ON d.keys = x.keys")
    assert "d.topic" in said
    assert "x.topic" in said
    assert said.count("d.topic,") == 1


def test_a_column_that_other_tables_have_names_them(reader: LedgerReader) -> None:
    said = refused(reader, "SELECT * FROM message_trace WHERE keys = 'k'")
    assert said.startswith(
        "there is no column keys; messages, deliveries, dead_letters have one; columns here: message_id"
    ), said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "SELECT *\nFROM deliveries WHERE topic = = 3",
            "the SQL is wrong at line 2, column 31, near '= 3': expected an expression, found =",
        ),
        ("SELECT * FROM deliveries WHERE ", "the SQL is wrong at its end: expected an expression"),
        (
            "SELECT 'a",
            'the SQL is wrong at line 1, column 8, near "\'a": unterminated string literal',
        ),
        (
            'SELECT "topic FROM deliveries',
            "the SQL is wrong at line 1, column 8, near '\"topic FROM deliveries': "
            "expected close delimiter '\"' before EOF",
        ),
    ],
)
def test_wrong_syntax_is_shown_at_its_place(reader: LedgerReader, text: str, sentence: str) -> None:
    assert refused(reader, text) == sentence


def test_a_statement_that_begins_with_no_known_word_is_shown_it(reader: LedgerReader) -> None:
    assert refused(reader, "SELEC 1").startswith("the statement begins with 'SELEC': a ledger is only read: ")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("SELECT coutn(*) FROM deliveries", "there is no function coutn; did you mean count?"),
        ("SELECT * FROM read_csv('/etc/passwd')", "there is no table function read_csv"),
        (
            "SELECT topic FROM deliveries d JOIN dead_letters e ON d.topic = e.topic",
            "several tables here have a column topic: write TABLE.topic",
        ),
        ("SELECT sum(topic) FROM deliveries", "no function takes these values: sum(STRING)"),
        (
            "SELECT CAST('x' AS BIGINT)",
            "'x' is a text and no BIGINT: a text is compared with one, as in key = '77'",
        ),
        ("SELECT 1/0", "Divide by zero error"),
        ("SELECT * FROM deliveries LIMIT -1", "LIMIT must be >= 0, '-1' was provided"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
    ],
)
def test_other_mistakes_are_one_sentence(reader: LedgerReader, text: str, sentence: str) -> None:
    assert refused(reader, text) == sentence


def test_an_unknown_error_is_shown_by_its_first_line() -> None:
    assert explained(RuntimeError("\n  Something new\nand more"), "SELECT 1") == "Something new"
    assert explained(RuntimeError(""), "SELECT 1") == "RuntimeError"


def test_a_directory_without_a_ledger_says_who_makes_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as error:
        LedgerReader(tmp_path / "nowhere")
    assert error.value.detail == (
        f"no ledger at {tmp_path / 'nowhere'}: "
        f"a group's first run makes it (lakemq consume --ledger {tmp_path / 'nowhere'})"
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT attempt FROM deliveries WHERE keys = '17'",
        "SELECT attempt FROM deliveries WHERE keys LIKE '17%'",
        "SELECT d.attempt FROM deliveries d JOIN delivery_history h ON d.keys = h.keys",
    ],
)
def test_a_list_compared_with_a_text_says_how_it_is_searched(reader: LedgerReader, text: str) -> None:
    assert refused(reader, text).startswith("a list is compared with a text: array_contains(keys, 'k')")


def test_the_condition_that_is_advised_for_lists_runs(reader: LedgerReader) -> None:
    said = refused(reader, "SELECT attempt FROM deliveries WHERE keys = '17'")
    condition = said.split(": ")[1].split(" finds")[0]
    assert reader.sql(f"SELECT attempt FROM deliveries WHERE {condition}").num_rows == 0


def test_values_that_are_not_compared_are_named_by_their_types(reader: LedgerReader) -> None:
    said = refused(reader, "SELECT 1 FROM deliveries WHERE finished_at = ARRAY[1]")
    assert "coercion" not in said
    assert len(said) > 20


@pytest.mark.parametrize(
    "condition",
    [
        "SELECT * FROM deliveries_by_key WHERE key = 77",
        "SELECT * FROM deliveries_by_key WHERE key IN (77, 78)",
        "SELECT * FROM deliveries WHERE message_id = 77",
        "SELECT * FROM deliveries WHERE array_contains(keys, 77)",
    ],
)
def test_a_number_in_the_place_of_a_text_is_said(tmp_path: Path, condition: str) -> None:
    append(path_ledger(tmp_path), DELIVERIES, [delivery(0, keys=["ID0"])])
    said = refused(LedgerReader(str(tmp_path)), condition)
    assert said == "'ID0' is a text and no BIGINT: a text is compared with one, as in key = '77'"
