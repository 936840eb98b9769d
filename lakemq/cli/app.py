"""The command line's front door: finds the noun, parses, runs, turns errors into one line.

Owns the list of commands, the exit codes and how an error is shown.

Invariants: a person sees one clear line on stderr, not a stack, for whatever they or the broker can cause;
only a defect of LakeMQ shows its stack.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 not every broker was asked (message), 130
interrupted, 141 the reader of our output went away.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import lakemq
from lakemq import own_packages
from lakemq.cli.parser import USAGE, Parser
from lakemq.cli.subparsers import Subparsers
from lakemq.terminal import guard, interrupts
from lakemq.terminal.failure import CommandFailed, WrongUsage, described, is_of_delta
from store_native.errors import LakeMQError

FAILED = 1
READER_GONE = 141


@dataclass(frozen=True, slots=True)
class Command:
    """One noun of the command line; the module of its name in ``commands/`` does the work.

    Attributes:
        summary: One line for ``lakemq --help``.
        extra: The extra of the distribution that brings what it imports.
        needs: Modules that it, or a process it starts, imports only after much work: looked for before any.
    """

    summary: str
    extra: str | None = None
    needs: tuple[str, ...] = ()


COMMANDS = {
    "quickstart": Command(
        "run the whole path once, on real flights",
        "all",
        ("fastapi", "pydantic_settings", "uvicorn", "pyspark", "delta", "deltalake"),
    ),
    "serve": Command("run a broker", "server"),
    "nameserver": Command("run a name server: who holds which topic", "server"),
    "cluster": Command("run a name server, masters and slaves on this machine, for trying", "server"),
    "produce": Command("post messages from a file or standard input"),
    "tail": Command("show the messages of a topic as they come"),
    "consume": Command("run a consumer group in Spark, with its ledger", "spark"),
    "sql": Command("query the ledger in SQL", "spark"),
    "dlq": Command("list, show, export, discard a group's dead letters; have some handled again", "spark"),
    "outbox": Command("list the messages that verdicts send and that wait; give some up", "spark"),
    "maintain": Command("put a ledger's small files together, delete what is old, index keys", "spark"),
    "archive": Command("land topics in the ledger's table of messages", "spark"),
    "topic": Command("list, create, show, update, delete topics"),
    "group": Command("list, create, show, delete, clone groups; see and reset offsets"),
    "message": Command("show one message, or find messages by key"),
    "ha": Command("show a broker's replication; promote a slave"),
    "store": Command("verify, dump or recover a store's files"),
    "completion": Command("print what completes lakemq's commands in a shell"),
}
_OWN_PACKAGES = own_packages.NAMES | {"lakemq"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    own_packages.claim()
    guard.guard()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    name = next((argument for argument in arguments if argument in COMMANDS), None)
    try:
        return _run(name, arguments)
    except KeyboardInterrupt:
        return interrupts.INTERRUPTED
    except BrokenPipeError:
        # Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except WrongUsage as error:
        return _complain(str(error), USAGE)
    except (LakeMQError, CommandFailed) as error:
        return _complain(described(error), FAILED)
    except ModuleNotFoundError as error:
        if name is None or not is_missing_extra(name, error):
            raise
        return _complain(missing_extra_text(name, error), FAILED)
    except OSError as error:
        return _complain(_os_error(error), FAILED)
    except Exception as error:
        if not is_of_delta(error):
            raise
        return _complain(described(error), FAILED)
    except UnicodeEncodeError as error:  # an argument that is no text, or text a terminal's encoding lacks
        what = ascii(error.object[error.start : error.end])
        return _complain(f"{what} cannot be written in {error.encoding}: {error.reason}", FAILED)


def parser_for(name: str | None) -> tuple[Parser, ModuleType | None]:
    """Builds the parser; only the named command's module is imported."""
    parser, subparsers = _front_door()
    module = None
    for command, entry in COMMANDS.items():
        if command == name:
            module = _module_of(command)
            module.register(subparsers)
        else:
            subparsers.add_parser(command, help=entry.summary, add_help=False)
    return parser, module


def whole_parser() -> argparse.ArgumentParser:
    """Builds the parser with every command; one whose extra is not installed has its name only."""
    parser, subparsers = _front_door()
    for command, entry in COMMANDS.items():
        try:
            _module_of(command).register(subparsers)
        except ModuleNotFoundError as error:
            if not is_missing_extra(command, error):
                raise
            subparsers.add_parser(command, help=entry.summary)
    return parser


def _module_of(command: str) -> ModuleType:
    return importlib.import_module(f"lakemq.cli.commands.{command}")


def _front_door() -> tuple[Parser, Subparsers]:
    parser = Parser(
        prog="lakemq",
        description="LakeMQ: a message broker whose messages and deliveries are tables.",
        epilog="lakemq COMMAND --help tells more. The broker's address: --endpoint, else LAKEMQ_ENDPOINT; "
        "the file of authorities that are believed of https addresses: LAKEMQ_CA_FILE, else the system's.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and end")
    return parser, parser.add_subparsers(dest="command", metavar="COMMAND")


def _run(name: str | None, arguments: list[str]) -> int:
    parser, module = parser_for(name)
    try:
        args, unknown = parser.parse_known_args(arguments)
        if unknown:
            _parser_of(parser, arguments).refuse(unknown)
    except SystemExit as ended:  # argparse has printed its help or its complaint
        return int(ended.code or 0)
    if args.version:
        print(f"lakemq {lakemq.__version__}")
        return 0
    if module is None:
        parser.print_help(sys.stderr)
        return USAGE
    _look_for(COMMANDS[args.command].needs)
    interrupts.hand_over()
    try:
        code: int = module.run(args)
    except LakeMQError as error:
        from lakemq.cli.advice import advice  # it brings the client along

        if further := advice(error, args):
            text = described(error)
            raise CommandFailed(f"{text}{' ' if text.endswith('!') else '; '}{further}") from error
        raise
    if sys.stdout is not None:  # closed by the caller
        sys.stdout.flush()
    return code


def _parser_of(parser: Parser, arguments: Sequence[str]) -> Parser:
    """The parser of the noun, or of its verb, that the arguments are for."""
    meant = parser
    for argument in arguments:
        found = (action.choices for action in meant._actions if isinstance(action.choices, dict))  # noqa: SLF001
        meant = next((choices[argument] for choices in found if argument in choices), meant)
    return meant


def _look_for(modules: Sequence[str]) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def _complain(line: str, code: int) -> int:
    print(f"lakemq: {guard.one_line(line)}", file=sys.stderr)
    return code


def is_missing_extra(name: str, error: ModuleNotFoundError) -> bool:
    """Tells whether a command failed for want of its extra's packages, not by a defect of our own."""
    missing = (error.name or "").partition(".")[0]
    return COMMANDS[name].extra is not None and missing not in _OWN_PACKAGES


def missing_extra_text(name: str, error: ModuleNotFoundError) -> str:
    """Returns what to install for a command."""
    extra = COMMANDS[name].extra
    return f"lakemq {name} needs: pip install 'lakemq[{extra}]' (there is no module {error.name!r} here)"


def _os_error(error: OSError) -> str:
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
