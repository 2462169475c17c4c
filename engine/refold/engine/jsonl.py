"""Lines of an export: an event with its stamp as JSON and back, and whether a line fits those before it.

Values that events hold as msgpack appear as plain JSON, and numbers of streams as names, so that a person can read the
file and another store can load it. Pure.
"""

from array import array
from base64 import b64decode, b64encode
from binascii import Error as NoBase64
from bisect import bisect_right
from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import Struct

from refold import checks, fold
from refold.engine.streams import STORE_STREAM, Names, key_of, kind_of
from refold.errors import InvalidInput, LimitExceeded
from refold.event import (
    ACTOR_NUMBERS,
    HOST,
    NAMED_ACTORS_FROM,
    BranchForked,
    ConversationOpened,
    Erased,
    Event,
    ForkDropped,
    Forked,
    Restored,
    SnapshotNamed,
    StateImported,
    decode_json,
    pack_json,
    unpack_json,
)
from refold.limits import NAME_BYTES_MAX
from refold.message import ROLES, MessageAppended, MessageReplaced, check_body
from refold.views.actors import ActorNamed
from refold.views.store import ERASED_PREFIX, Branch, is_reserved
from refold.views.window import EVICTION

JSONL_FORMAT: Final = 1
_MESSAGES: Final = (MessageAppended, MessageReplaced)
"""The events that show their content under one name, whatever its type."""

_PACKED: Final = {
    "calls": "tool_calls",
    "extra": "metadata",
    "incoming": "incoming",
    "packed": "value",
    "signals": "signals",
}
"""Fields that hold msgpack, and the public names under which their values are shown."""

_BINARY: Final = "item"
"""The field that holds msgpack with bytes in it, which JSON cannot hold."""

_BYTES: Final = "$bytes"
_DICT: Final = "$dict"
"""The keys under which bytes are shown, in base64, and a dict that could be mistaken for one of the two."""


def value_to_json(value: object) -> Any:
    """Return a value of JSON and bytes as JSON only."""
    if isinstance(value, bytes):
        return {_BYTES: b64encode(value).decode()}
    if isinstance(value, list):
        return list(map(value_to_json, cast("list[object]", value)))
    if not isinstance(value, dict):
        return value
    plain = {key: value_to_json(inner) for key, inner in cast("dict[str, Any]", value).items()}
    return {_DICT: plain} if plain.keys() & {_BYTES, _DICT} else plain


def value_from_json(plain: object) -> Any:
    """Return the value whose JSON is ``plain``; ``msgspec.ValidationError`` for bytes that are not base64."""
    if isinstance(plain, list):
        return list(map(value_from_json, cast("list[object]", plain)))
    if not isinstance(plain, dict):
        return plain
    pairs = cast("dict[str, Any]", plain)
    if pairs.keys() == {_BYTES}:
        try:
            return b64decode(pairs[_BYTES], validate=True)
        except (NoBase64, TypeError, ValueError) as error:
            raise msgspec.ValidationError(f"{_BYTES} is {checks.brief(pairs[_BYTES])}, no base64") from error
    inner: dict[str, Any] = pairs[_DICT] if pairs.keys() == {_DICT} else pairs
    return {key: value_from_json(each) for key, each in inner.items()}


class ExportHead(Struct, frozen=True):
    """The first line of an export: its format, the store it came from, and how many events follow."""

    refold: int
    store: str
    head: int


class ExportLine(Struct, frozen=True, omit_defaults=True):
    """One event of an export with its stamp."""

    seq: int
    stream: str
    version: int
    time_ns: int
    command: int
    kind: str
    event: dict[str, Any]
    occurred_ns: int | None = None
    cause: int = 0
    actor: str = HOST
    erased: bool = False
    branch: str = ""
    """The name of the fork of the memory that the event belongs to, empty in the main line."""
    clock_ns: int | None = None
    """What the clock showed, if it was far behind the log and no ``occurred_ns`` was given."""

    @property
    def happened_ns(self) -> int:
        """When it happened: as given, as the clock showed, or as the log says."""
        given = self.clock_ns if self.occurred_ns is None else self.occurred_ns
        return self.time_ns if given is None else given


class ExportFoot(Struct, frozen=True):
    """The last line of an export: the digest of all lines before it."""

    sha256: str


class Numbers(NamedTuple):
    """Lookups from the names in lines to numbers; an unknown name raises ``KeyError``."""

    stream: Callable[[str, str], int]
    """By the names of the branch and the stream."""
    branches: dict[str, int]


_LINE: Final = msgspec.json.Decoder(ExportLine)
_HEAD: Final = msgspec.json.Decoder(ExportHead)
_FOOT: Final = msgspec.json.Decoder(ExportFoot)
_FOOT_START: Final = b'{"sha256"'


def head_of(line: bytes) -> ExportHead:
    """Return the head of an export; ``InvalidInput`` if the line is not a head, or is of a newer format."""
    try:
        head = _HEAD.decode(line)
    except checks.UNDECODABLE as error:
        raise InvalidInput(
            f"line 1 is not the head of a refold export ({error}); give a file that `refold export` wrote"
        ) from error
    if head.refold > JSONL_FORMAT:
        raise InvalidInput(
            f"the export is of format {head.refold}, and this refold reads up to {JSONL_FORMAT}; upgrade refold"
        )
    return head


def line_of(line: bytes, number: int) -> ExportLine:
    """Return one line of an export."""
    try:
        return _LINE.decode(line)
    except checks.UNDECODABLE as error:
        raise InvalidInput(
            f"line {number} is not an event of a refold export ({error}); export again, or mend the line"
        ) from error


def is_foot(line: bytes) -> bool:
    """Return whether a line ends an export."""
    return line.startswith(_FOOT_START)


def check_foot(line: bytes, digest: str, number: int) -> None:
    """Raise ``InvalidInput`` unless the last line of an export has the digest of the lines before it, in hex."""
    try:
        expected = _FOOT.decode(line).sha256
    except checks.UNDECODABLE as error:
        raise InvalidInput(
            f"line {number} is not the digest of a refold export ({error}); export again, the file was changed"
        ) from error
    if expected != digest:
        raise InvalidInput(
            f"line {number} says that the SHA-256 of the lines before it is {checks.brief(expected)}, and it is "
            f"{digest}: the file was changed after it was exported; export again, or remove that line to load the file "
            f"as it is"
        )


def event_to_json(event: Event, names: Names, *, erased: bool) -> dict[str, Any]:
    """Return an event's fields by their public names, without unset ones; an erased event has no body.

    The body of an ``Erased`` event is left out too, because another store has other records.
    """
    fields = fold.STRUCTURAL[type(event)] if erased or isinstance(event, Erased) else event.__struct_fields__
    plain: dict[str, Any] = {}
    for field in fields:
        value = getattr(event, field)
        if field == "base_stream":
            plain |= _base(value, names)
        elif field == "base_branch":
            plain[field] = names.branch(value)
        elif field in _PACKED and value is not None:
            plain[_PACKED[field]] = unpack_json(value)
        elif field == _BINARY and isinstance(value, bytes):
            plain[field] = value_to_json(unpack_json(value))
        elif value is not None and value != ():
            plain[field] = msgspec.to_builtins(value)
    if isinstance(event, _MESSAGES) and not erased:
        plain.pop("text", None)
        plain.pop("parts", None)
        plain["content"] = event.content
    return plain


def _base(number: int, names: Names) -> dict[str, str]:
    """Return the stream that an event continues from, and its branch unless that is the main line."""
    if not number:
        return {"base_stream": ""}
    branch = names.branch_of(number)
    return {"base_stream": names.stream(number), **({"base_branch": names.branch(branch)} if branch else {})}


def event_from_json(line: ExportLine, numbers: Numbers) -> Event:
    """Return the event of a line; ``InvalidInput`` if a field is missing, unknown or of the wrong type."""
    event_type = fold.TYPES_BY_NAME.get(line.kind)
    if event_type is None:
        raise InvalidInput(f"seq {line.seq} is of the unknown kind {line.kind!r}; upgrade refold")
    plain = dict(line.event)
    if event_type in _MESSAGES and not line.erased:
        content = plain.pop("content", None)
        plain["text" if content is None or isinstance(content, str) else "parts"] = content
    try:
        values = {
            field.name: _parse_field(plain, field, numbers)
            for field in msgspec.structs.fields(event_type)
            if _PACKED.get(field.name, field.name) in plain or field.required
        }
        _refuse_surplus(plain, event_type)
        return event_type(**values)
    except (msgspec.ValidationError, OverflowError, RecursionError, TypeError, KeyError) as error:
        raise InvalidInput(
            f"seq {line.seq} is not a {line.kind} event ({error}); export again, or mend the line"
        ) from error


def _refuse_surplus(plain: dict[str, Any], event_type: type[Event]) -> None:
    fields = fold.STRUCTURAL[event_type] if event_type is Erased else event_type.__struct_fields__
    names = {_PACKED.get(field, field) for field in fields}
    surplus = set(plain) - names - ({"base_branch"} if "base_stream" in names else set())
    if surplus:
        raise msgspec.ValidationError(f"unknown fields {', '.join(sorted(surplus))}")


def _parse_field(plain: dict[str, Any], field: msgspec.structs.FieldInfo, numbers: Numbers) -> Any:
    name = _PACKED.get(field.name, field.name)
    if name not in plain:
        # Empty tuples and None are left out of a line; nothing else can be missing.
        return msgspec.convert(() if "tuple" in str(field.type) else None, field.type)
    value = plain[name]
    if field.name == "base_stream":
        return numbers.stream(plain.get("base_branch", ""), value) if value else 0
    if field.name == "base_branch":
        return numbers.branches[value]
    if field.name in _PACKED or field.name == "parts":
        return pack_json(value)
    if field.name == _BINARY:
        return pack_json(value_from_json(value))
    return msgspec.convert(value, field.type, strict=True)


# The positions of all streams of all branches, line by line of an export, before any of it is in a store.

_END = 2**64


class Position(NamedTuple):
    """The head of a stream: its version and the seq of its last event."""

    version: int
    seq: int


class Positions:
    """The heads of all streams of all branches, event by event; a branch's stream continues what it inherited."""

    def __init__(self) -> None:
        self.forks: list[Branch] = []
        """The branches, in the order of their numbers."""
        self._seqs: dict[str, array[int]] = {}
        self._inherited: dict[str, int] = {}
        """The version that a branch's stream continues from."""

    def __len__(self) -> int:
        """Return the number of streams that have events, over all branches."""
        return len(self._seqs)

    def has(self, branch: int, stream: str) -> bool:
        """Return whether a stream has events of its own in a branch."""
        return key_of(branch, stream) in self._seqs

    def at(self, branch: int, stream: str, until: int = _END) -> Position:
        """Return the head of a stream at a seq, including what its branch inherited."""
        while True:
            key = key_of(branch, stream)
            seqs = self._seqs.get(key)
            count = 0 if seqs is None else len(seqs) if until == _END else bisect_right(seqs, until)
            if seqs is not None and count:
                return Position(self._inherited[key] + count, seqs[count - 1])
            if not branch:
                return Position(0, 0)
            branch, until = self.elder(branch, until)

    def elder(self, branch: int, until: int) -> tuple[int, int]:
        """Return the parent of a branch, and the seq up to which the branch inherits from it."""
        fork = self.forks[branch - 1]
        return fork.parent, min(until, fork.seq)

    def note(self, branch: int, stream: str, seq: int) -> None:
        """Record a stream's next event."""
        key = key_of(branch, stream)
        if key not in self._seqs:
            self._inherited[key] = self.at(branch, stream).version
            self._seqs[key] = array("Q")
        self._seqs[key].append(seq)


class ExportState:
    """The state of an export so far: branches, the seqs of each stream, and which conversations are open."""

    def __init__(self) -> None:
        self.branches: dict[str, int] = {"": 0}
        """The number of each branch by its name."""
        self._numbers: dict[str, int] = {}
        self._actors: dict[str, int] = dict(ACTOR_NUMBERS)
        self._positions = Positions()
        self._opened: dict[str, list[tuple[int, bool]]] = {}
        """Conversation -> the seqs at which it was opened or closed, each with whether it was open from then on."""
        self._erased: set[int] = set()
        self._explained: set[int] = set()
        """The seqs that ``Erased`` events name."""

    @property
    def streams(self) -> int:
        """Number of streams that have events, over all branches."""
        return len(self._positions)

    @property
    def unexplained_seqs(self) -> tuple[int, ...]:
        """The seqs of erased events that no ``Erased`` event names, because the export ends before it."""
        return tuple(sorted(self._erased - self._explained))

    def number(self, fork: str, stream: str) -> int:
        """Return the number of a stream, in the order in which lines name streams: the same in every pass."""
        return self._numbers.setdefault(key_of(self.branches[fork], stream), len(self._numbers) + 1)

    def actor(self, line: ExportLine) -> int:
        """Return the number of a line's actor; ``InvalidInput`` if no earlier line named the actor."""
        number = self._actors.get(line.actor)
        if number is None:
            raise InvalidInput(
                f"seq {line.seq}: its actor {checks.brief(line.actor)} was not named before it; export again, the file "
                f"was changed"
            )
        return number

    def has(self, fork: str, stream: str) -> bool:
        """Return whether a stream has events of its own in a branch."""
        return fork in self.branches and self._positions.has(self.branches[fork], stream)

    def position(self, fork: str, stream: str) -> Position:
        """Return the head of a stream, including what its branch inherited."""
        return self._positions.at(self.branches[fork], stream)

    def is_erased(self, seq: int) -> bool:
        """Return whether the line of a seq says that its event was erased."""
        return seq in self._erased

    def is_open(self, fork: str, stream: str) -> bool:
        """Return whether a conversation takes messages."""
        branch, until = self.branches[fork], _END
        while True:
            changes = self._opened.get(key_of(branch, stream), [])
            last = next((is_open for seq, is_open in reversed(changes) if seq <= until), None)
            if last is not None or not branch:
                return last is True
            branch, until = self._positions.elder(branch, until)

    def note(self, line: ExportLine, event: Event) -> None:
        """Record a line."""
        branch = self.branches[line.branch]
        self._positions.note(branch, line.stream, line.seq)
        if line.erased:
            self._erased.add(line.seq)
        if isinstance(event, Erased):
            self._explained.update(event.seqs)
        is_open = _opens(event)
        if is_open is not None:
            self._opened.setdefault(key_of(branch, line.stream), []).append((line.seq, is_open))
        if isinstance(event, ActorNamed):
            name = f"{ERASED_PREFIX}{line.seq}" if line.erased else event.name
            self._actors.setdefault(name, NAMED_ACTORS_FROM + line.seq)
        if isinstance(event, BranchForked):
            forks = self._positions.forks
            name = f"{ERASED_PREFIX}{len(forks) + 1}" if line.erased else event.name
            forks.append(Branch(name, event.base_branch, event.base_seq))
            self.branches[name] = len(forks)


def _opens(event: Event) -> bool | None:
    """Return whether an event leaves its conversation open or closed, or ``None`` if it does neither."""
    if isinstance(event, ForkDropped):
        return False
    if isinstance(event, StateImported):
        return bool(event.policy)
    if isinstance(event, (Forked, Restored)):
        return event.base_seq > 0
    return True if isinstance(event, ConversationOpened) else None


# Checks on the lines of an export: each must fit those before it, and hold nothing that no verb could have written.
#
# An export is a text file that people keep, edit and pass on. Everything that a fold relies on is checked here, before
# a load writes its first event.

_SIGNED_MAX: Final = 2**63
_POINTERS: Final = frozenset((*fold.SCALAR_SEQS, "base_seq"))


class ExportCheck:
    """The checks of an export's lines, in order."""

    def __init__(self, state: ExportState) -> None:
        self.events = 0
        self._state = state
        self._time_ns = -_SIGNED_MAX
        self._command = 0

    def vet(self, line: ExportLine, event: Event) -> None:
        """Check the next line; ``InvalidInput`` with its seq if it cannot have been exported."""
        problem = _first(self._problems(line, event))
        if problem is not None:
            raise InvalidInput(f"seq {line.seq}: {problem}; export again, the file was changed")
        self.events += 1
        self._time_ns, self._command = line.time_ns, line.command

    def _problems(self, line: ExportLine, event: Event) -> Iterator[str]:
        yield from self._order(line)
        yield from self._pointers(line, event)
        if isinstance(event, BranchForked):
            yield from self._fork(line, event)
        if isinstance(event, Erased):
            yield from self._erasure(line, event)
        if type(event) not in fold.BASE_TYPES and type(event) not in fold.KINDS[kind_of(line.stream)].handlers:
            yield f"a {line.kind} event does not belong in {line.stream}"
        if isinstance(event, SnapshotNamed) and not line.erased:
            checks.name(event.name, "name")
        if type(event) in fold.LISTING:
            fold.check_size(event)
        yield from _contents(event, is_erased=line.erased)

    def _order(self, line: ExportLine) -> Iterator[str]:
        kind, _, name = line.stream.partition("/")
        version = self._state.position(line.branch, line.stream).version
        if kind not in fold.KINDS or not name or len(name.encode()) > NAME_BYTES_MAX:
            yield f"the stream {line.stream!r} is of no known kind"
        if kind == kind_of(STORE_STREAM) and line.stream != STORE_STREAM:
            yield f"the stream of the store is {STORE_STREAM}, not {line.stream}"
        if line.seq != self.events + 1:
            yield f"it should be seq {self.events + 1}"
        if line.version != version + 1:
            yield f"{line.stream} goes from version {version} to {line.version}"
        if not self._time_ns <= line.time_ns < _SIGNED_MAX or not -_SIGNED_MAX <= line.happened_ns < _SIGNED_MAX:
            yield "its time is out of order or beyond 64 bits"
        if line.command not in (self._command, line.seq) or not 0 <= line.cause < line.seq:
            yield "its command or cause is out of order"

    def _pointers(self, line: ExportLine, event: Event) -> Iterator[str]:
        """Check that everything an event names came before it."""
        named = [*event.sources, *getattr(event, "seqs", ())]
        if not all(1 <= seq < line.seq for seq in named):
            yield "it names a seq that does not come before it"
        pointed = [getattr(event, field) for field in event.__struct_fields__ if field in _POINTERS]
        if any(seq >= line.seq for seq in pointed):
            yield "it points at a seq that does not come before it"
        if "base_stream" in event.__struct_fields__ and any(pointed):
            yield from self._base(line, event)
        needs_open = line.stream.startswith("conversation/") and not isinstance(event, fold.OPENING)
        if needs_open and not self._state.is_open(line.branch, line.stream):
            yield f"{line.stream} is not open"

    def _base(self, line: ExportLine, event: Event) -> Iterator[str]:
        """Check that the base stream of an event exists and, for a fork or a restore, is of the same kind."""
        base = line.event.get("base_stream")
        if isinstance(event, SnapshotNamed) and base == "":
            return  # A snapshot of the whole memory.
        if not isinstance(base, str) or not self._state.has(line.event.get("base_branch", ""), base):
            yield f"its base {checks.brief(base)} is no stream that comes before it"
        elif isinstance(event, (Forked, Restored)) and kind_of(base) != kind_of(line.stream):
            yield f"its base {base} is of another kind than {line.stream}"

    def _erasure(self, line: ExportLine, event: Erased) -> Iterator[str]:
        """Check that the events that an erasure names are marked as erased, and that the erasure itself is not."""
        if line.erased:
            yield "an erasure is never erased"
        seq = next((seq for seq in event.seqs if not self._state.is_erased(seq)), None)
        if seq is not None:
            yield f"it says that seq {seq} was erased, and the line of seq {seq} is not marked so"

    def _fork(self, line: ExportLine, event: BranchForked) -> Iterator[str]:
        """Check the properties of a fork of the memory that later lines rely on."""
        if line.branch or line.stream != STORE_STREAM:
            yield f"a fork of the memory belongs in {STORE_STREAM} of the main line alone"
        if not line.erased:
            checks.name(event.name, "name")
            if event.name in self._state.branches or is_reserved(event.name):
                yield f"the fork's name {checks.brief(event.name)} is taken"


def problem_in(event: Event) -> str | None:
    """Return the first flaw in an event from outside that no verb could have written, or ``None``."""
    return _first(_contents(event, is_erased=False))


def _first(problems: Iterator[str]) -> str | None:
    try:
        return next(problems, None)
    except (InvalidInput, LimitExceeded, *checks.UNDECODABLE, OverflowError, TypeError) as error:
        return str(error)


def _contents(event: Event, *, is_erased: bool) -> Iterator[str]:
    yield from _fields(event)
    yield from _values(event)
    event.check(is_erased=is_erased)
    fold.encode(event)


def _fields(event: Event) -> Iterator[str]:
    """Check every field: floats are finite, integers in range and only times negative, texts valid and not too long."""
    rows: list[Struct] = [event]
    if isinstance(event, StateImported):
        rows += [*event.messages, *event.bodies]
    for row in rows:
        for field in row.__struct_fields__:
            value = getattr(row, field)
            for item in cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,):
                yield from _scalar(field, item)


def _scalar(field: str, value: object) -> Iterator[str]:
    least = -_SIGNED_MAX if field in ("time_ns", "occurred_ns", "created_ns") else 0
    if isinstance(value, str):
        checks.text(value, field)
    elif isinstance(value, float) and not isfinite(value):
        yield f"{field} is {value}"
    elif isinstance(value, int) and not least <= value < _SIGNED_MAX:
        yield f"{field} is {checks.brief(value)}"


def _values(event: Event) -> Iterator[str]:
    """Check budgets, policies and names, and the values that an imported state has for several views."""
    if isinstance(event, ConversationOpened):
        checks.window_tokens(event.window_tokens)
        checks.name(event.counter, "counter")
        if event.policy not in EVICTION:
            yield f"the eviction policy {event.policy} is unknown; upgrade refold"
    if isinstance(event, fold.OPENING) and event.project is not None:
        checks.name(event.project, "project")
    if isinstance(event, StateImported):
        yield from _import_problems(event)


def _import_problems(event: StateImported) -> Iterator[str]:
    if event.policy:
        checks.window_tokens(event.window_tokens)
        checks.name(event.counter, "counter")
    if event.policy and event.policy not in EVICTION:
        yield f"the eviction policy {event.policy} is unknown; upgrade refold"
    if event.bodies and len(event.bodies) != len(event.messages):
        yield f"{len(event.messages)} messages have {len(event.bodies)} bodies"
    if unknown := {message.role for message in event.messages} - set(ROLES):
        yield f"messages are of unknown roles: {', '.join(sorted(unknown))}"
    for body in event.bodies:
        check_body(body)
    for key, value in event.entries:
        checks.key(key)
        checks.text(value, "value")
    for message in event.messages:
        checks.tokens(message.tokens)
    for key, packed in event.state:
        checks.key(key)
        checks.packed_json(decode_json(packed), "value")
