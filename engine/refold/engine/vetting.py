"""Vetting the lines of an export: each must fit what came before it, and hold nothing that no verb could have written.

An export is a text file that people keep, mend and hand on. Everything that a fold relies on is checked here, before
the first event of a load is written.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import DecodeError, Struct

from refold import checks, fold
from refold.engine.jsonl import Line
from refold.engine.keys import kind_of
from refold.engine.streams import STORE_STREAM
from refold.engine.trail import Trail
from refold.errors import InvalidInput, LimitExceeded
from refold.event import (
    BranchForked,
    ConversationOpened,
    Event,
    Forked,
    ImportedBody,
    Restored,
    SnapshotNamed,
    StateImported,
    decode_json,
)
from refold.limits import NAME_BYTES_MAX
from refold.message import ROLES, MessageAppended
from refold.views.board import BoardChanged, BoardMessageAppended
from refold.views.board import check as check_board
from refold.views.files import FileCreated, FileDeleted, FileRenamed
from refold.views.files import check as check_file
from refold.views.settings import is_reserved
from refold.views.window import EVICTION

_SIGNED_MAX: Final = 2**63
_ACTOR_MAX: Final = 2**32
_POINTERS: Final = frozenset((*fold.SCALAR_SEQS, "base_seq"))
_OPENING: Final = (ConversationOpened, Forked, Restored, StateImported)


class Vetting:
    """What was seen of an export so far."""

    def __init__(self, trail: Trail) -> None:
        self.events = 0
        self._trail = trail
        self._time_ns = -_SIGNED_MAX

    def vet(self, line: Line, event: Event) -> None:
        """Take note of the next line; ``InvalidInput`` with its seq if it cannot be what was exported."""
        problem = _first(self._problems(line, event))
        if problem is not None:
            message = f"seq {line.seq}: {problem}; export again, the file was changed"
            raise InvalidInput(message)
        self.events += 1
        self._time_ns = line.time_ns

    def _problems(self, line: Line, event: Event) -> Iterator[str]:
        yield from self._order(line)
        yield from self._pointers(line, event)
        if isinstance(event, BranchForked):
            yield from self._forking(line, event)
        if isinstance(event, (FileCreated, FileDeleted, FileRenamed)) and not line.erased:
            check_file(event)
        yield from _contents(event)

    def _order(self, line: Line) -> Iterator[str]:
        kind, _, name = line.stream.partition("/")
        version = self._trail.stand(line.branch, line.stream).version
        occurred_ns = line.time_ns if line.occurred_ns is None else line.occurred_ns
        if kind not in fold.KINDS or not name or len(name.encode()) > NAME_BYTES_MAX:
            yield f"the stream {line.stream!r} is of no known kind"
        if line.seq != self.events + 1:
            yield f"it should be seq {self.events + 1}"
        if line.version != version + 1:
            yield f"{line.stream} goes from version {version} to {line.version}"
        if not self._time_ns <= line.time_ns < _SIGNED_MAX or not -_SIGNED_MAX <= occurred_ns < _SIGNED_MAX:
            yield "its time is out of order or beyond 64 bits"
        if not 1 <= line.command <= line.seq or not 0 <= line.cause < line.seq or not 0 <= line.actor < _ACTOR_MAX:
            yield "its command, cause or actor is out of order"

    def _pointers(self, line: Line, event: Event) -> Iterator[str]:
        """Check that what an event names came before it."""
        named = [*event.sources, *getattr(event, "seqs", ())]
        if not all(1 <= seq < line.seq for seq in named):
            yield "it names a seq that does not come before it"
        pointed = [getattr(event, field) for field in event.__struct_fields__ if field in _POINTERS]
        if any(seq >= line.seq for seq in pointed):
            yield "it points at a seq that does not come before it"
        if "base_stream" in event.__struct_fields__ and any(pointed):
            yield from self._base(line, event)
        needs_open = line.stream.startswith("conversation/") and not isinstance(event, _OPENING)
        if needs_open and not self._trail.is_open(line.branch, line.stream):
            yield f"{line.stream} is not open"

    def _base(self, line: Line, event: Event) -> Iterator[str]:
        """Check that the stream that an event goes on from, or names, is there, and of its own kind."""
        base = line.event.get("base_stream")
        if isinstance(event, SnapshotNamed) and base == "":
            return  # A snapshot of the whole memory.
        if not isinstance(base, str) or not self._trail.has(line.event.get("base_branch", ""), base):
            yield f"its base {checks.shown(base)} is no stream that comes before it"
        elif isinstance(event, (Forked, Restored)) and kind_of(base) != kind_of(line.stream):
            yield f"its base {base} is of another kind than {line.stream}"

    def _forking(self, line: Line, event: BranchForked) -> Iterator[str]:
        """Check what the lines behind a fork of the memory rely on."""
        if line.branch or line.stream != STORE_STREAM:
            yield f"a fork of the memory stands in {STORE_STREAM} of the main line alone"
        if not line.erased:
            checks.name(event.name, "name")
            if event.name in self._trail.branches or is_reserved(event.name):
                yield f"the fork's name {checks.shown(event.name)} is taken"


def problem_in(event: Event) -> str | None:
    """Return what no verb could have written of an event that came from outside, ``None`` if there is nothing."""
    return _first(_contents(event))


def _first(problems: Iterator[str]) -> str | None:
    try:
        return next(problems, None)
    except (InvalidInput, LimitExceeded, DecodeError, OverflowError, TypeError, UnicodeError) as error:
        return str(error)


def _contents(event: Event) -> Iterator[str]:
    yield from _numbers(event)
    yield from _values(event)
    fold.encode(event)


def _numbers(event: Event) -> Iterator[str]:
    """Check that no number is negative or too large for what reads it."""
    rows: list[Struct] = [event]
    if isinstance(event, StateImported):
        rows += event.messages
    for row in rows:
        for field in row.__struct_fields__:
            value = getattr(row, field)
            least = -_SIGNED_MAX if field in ("time_ns", "occurred_ns", "created_ns") else 0
            if isinstance(value, int) and not least <= value < _SIGNED_MAX:
                yield f"{field} is {checks.shown(value)}"


def _values(event: Event) -> Iterator[str]:
    """Check what only some events hold: policies, roles, and JSON values of the right shape."""
    if isinstance(event, ConversationOpened) and event.policy not in EVICTION:
        yield f"the eviction policy {event.policy} is unknown; upgrade refold"
    if isinstance(event, MessageAppended):
        _check_body(event)
    if isinstance(event, (BoardChanged, BoardMessageAppended)):
        check_board(event)
    if isinstance(event, StateImported):
        yield from _imported(event)


def _imported(event: StateImported) -> Iterator[str]:
    if event.policy and event.policy not in EVICTION:
        yield f"the eviction policy {event.policy} is unknown; upgrade refold"
    if event.bodies and len(event.bodies) != len(event.messages):
        yield f"{len(event.messages)} messages have {len(event.bodies)} bodies"
    if unknown := {message.role for message in event.messages} - set(ROLES):
        yield f"messages are of unknown roles: {', '.join(sorted(unknown))}"
    for body in event.bodies:
        _check_body(body)
    for key, _ in event.entries:
        checks.key(key)
    for key, packed in event.state:
        checks.key(key)
        decode_json(packed)


def _check_body(body: MessageAppended | ImportedBody) -> None:
    for what, packed in (("content", body.parts), ("tool_calls", body.calls)):
        if packed is not None:
            checks.json_objects(decode_json(packed), what)
    if body.extra is not None:
        checks.json_object(decode_json(body.extra), "metadata")
