"""What several clients did at the same time, and whether one broker can have answered it all.

One broker is also a master and the slave that is promoted in its place. What may be behind it, a slave or a
promoted master whose log does not count to its end yet, shows nothing else than it, but less.

Owns the judgement only: operations with the times at which they began and ended, on one clock. An operation
without an answer may have had its effect, at any time after it began, or none.

Invariants: an empty list means that every rule below held for every pair of operations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

FOR_EVER = float("inf")


class Span(NamedTuple):
    """When an operation began and ended, in seconds; for ever where it got no answer."""

    began: float
    ended: float

    def is_before(self, other: Span) -> bool:
        """Whether it had ended when the other began."""
        return self.ended < other.began


@dataclass(frozen=True, slots=True)
class Send:
    """A message sent to a queue, and the offset it got; None where no answer came."""

    span: Span
    queue: int
    body: str
    offset: int | None


@dataclass(frozen=True, slots=True)
class Pull:
    """A read of a queue from an offset on, answered: bodies with their offsets, and where the queue ended.

    Attributes:
        may_be_behind: Who answered may lack the end of the queue.
    """

    span: Span
    queue: int
    offset: int
    bodies: tuple[tuple[int, str], ...]
    next_offset: int
    max_offset: int
    may_be_behind: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset that a group committed for a queue; no two are the same."""

    span: Span
    queue: int
    offset: int


@dataclass(frozen=True, slots=True)
class Look:
    """The offset that a group had for a queue, answered; None for none.

    Attributes:
        may_be_behind: Who answered may not have heard of the last commits.
    """

    span: Span
    queue: int
    offset: int | None
    may_be_behind: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease that an owner was granted, until a time on the clock of the spans at the latest."""

    span: Span
    owner: str
    epoch: int
    until: float


@dataclass(frozen=True, slots=True)
class FencedCommit:
    """A commit under a lease's epoch that was taken; which offset is a :class:`Commit`'s."""

    span: Span
    epoch: int


@dataclass(frozen=True, slots=True)
class Release:
    """When an owner began to give a lease back, whatever it was granted before."""

    began: float
    owner: str


@dataclass(slots=True)
class History:
    """All that was done."""

    sends: list[Send] = field(default_factory=list)
    pulls: list[Pull] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    fenced: list[FencedCommit] = field(default_factory=list)

    def problems(self) -> list[str]:
        """What no broker can have answered, a sentence each."""
        found: list[str] = []
        for queue in sorted({send.queue for send in self.sends} | {pull.queue for pull in self.pulls}):
            sends = [send for send in self.sends if send.queue == queue]
            pulls = [pull for pull in self.pulls if pull.queue == queue]
            found += _wrong_sends(sends)
            found += _wrong_pulls(sends, pulls)
        for queue in sorted({one.queue for one in self.commits} | {look.queue for look in self.looks}):
            commits = [commit for commit in self.commits if commit.queue == queue]
            found += _wrong_looks(commits, [look for look in self.looks if look.queue == queue])
        return [*found, *_wrong_grants(self.grants, self.releases), *_late_commits(self.grants, self.fenced)]


def _wrong_sends(sends: Sequence[Send]) -> Iterator[str]:
    """Two answers never name one offset, and what was sent later lies behind."""
    answered = sorted((send for send in sends if send.offset is not None), key=lambda send: send.span.began)
    yield from _twice("offset", ((send.offset, send.body) for send in answered))
    newest: tuple[int, str] = (-1, "")
    ended = sorted(answered, key=lambda send: send.span.ended)
    at = 0
    for send in answered:
        while at < len(ended) and ended[at].span.is_before(send.span):
            newest = max(newest, (ended[at].offset or 0, ended[at].body))
            at += 1
        assert send.offset is not None
        if send.offset < newest[0]:
            yield f"{send.body} was sent after {newest[1]} was stored, and lies before it"


def _wrong_pulls(sends: Sequence[Send], pulls: Sequence[Pull]) -> Iterator[str]:
    """A pull shows what was sent, where the answer says, from its offset on without a hole, and at once."""
    by_body = {send.body: send for send in sends}
    stored = [(send.offset, send) for send in sends if send.offset is not None]
    seen: dict[int, str] = {}
    for pull in pulls:
        offsets = [offset for offset, _ in pull.bodies]
        if offsets != list(range(pull.offset, pull.next_offset)):
            yield f"a pull from {pull.offset} to {pull.next_offset} shows {offsets}"
        for offset, body in pull.bodies:
            sent = by_body.get(body)
            if sent is None:
                yield f"{body} was never sent"
            elif pull.span.is_before(sent.span):
                yield f"{body} was read before it was sent"
            elif sent.offset not in (None, offset):
                yield f"{body} was stored at {sent.offset} and read at {offset}"
            if seen.setdefault(offset, body) != body:
                yield f"{seen[offset]} and {body} were read at {offset}"
        if pull.may_be_behind:
            continue
        for offset, send in stored:
            if send.span.is_before(pull.span) and pull.max_offset <= offset:
                yield f"{send.body} was answered, and a later pull ends at {pull.max_offset}"
    newest = -1
    ended = sorted(pulls, key=lambda pull: pull.span.ended)
    at = 0
    for pull in sorted(pulls, key=lambda pull: pull.span.began):
        while at < len(ended) and ended[at].span.is_before(pull.span):
            newest = max(newest, ended[at].max_offset)
            at += 1
        if pull.max_offset < newest and not pull.may_be_behind:
            yield f"the queue ended at {newest}, and later at {pull.max_offset}"
    yield from _twice("body", ((body, offset) for offset, body in seen.items()))


def _wrong_looks(commits: Sequence[Commit], looks: Sequence[Look]) -> Iterator[str]:
    """A look shows a commit that had begun and that no later one had replaced for sure."""
    by_offset = {commit.offset: commit for commit in commits}
    for look in looks:
        if look.offset is None:
            shown = Span(-FOR_EVER, -FOR_EVER)
        elif look.offset not in by_offset:
            yield f"nobody committed {look.offset}"
            continue
        else:
            shown = by_offset[look.offset].span
        if look.span.is_before(shown):
            yield f"{look.offset} was read before it was committed"
        if look.may_be_behind:
            continue
        for commit in commits:
            if shown.is_before(commit.span) and commit.span.is_before(look.span):
                yield f"{look.offset} was read after {commit.offset} had replaced it"


def _wrong_grants(grants: Sequence[Grant], releases: Sequence[Release]) -> Iterator[str]:
    """Two owners never hold the lease at the same time, and an epoch is one owner's, later ones higher."""
    for one in grants:
        given_back = [each.began for each in releases if each.owner == one.owner]
        held_until = min([one.until, *(began for began in given_back if began >= one.span.began)])
        for other in grants:
            if one.owner == other.owner:
                continue
            if one.epoch == other.epoch:
                yield f"{one.owner} and {other.owner} were granted epoch {one.epoch}"
            if one.span.is_before(other.span) and other.epoch < one.epoch:
                yield f"epoch {other.epoch} was granted after {one.epoch}"
            # Held for sure from the answer on; the other's answer came while it was.
            if one.span.ended < other.span.began and other.span.ended < held_until:
                yield f"{other.owner} was granted the lease while {one.owner} held it"


def _late_commits(grants: Sequence[Grant], fenced: Sequence[FencedCommit]) -> Iterator[str]:
    """Nothing is taken under an epoch once a higher one was granted."""
    for commit in fenced:
        newest = max((one.epoch for one in grants if one.span.is_before(commit.span)), default=0)
        if commit.epoch < newest:
            yield f"a commit of epoch {commit.epoch} was taken after {newest} was granted"


def _twice(what: str, pairs: Iterable[tuple[object, object]]) -> Iterator[str]:
    owners: dict[object, set[object]] = defaultdict(set)
    for key, owner in pairs:
        owners[key].add(owner)
    for key, found in owners.items():
        if len(found) > 1:
            yield f"{what} {key} belongs to {sorted(map(str, found))}"
