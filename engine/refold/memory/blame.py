"""Blame: every value that a key ever had, with its writer and turn, and the writer of each line of a file."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from refold import checks, fold
from refold.engine.scan import EventFilter, events_before
from refold.errors import NotFound
from refold.event import (
    FLAG_BASE,
    FLAG_ERASED,
    Erased,
    Event,
    ForkDropped,
    Forked,
    Recorded,
    StateImported,
    unpack_json,
)
from refold.fold import State
from refold.memory.core import Core
from refold.memory.reasons import Revision
from refold.message import MessageAppended
from refold.views.board import BOARD, MESSAGES, BoardChanged, BoardMessageAppended
from refold.views.files import FILES, FileCreated, FileDeleted, FileEdited, FileRenamed, splice
from refold.views.profile import PROFILE
from refold.views.scratchpad import SCRATCH
from refold.views.session import SESSION
from refold.views.skills import SKILLS, SkillLearned, SkillRefined
from refold.views.state import STATE, TEMP
from refold.views.store import SWITCHES
from refold.views.table import TABLE

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_CAUSES_COUNT_MAX: Final = 32
_CONVERSATION: Final = "conversation/"


def _unpack_value(event: Any) -> Any:
    return unpack_json(event.packed)


KEY_KINDS: Final[dict[str, Callable[[State], Any]]] = {
    "scratchpad": lambda state: state.part(SCRATCH).entries,
    "state": lambda state: state.part(STATE).entries,
    "profile": lambda state: state.part(PROFILE).entries,
    "setting": lambda state: state.part(SWITCHES).values,
    "switch": lambda state: state.part(SKILLS).toggles,
    "skill note": lambda state: state.part(SKILLS).notes,
    "board": lambda state: state.part(BOARD).entries,
    "item": lambda state: state.part(TABLE),
}
"""How to get the entries that a state holds by key, by the kind of subject that events declare."""

_VALUES: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("scratchpad", "profile"), lambda event: event.value),
    **dict.fromkeys(("state", "setting"), _unpack_value),
    "item": lambda event: unpack_json(event.item),
    "switch": lambda event: event.enabled,
    "skill note": lambda event: event.text,
}
"""How to get the value that an event gives to a key, by kind."""


def board_revisions(core: Core, stream: str, fields: Sequence[str], at: int | None) -> list[Revision]:
    """Return the values of some fields of a board up to a seq, for every node that the board was at."""
    changes = core.events(EventFilter((), (BoardChanged, BoardMessageAppended)), stream, until=at)
    changed = dict.fromkeys(field for event, _ in changes for field in fields_of(event))
    own = [field for field in changed if field.partition("@")[0] in fields]
    values = [revision for field in own for revision in revisions(core, stream, "board", field, at)]
    return sorted(values, key=lambda revision: revision.seq)


def fields_of(event: Event) -> tuple[str, ...]:
    """Return the fields of a board that an event set or removed."""
    if isinstance(event, BoardMessageAppended):
        return (event.field,)
    return event.fields if isinstance(event, BoardChanged) else ()


def holds_key(kind: str, key: str, state: State) -> bool:
    """Return whether a key has a value."""
    if kind == "board" and key in state.part(BOARD).listings:
        return True
    entries = KEY_KINDS[kind](state)
    return key in (entries if isinstance(entries, dict) else entries.values)


def revisions(core: Core, stream: str, kind: str, key: str, at: int | None) -> list[Revision]:
    """Return the values that a key of a stream had up to a seq, oldest first, with its removals in between."""
    until = core.engine.reader.current_head() if at is None else at
    setters = sorted(_setters(core, stream, kind, key, until), key=lambda recorded: recorded.stamp.seq)
    revised: list[Revision] = []
    turns: dict[int, int] = {}
    for place, recorded in enumerate(setters):
        revised += _values(core, kind, key, recorded, turns)
        seq, last = recorded.stamp.seq, revised[-1]
        current = 0 if last.removed or last.erased else seq
        if place + 1 < len(setters):
            following = setters[place + 1]
            end, is_settled = following.stamp.seq - 1, current and getattr(following.event, "prior", 0) == current
        else:
            end = until
            is_settled = core.read_written(stream, partial(setter_of, kind, key, known=seq), until) == current
        # A value that exists at the end may have been missing in between.
        if is_settled and not _has_bases(core):
            continue
        spans = [(own, min(last_seq, end)) for own, last_seq in origins(core, stream, until) if last_seq > seq]
        if not is_settled or any(_may_be_restored(core, own, seq, last_seq) for own, last_seq in spans):
            revised += _indirect_changes(core, reversed(spans), kind, key, current, seq)
    return revised


def _has_bases(core: Core) -> bool:
    """Return whether any stream of the store ever continued from another state."""
    return not core.engine.reader.types_written.isdisjoint((*fold.BASE_TYPES, StateImported))


def _may_be_restored(core: Core, stream: str, seq: int, until: int) -> bool:
    """Return whether another state may have taken the place of a stream's state after a seq."""
    if not _has_bases(core):
        return False
    if not stream.startswith(_CONVERSATION):
        return True
    return core.read_written(stream, lambda state: state.part(SESSION).based > seq, until)


def _setters(core: Core, stream: str, kind: str, key: str, until: int) -> Iterator[Recorded]:
    """Yield the events that set or deleted a key: by pointers to the events they replaced, then by a scan."""
    entries_of = KEY_KINDS[kind]

    def last(state: State) -> tuple[int, int]:
        return entries_of(state).prior(key)[0], state.part(SESSION).based

    # After a restore, the pointers skip what was written between its base and the restore.
    is_pointed = kind in ("scratchpad", "state") and stream.startswith(_CONVERSATION)
    seq, based = core.read_written(stream, last, until) if is_pointed else (0, 0)
    below = until
    while seq > based:
        recorded = core.event(seq)
        yield recorded
        below = seq - 1
        seq = getattr(recorded.event, "prior", 0)
    if is_pointed and not seq and core.engine.reader.types_written.isdisjoint(_removers(kind)):
        return  # Nothing was ever removed in this store, so the pointers led to the first value.
    below = max(below, based)
    for own, end in origins(core, stream, below):
        for recorded in core.events(_key_search(kind, key), own, until=end):
            if sets_key(recorded.event, kind, key):
                yield recorded


@cache
def _removers(kind: str) -> frozenset[type[Event]]:
    """Return the types of all events after which a key may lack a value that it once had."""
    ending = {each for each in fold.TAGS if kind in each.ends or "temp" in each.ends}
    naming = {each for each in fold.TAGS if each.subject[0] == kind and each.removes is not Event.removes}
    return frozenset((*ending, *naming, *fold.BASE_TYPES, Erased, ForkDropped, StateImported))


def _key_search(kind: str, key: str) -> EventFilter:
    """Return a search that finds the events that set or deleted a key."""
    if kind != "board":
        # In its event, a key is a separate string after its length, so texts that contain the word do not match.
        return EventFilter((_ENCODE(key),))
    part = key.partition("@")[0]
    return EventFilter((part.encode(),), (BoardMessageAppended,) if part == MESSAGES else ())


def origins(core: Core, stream: str, until: int) -> Iterator[tuple[str, int]]:
    """Yield a stream and the conversations it was forked from, each with the seq up to which it counts."""
    reader = core.engine.reader
    while until > 0:
        yield stream, until
        first = next(reader.events(core.key(stream), 0, until), None)
        if first is None or not isinstance(first.event, Forked) or not first.event.base_stream:
            return  # Not a fork, or the fork of a conversation without events.
        stream, until = reader.names().stream(first.event.base_stream), first.event.base_seq


def sets_key(event: Event, kind: str, key: str) -> bool:
    """Return whether an event set or deleted a key of a kind."""
    if isinstance(event, StateImported):
        rows = {"scratchpad": event.entries, "state": event.state}.get(kind, ())
        return any(name == key for name, _ in rows)
    if kind == "board":
        return key in fields_of(event)
    return event.subject[0] == kind and getattr(event, event.subject[1]) == key


def _values(core: Core, kind: str, key: str, recorded: Recorded, turns: dict[int, int]) -> Iterator[Revision]:
    event, stamp = recorded
    base = Revision(
        key,
        None,
        stamp.seq,
        stamp.stream,
        fold.NAMES[type(event)],
        stamp.time_ns,
        stamp.occurred_ns,
        stamp.actor,
        stamp.cause,
        turn_of(core, recorded, turns),
    )
    if stamp.erased:
        yield replace(base, erased=True)
    elif isinstance(event, StateImported):
        value = dict(event.entries)[key] if kind == "scratchpad" else unpack_json(dict(event.state)[key])
        yield replace(base, value=value)
    elif isinstance(event, BoardChanged):
        values: dict[str, Any] = _unpack_value(event) if event.packed else {}
        yield replace(base, value=values[key]) if key in values else replace(base, removed=True)
    elif isinstance(event, BoardMessageAppended):
        yield replace(base, value=_unpack_value(event))
    elif event.removes(key):
        yield replace(base, removed=True)
    else:
        yield replace(base, value=_VALUES[kind](event))


def _indirect_changes(
    core: Core, spans: Iterable[tuple[str, int]], kind: str, key: str, current: int, after: int
) -> Iterator[Revision]:
    """Yield the events that removed a value, or brought one back, without naming its key.

    ``current`` is the seq of the event that set the value, 0 for none. ``spans`` are the streams to look in, the
    origins of a fork first, each with the seq up to which it counts.
    """
    kinds = ("state", "temp") if kind == "state" and key.startswith(TEMP) else (kind,)
    enders = tuple(event_type for event_type in fold.TAGS if set(kinds) & set(event_type.ends))
    sought = EventFilter((), (*enders, StateImported), FLAG_BASE | FLAG_ERASED)
    events = ((own, each) for own, until in spans for each in core.events(sought, own, after=after, until=until))
    for stream, recorded in events:
        is_of_others = recorded.event.subject[0] != kind and not isinstance(recorded.event, (*enders, StateImported))
        if is_of_others and not recorded.stamp.flags & FLAG_BASE:  # An erased event removes the value it had replaced.
            continue
        seq = recorded.stamp.seq
        if isinstance(recorded.event, enders):
            now = 0
        else:
            now = core.read_written(stream, partial(setter_of, kind, key, known=current or after), seq)
        if now != current:
            event, stamp = recorded
            name, turn = fold.NAMES[type(event)], turn_of(core, recorded)
            value = _value_at(core, stream, kind, key, seq) if now else None
            times = (stamp.time_ns, stamp.occurred_ns, stamp.actor, stamp.cause)
            yield Revision(key, value, seq, stream, name, *times, turn, removed=not now)
        current = now


def setter_of(kind: str, key: str, state: State, known: int) -> int:
    """Return the seq of the event that set a key: 0 if it has no value, ``known`` if the state does not record it."""
    if not holds_key(kind, key, state):
        return 0
    entries = KEY_KINDS[kind](state)
    return known if isinstance(entries, dict) else entries.seqs.get(key, known)


def _value_at(core: Core, stream: str, kind: str, key: str, seq: int) -> Any:
    def query(state: State) -> Any:
        entries = KEY_KINDS[kind](state)
        if kind == "item":
            return unpack_json(getattr(core.event(entries.seqs[key]).event, "item"))  # noqa: B009 - it holds one
        value: Any = getattr(entries, "values")[key] if kind != "setting" else entries[key]  # noqa: B009
        return unpack_json(value) if isinstance(value, bytes) else value

    return core.read_written(stream, query, seq)


# The turn that led to an event.


def causes_of(core: Core, recorded: Recorded) -> Iterator[Recorded]:
    """Yield the chain of events that led to an event, the nearest first."""
    for _ in range(_CAUSES_COUNT_MAX):
        cause = recorded.stamp.cause
        if not 0 < cause < recorded.stamp.seq:
            return
        recorded = core.event(cause)
        yield recorded


def turn_of(core: Core, recorded: Recorded, passed: dict[int, int] | None = None) -> int:
    """Return the seq of the user's message that led to an event, 0 if there is none.

    ``passed`` holds the turns of the events that earlier searches passed, and gets those that this one passes.
    """
    for cause in causes_of(core, recorded):
        if isinstance(cause.event, MessageAppended) and cause.event.role == "user":
            return cause.stamp.seq
    if not recorded.stamp.stream.startswith(_CONVERSATION):
        return 0
    passed = {} if passed is None else passed
    turn, seqs = 0, [recorded.stamp.seq]
    for seq, event in events_before(core.engine.reader, recorded.stamp.seq):
        if isinstance(event, MessageAppended) and event.role == "user":
            turn = seq
            break
        if seq in passed:
            turn = passed[seq]
            break
        seqs.append(seq)
    passed |= dict.fromkeys(seqs, turn)
    return turn


# Files: the writer of each line.


_WRITING: Final = (FileCreated, FileEdited, SkillLearned, SkillRefined)


class _LineVersion(NamedTuple):
    text: str
    recorded: Recorded
    before: "tuple[_LineVersion, ...]" = ()


def file_revisions(core: Core, stream: str, path: str, line: int | None, at: int | None) -> list[Revision]:
    """Return the writer of each line of a file, or of each text that one ``line`` (from 1) had, oldest first.

    For a path at which no file is any more, these are of the last one, with the event that removed or moved it.
    """
    until = core.engine.reader.current_head() if at is None else at
    place = find_file(core, stream, path, until)
    if place is None:
        raise NotFound(f"there is no file {checks.brief(path)} at seq {until}; memory.files().list() shows all")
    revisions = _line_revisions(core, stream, place.id, line, place.until)
    if place.end is not None:
        event, stamp = place.end
        times = (stamp.time_ns, stamp.occurred_ns, stamp.actor, stamp.cause)
        base = Revision(path, None, stamp.seq, stream, fold.NAMES[type(event)], *times, turn_of(core, place.end))
        revisions.append(replace(base, removed=True))
    return revisions


class FilePlace(NamedTuple):
    """A file at a path: its id, the last seq at which it was there, and the event that removed or moved it."""

    id: str
    until: int
    end: Recorded | None


def find_file(core: Core, stream: str, path: str, until: int) -> FilePlace | None:
    """Return the file at a path, or the last one that was there."""

    def file_at(seq: int) -> str | None:
        node = core.read_written(stream, lambda state: state.part(FILES).nodes.get(path), seq)
        return None if node is None or node.text is None else node.id

    file_id = file_at(until)
    if file_id is not None:
        return FilePlace(file_id, until, None)
    for recorded in core.events(EventFilter((), (FileDeleted, FileRenamed)), stream, until=until, backwards=True):
        event, stamp = recorded
        if isinstance(event, (FileDeleted, FileRenamed)) and event.path and f"{path}/".startswith(f"{event.path}/"):
            file_id = file_at(stamp.seq - 1)
            if file_id is not None:
                return FilePlace(file_id, stamp.seq - 1, recorded)
    return None


def skill_revisions(core: Core, stream: str, name: str, line: int | None, at: int | None) -> list[Revision]:
    """Return the writer of each line of a learned skill, as for a file; nothing if the log does not hold it."""
    until = core.engine.reader.current_head() if at is None else at
    learned = core.read_written(stream, lambda state: state.part(SKILLS).find(name), until)
    return [] if learned is None else _line_revisions(core, stream, learned.id, line, until)


def _line_revisions(core: Core, stream: str, text_id: str, line: int | None, until: int) -> list[Revision]:
    events = core.events(EventFilter((text_id.encode(),)), stream, until=until)
    lines = _lines([each for each in events if isinstance(each.event, _WRITING) and each.event.id == text_id])
    if line is None:
        return [_line_revision(core, number, each) for number, each in enumerate(lines, 1)]
    checks.count(line, "line")
    if not 1 <= line <= len(lines):
        checks.invalid(f"line is {line}; the file has lines 1 to {len(lines)}")
    return [_line_revision(core, line, each) for each in _earlier_lines(lines[line - 1])]


def _lines(chain: Sequence[Recorded]) -> list[_LineVersion]:
    text, lines = "", list[_LineVersion]()
    for recorded in chain:
        event = recorded.event
        assert isinstance(event, _WRITING), event
        changed = splice(text, event) if isinstance(event, FileEdited) else event.text
        old, new = [each.text for each in lines], changed.splitlines()
        first = next((place for place, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), None)
        first = min(len(old), len(new)) if first is None else first
        rest = min(len(old), len(new)) - first
        last = next((place for place in range(rest) if old[-1 - place] != new[-1 - place]), rest)
        gone, fresh = lines[first : len(old) - last], new[first : len(new) - last]
        is_paired = len(gone) == len(fresh)
        made = [
            _LineVersion(each, recorded, (gone[place],) if is_paired else tuple(gone))
            for place, each in enumerate(fresh)
        ]
        lines = [*lines[:first], *made, *lines[len(old) - last :]]
        text = changed
    return lines


def _earlier_lines(line: _LineVersion) -> list[_LineVersion]:
    earlier, waiting, seen = list[_LineVersion](), [line], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) not in seen:
            seen.add(id(each))
            earlier.append(each)
            waiting += each.before
    return sorted(earlier, key=lambda each: each.recorded.stamp.seq)


def _line_revision(core: Core, number: int, line: _LineVersion) -> Revision:
    event, stamp = line.recorded
    times = (stamp.time_ns, stamp.occurred_ns, stamp.actor, stamp.cause)
    turn = turn_of(core, line.recorded)
    return Revision(str(number), line.text, stamp.seq, stamp.stream, fold.NAMES[type(event)], *times, turn)
