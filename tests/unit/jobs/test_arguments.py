"""What the arguments of a group say of its handler's host."""

from __future__ import annotations

import argparse

import pytest

from jobs.arguments import add_consume_arguments, consume_settings
from jobs.handler.invocation import HandlerHost
from store_native.errors import InvalidRequest


def host(*options: str) -> HandlerHost:
    parser = argparse.ArgumentParser()
    add_consume_arguments(parser)
    given = ("--group", "g", "--topic", "t", "--handler", "m:f", *options)
    return consume_settings(parser.parse_args(given)).host


def test_a_bound_of_the_handlers_memory_means_a_process_of_its_own() -> None:
    assert host() == HandlerHost()
    assert host("--isolation", "process") == HandlerHost(isolation="process")
    assert host("--handler-memory", "1g") == HandlerHost(isolation="process", memory=1 << 30)


def test_a_bound_of_the_handlers_memory_in_sparks_worker_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="--isolation process"):
        host("--handler-memory", "1g", "--isolation", "thread")
