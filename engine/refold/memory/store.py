"""Verbs of a whole store: snapshots, restores, forks, export, backup, erasure, verification."""

import datetime as dates
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from msgspec.structs import replace

from refold import checks
from refold.engine import batch as batches
from refold.engine import history, reader
from refold.engine.conflicts import ANY
from refold.engine.reader import Request, Side
from refold.engine.scan import places_of
from refold.engine.streams import STORE_STREAM, key_of
from refold.engine.transaction import Transaction
from refold.errors import InvalidInput, LimitExceeded, NotFound, ReadOnly, StoreBusy, WrongVersion
from refold.event import (
    BranchForked,
    ConversationEnded,
    Event,
    ForkDropped,
    Forked,
    Recorded,
    Restored,
    SnapshotNamed,
    StateImported,
)
from refold.fold import State
from refold.limits import (
    BASE_DEPTH_MAX,
    ERASED_CHARS_MIN,
    GROUP_COUNT_MAX,
    MEMORY_BYTES_MIN,
    NAME_BYTES_MAX,
    REDO_COUNT_MAX,
)
from refold.log.commits import is_address
from refold.log.protocol import Log
from refold.memory import snapshot as memory_snapshot
from refold.memory.core import Core, core_of, stream_of
from refold.memory.drops import dropped_ids
from refold.memory.options import Options, Progress, check_callables, check_page, check_path, seq_at, seq_in
from refold.memory.references import check_results
from refold.memory.scratchpad import Scratchpad
from refold.memory.snapshot import Snapshot
from refold.message import Message
from refold.results import Backup, Loaded, Moved, Receipt, Recovered, Stats
from refold.text import TokenCounter, pluralize
from refold.views.scratchpad import SCRATCH, NoteAdded, ScratchpadCleared, ScratchpadSet
from refold.views.session import SESSION
from refold.views.store import SETTINGS, is_reserved

if TYPE_CHECKING:
    from refold.engine.erasure import Target

# Arguments of the constructor.


def is_delayed(durability: object, place: str | None, *, readonly: bool) -> bool:
    """Return whether writes are acknowledged before the disk has them."""
    if durability not in ("durable", "delayed"):
        checks.invalid(f"durability is {checks.brief(durability)}; give 'durable' or 'delayed'")
    if durability == "delayed" and readonly:
        checks.invalid("durability='delayed' says how to write, and readonly=True forbids it; drop one")
    if durability == "delayed" and place is not None and is_address(place):
        checks.invalid("durability='delayed' is for a directory: a log on a server has its commits at once; drop it")
    return durability == "delayed"


def check_place(path: object, *, readonly: bool, clears: bool) -> str | None:
    """Check the path of a store, ``None`` for one in RAM, with the options that go with it, and return it."""
    if path is None and readonly:
        checks.invalid("a memory in RAM is empty, so readonly=True makes no sense; give a path")
    checked = None if path is None else check_path(path)
    if checks.flag(clears, "clear_scratchpads_on_open") and readonly:
        checks.invalid("clear_scratchpads_on_open=True changes the store, and readonly=True forbids it; drop one")
    return checked


def check_bytes(memory_bytes: object) -> int:
    """Check and return the bound on RAM."""
    if not isinstance(memory_bytes, int) or isinstance(memory_bytes, bool) or memory_bytes < MEMORY_BYTES_MIN:
        shown = checks.brief(memory_bytes)
        checks.invalid(f"memory_bytes is {shown}; give an int of at least MEMORY_BYTES_MIN = {MEMORY_BYTES_MIN}")
    return memory_bytes


def check_counter(counter: object) -> TokenCounter:
    """Check that a token counter has the required attributes, and return it."""
    if not isinstance(counter, TokenCounter):
        checks.invalid(f"token_counter needs an id and count(text), which {checks.brief(counter)} lacks")
    checks.name(counter.id, "token_counter.id")
    return counter


# Erasures, checked before the engine performs them.

_DERIVED: Final = {"erase": True, "keep": False}
_FORKS: Final = {"erase": True, "refuse": False}


def erase(core: Core, at: int | None, given: object, text: object, derived: object, forks: object) -> Receipt:
    """Erase events, given as seqs, as results that have one, or by a text that they contain, and whole streams."""
    _check_erasable(core, "the memory", at)
    if text is not None:
        core.engine.refresh()  # So that everything acknowledged to other machines is examined too.
    receipt = _erase(core, _target_of(core, given, text), derived, forks)
    named = () if text is None else tuple(history.names_with(core.engine.reader, cast("str", text)))
    return replace(receipt, named=named)


def erase_stream(core: Core, stream: str, at: int | None, derived: object, forks: object) -> Receipt:
    """Erase a stream: a conversation, a project or a board."""
    from refold.engine.erasure import Target  # noqa: PLC0415 - loaded only for erasures

    _check_erasable(core, stream, at)
    return _erase(core, Target(streams=[(core.branch, stream)]), derived, forks)


def _erase(core: Core, target: "Target", derived: object, forks: object) -> Receipt:
    from refold.engine import erasure  # noqa: PLC0415 - loaded only for erasures

    takes, has_forks = _check_choice(derived, "derived", _DERIVED), _check_choice(forks, "forks", _FORKS)
    _clear_indexes(core)
    reader = core.engine.reader
    seqs = {seq for seq in target.seqs if 0 < seq <= reader.current_head()}
    for branch, name in target.streams:
        seqs |= {recorded.stamp.seq for recorded in reader.events(key_of(branch, name), 0)}
    shown = _count_reach(core, seqs)
    return replace(erasure.erase(core.engine, target, derived=takes, forks=has_forks), **shown)


def _target_of(core: Core, given: object, text: object) -> "Target":
    from refold.engine.erasure import Target  # noqa: PLC0415 - loaded only for erasures

    if not isinstance(given, Iterable) or isinstance(given, (str, bytes)):
        checks.invalid(
            f"seqs must be a list of seqs, results or handles, not {type(given).__name__} ({checks.brief(given)})"
        )
    items = [getattr(item, "plain", item) for item in cast("Iterable[object]", given)]
    handles = [item for item in items if _is_erasable(item)]
    results = [item for item in items if not _is_erasable(item)]
    streams = [_place_of(core, handle) for handle in handles]
    # The events of handles or seqs that are given beside a text need not contain it.
    return Target(_find_seqs(core, results, text), streams, None if items else cast("str | None", text))


def _is_erasable(item: object) -> bool:
    """Return whether something given to an erasure is a handle on a stream that can be erased whole."""
    return hasattr(item, "erase") and hasattr(item, "_stream")


def _place_of(core: Core, handle: object) -> tuple[int, str]:
    """Return branch and name of the stream of a handle."""
    own, at = core_of(handle)
    if own.engine is not core.engine:
        checks.invalid(f"{checks.brief(handle)} is of another memory; erase it there")
    stream = stream_of(handle)
    _check_erasable(own, stream, at)
    return own.branch, stream


def _find_seqs(core: Core, given: Sequence[object], text: object) -> set[int]:
    """Return the seqs that an erasure was asked for, including those of the events that contain the text."""
    from refold.engine import scan  # noqa: PLC0415 - loaded only for erasures
    from refold.engine.spellings import Spelling  # noqa: PLC0415 - as above

    numbers = [_seq(item) for item in given]
    check_results(core.engine, given, numbers)
    _check_whole(core, given)
    checked = set(numbers)
    if text is not None:
        if len(checks.text(text, "text").strip()) < ERASED_CHARS_MIN:
            checks.invalid(
                f"text is {checks.brief(text)}; give at least ERASED_CHARS_MIN = {ERASED_CHARS_MIN} characters, or "
                f"much is erased that only happens to hold it"
            )
        checked.update(scan.seqs_spelling(core.engine.reader, Spelling(cast("str", text))))
    return checked


def _check_whole(core: Core, given: Sequence[object]) -> None:
    """Raise ``InvalidInput`` for messages of an imported state: its event brought all of them, and more."""
    if StateImported not in core.engine.reader.types_written:
        return
    whole = {item for item in given if isinstance(item, int)}
    messages: dict[int, set[str]] = {}
    for item in given:
        if isinstance(item, Message) and item.seq not in whole:
            messages.setdefault(item.seq, set()).add(item.id)
    for seq, ids in messages.items():
        event, stamp = core.event(seq)
        if stamp.erased or not isinstance(event, StateImported):
            continue
        others = sum(message.id not in ids for message in event.messages)
        more = [pluralize(others, "other message")] if others else []
        if event.entries or event.notes or event.state:
            more.append("its scratchpad and state")
        if more:
            raise InvalidInput(
                f"message {min(ids)} came with a whole state at seq {seq}, which is erased as one, with "
                f"{' and '.join(more)}; give the seq {seq} itself to erase them all"
            )


class Extent(NamedTuple):
    """The events that an erasure would erase: the seqs that it was asked for, and the events derived from them.

    Derived events of streams other than conversations come first.
    """

    seqs: list[int]
    derived: list[Recorded]


def extent_of(core: Core, conversation: str | None, seqs: object, text: object, *, forks: bool) -> Extent:
    """Return the events that an erasure would erase; raise the same errors as the erasure."""
    from refold.engine import erasure  # noqa: PLC0415 - loaded only for erasures

    reader = core.engine.reader
    with reader.state_lock:
        reader.notice()
        if conversation is None:
            target = _target_of(core, seqs, text)
        else:
            target = erasure.Target(streams=[(core.branch, f"conversation/{conversation}")])
        plan = erasure.make_plan(reader, target, derived=True, forks=forks)
    derived = [core.event(seq) for seq in plan.derived]
    return Extent(plan.seqs, sorted(derived, key=lambda recorded: recorded.stamp.stream.startswith("conversation/")))


def _clear_indexes(core: Core) -> None:
    from refold.memory.earlier import EarlierMessages  # noqa: PLC0415 - loaded only for erasures
    from refold.memory.message_indexes import MessageIndexes  # noqa: PLC0415 - as above

    core.part(MessageIndexes).clear()
    core.part(EarlierMessages).clear()


def _count_reach(core: Core, seqs: set[int]) -> dict[str, int]:
    """Return the receipt fields that count the turns and conversations in which a model saw events to be erased."""
    from refold.memory.exposure import reach  # noqa: PLC0415 - loaded only for erasures

    turns, conversations = reach(core, seqs)
    return {"turns": turns, "conversations": conversations}


def _check_erasable(core: Core, what: str, at: int | None) -> None:
    if at is not None:
        raise ReadOnly(f"{what} is frozen at seq {at}; erase through the live handle, which reaches every seq")
    batches.check_no_batch(core.engine, "an erasure")
    core.engine.reader.check_writable()


def _check_choice(value: object, option: str, known: dict[str, bool]) -> bool:
    if not isinstance(value, str) or value not in known:
        checks.invalid(f"{option} is {checks.brief(value)}; give one of {', '.join(map(repr, known))}")
    return known[value]


def _seq(item: object) -> int:
    stamp = getattr(item, "stamp", None)
    seq = item if stamp is None else stamp.seq
    if not isinstance(seq, int) or isinstance(seq, bool) or seq < 1:
        checks.invalid(
            f"{checks.brief(item)} is no seq, no result that has one and nothing that is erased whole; give seqs from "
            f"1 on, results, or handles such as a conversation"
        )
    return seq


# Exports, backups and recoveries.


def export(core: Core, at: int | None, path: object, overwrite: object) -> int:
    """Write the log up to ``at`` as JSONL to a file outside of the store, and return the number of events."""
    from refold.engine import transfer  # noqa: PLC0415 - loaded only for exports

    place, overwrites = check_path(path), checks.flag(overwrite, "overwrite")
    return transfer.export(core.engine, place, at, store_path=core.path, overwrite=overwrites)


def load(core: Core, path: object, progress: Progress, rename: Mapping[str, str] | None) -> Loaded:
    """Load an export into a memory that is no fork."""
    from refold.engine import transfer  # noqa: PLC0415 - loaded only for exports

    batches.check_no_batch(core.engine, "a load")
    if core.branch:
        checks.invalid("an export is of a whole store, with its forks; load it into the main memory")
    return transfer.load(core.engine, check_path(path), progress, transfer.check_rename(rename))


def backup(core: Core, path: object, progress: Progress) -> Backup:
    """Copy a memory's store, forks included, to a path where nothing exists."""
    from refold.engine import backup as engine_backup  # noqa: PLC0415 - loaded only for backups

    core.engine.reader.check_open()
    batches.check_no_batch(core.engine, "a backup")
    checked = check_path(path)
    if core.path is None:
        checks.invalid("a memory in RAM has no file to back up; export(path) writes its log, load takes it back in")
    return engine_backup.backup(core.engine, checked, core.path, progress)


def recover(
    backup: "str | os.PathLike[str]",
    new: "str | os.PathLike[str]",
    *,
    to: "int | dates.datetime | None" = None,
    progress: Progress = None,
    clock_ns: Callable[[], int] = time.time_ns,  # noqa: TID251 - the one source of time
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> Recovered:
    """Make a new store from a backup, or from any store: all of it, or its log up to a seq or an aware datetime.

    The new file contains nothing later, and caches are rebuilt from the log. If a faulty writer counted or linked
    events wrongly, the new store has every event once, in the order of the log, and ``repairs`` lists the differences.
    The store is verified, with ``progress(done, all)``, before it appears at ``new``, which must not exist yet.
    Raises ``InvalidInput`` for a seq inside a commit, naming the seqs around it, ``NotFound`` if there is no backup,
    ``StoreCorrupt`` if bytes were changed, ``StoreFull``; nothing is left at ``new`` then.
    """
    from refold.engine import backup as engine_backup  # noqa: PLC0415 - it needs LMDB, which a handle might not

    check_callables(clock_ns=clock_ns, random_bytes=random_bytes)
    return engine_backup.recover(
        check_path(backup),
        check_path(new),
        None if to is None else partial(_seq_of, to),
        clock_ns=clock_ns,
        random_bytes=random_bytes,
        progress=progress,
    )


def move(
    source: "str | os.PathLike[str]",
    target: "str | os.PathLike[str]",
    *,
    cache: "str | os.PathLike[str] | None" = None,
    progress: Progress = None,
    clock_ns: Callable[[], int] = time.time_ns,  # noqa: TID251 - the one source of time
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> Moved:
    """Move a memory from a directory to a log on a server, from there to a new directory, or between servers.

    Other writers can write meanwhile. Towards the end the source is marked, and later writes to it raise ``ReadOnly``
    with the new place. Both sides then have the same events and the same state, and the source can be read as before.
    Calling an interrupted move again continues it. ``progress(done, all)`` counts events. Raises ``InvalidInput`` if
    the target holds something else, ``NotFound`` if there is no source, ``StoreUnreachable``.
    """
    from pathlib import Path  # noqa: PLC0415 - loads modules that a first context does not need

    from refold.engine import backup as engine_backup  # noqa: PLC0415 - it needs LMDB, which a handle might not
    from refold.engine.move import move as moving  # noqa: PLC0415 - as above

    check_callables(clock_ns=clock_ns, random_bytes=random_bytes)
    places = check_path(source, "source"), check_path(target, "target")
    if not any(map(is_address, places)):
        checks.invalid(f"{places[0]} and {places[1]} are directories; copy a store with backup, and rename it")
    if not (is_address(places[0]) or Path(places[0]).is_dir()):
        raise NotFound(f"there is no store at {places[0]}; give the path of a store")
    opened = partial(
        engine_backup.open_store,
        clock_ns=clock_ns,
        random_bytes=random_bytes,
        cache=None if cache is None else check_path(cache, "cache"),
    )
    return moving(*places, opened, progress or (lambda _done, _all: None))


def _seq_of(to: "int | dates.datetime", log: Log) -> int:
    head = log.head()
    seq = seq_in(log, head, to, head)
    if not seq and isinstance(to, dates.datetime):
        checks.invalid(f"nothing had been written by {to}; give a later time, or a seq from 0 to {head}")
    return seq


# The sides of a diff.


def sides_of(core: Core, head: int, a: object, b: object) -> tuple[Side, Side]:
    """Resolve the two sides of a diff."""
    return _side_of(core, head, a, "a"), _side_of(core, head, b, "b")


def _side_of(core: Core, head: int, side: Any, what: str) -> Side:
    """Resolve one side of a diff to its branch, seq and stream (``None``: all streams)."""
    side = getattr(side, "plain", side)  # A handle for asyncio stands for the plain one that it wraps.
    if isinstance(side, Snapshot):
        _check_own(core, side.origin, side)
        return Side(side.branch, side.seq, side.stream or None)
    other: Core | None = getattr(side, "_core", None)
    if other is None:
        if not isinstance(side, (int, dates.datetime)):
            known = "a seq, an aware datetime, a Memory, a Conversation or a Snapshot"
            checks.invalid(f"{what} is {checks.brief(side)}; give {known}")
        return Side(core.branch, seq_at(core.engine, side, head, what))
    other.engine.reader.check_open()
    _check_own(core, other.engine, side)
    stream, seq = side.place if hasattr(side, "place") else (None, side.head)
    return Side(other.branch, seq, stream)


def _check_own(core: Core, engine: object, side: object) -> None:
    if engine is not core.engine:
        raise InvalidInput(f"{checks.brief(side)} belongs to another memory; restore it into a conversation here first")


_WHOLE = 0  # The stream number of snapshots of a whole memory; no stream has it.


def snapshot(core: Core, name: str | None, at: int | None, options: Options) -> Snapshot:
    """Take a pointer to the state of a whole memory; with a name, record it."""
    engine = core.engine
    if at is None:
        batches.check_no_batch(engine, "a snapshot")
    if name is None:
        memory_snapshot.refuse_options(options)
        return Snapshot("", engine.reader.current_head() if at is None else at, None, engine, core.branch)
    name = memory_snapshot.check_name(name)
    if at is not None:
        raise ReadOnly(
            f"this memory is frozen at seq {at}; name a snapshot of the live one, or take an unnamed one here"
        )
    sources = core.sources(options.sources)

    def decide(state: State) -> Event | None:
        core.check_head(options.expected)
        known = state.part(SETTINGS).snapshots.get((_WHOLE, name))
        if known is None:
            return SnapshotNamed(sources, _WHOLE, engine.reader.head, name)
        if engine.reader.differing_streams(Side(core.branch, known.seq), Side(core.branch, engine.reader.head)):
            raise InvalidInput(f"snapshot {name!r} of the memory already exists at seq {known.seq}; give another name")
        return None

    core.write(STORE_STREAM, decide, at=None, call=("memory.snapshot", name), request_id=options.request_id)
    return get_snapshot(core, name)


def get_snapshot(core: Core, name: str) -> Snapshot:
    """Return the named snapshot of the whole memory."""
    match = core.read_written(STORE_STREAM, lambda state: state.part(SETTINGS).snapshots.get((_WHOLE, name)))
    if match is None:
        raise NotFound(
            f"the memory has no snapshot named {checks.brief(name)}; memory.snapshots() lists those that exist, "
            f"those of the memory without a stream"
        )
    return Snapshot("", match.seq, name, core.engine, core.branch)


_COUNTED_MAX: Final = 1_000
"""How many conversations the ``repr`` of a memory counts at most; beyond that it says "more than"."""


def conversations(
    core: Core, at: int | None, prefix: object, after: str | None, limit: int | None, dropped: object
) -> list[str]:
    """Return the ids of existing or of dropped conversations, sorted and paged."""
    wants_dropped = checks.flag(dropped, "dropped")
    gone = dropped_ids(core, at) if ForkDropped in core.engine.reader.types_written else frozenset[str]()
    if wants_dropped:
        start = checks.text(prefix, "prefix", NAME_BYTES_MAX, "NAME_BYTES_MAX")
        after, limit = check_page(after, limit)
        return sorted(each for each in gone if each.startswith(start) and (after is None or each > after))[:limit]
    found: list[str] = []
    while True:
        page = names(core, at, "conversation", prefix, after, limit)
        found += [each for each in page if each not in gone]
        if limit is None or len(page) < limit or len(found) >= limit:
            return found[:limit]
        after = page[-1]


def counts(core: Core, at: int | None) -> str:
    """Return the counts for the ``repr`` of a memory."""
    reader = core.engine.reader
    fork = f"fork={reader.branch_name(core.branch)!r}, " if core.branch else ""
    count = len(conversations(core, at, "", None, _COUNTED_MAX + 1, dropped=False))
    shown = count if count <= _COUNTED_MAX else f"more than {_COUNTED_MAX}"
    return f"{fork}events={reader.current_head() if at is None else at}, conversations={shown}"


def stats(core: Core, at: int | None) -> Stats:
    """Return counts of events, streams and bytes, without dropped conversations."""
    counted = history.stats(core.engine, core.branch, core.path, at)
    if ForkDropped not in core.engine.reader.types_written:
        return counted
    return replace(counted, conversations=counted.conversations - len(dropped_ids(core, at)))


def names(core: Core, at: int | None, kind: str, prefix: object, after: str | None, limit: int | None) -> list[str]:
    """Return the sorted names of a kind's streams that have a prefix and follow ``after``, at most ``limit``."""
    start = checks.text(prefix, "prefix", NAME_BYTES_MAX, "NAME_BYTES_MAX")
    after, limit = check_page(after, limit)
    return history.ids(core.engine, core.branch, kind, at=at, prefix=start, after=after, limit=limit)


def snapshots(core: Core, at: int | None, after: object, limit: object) -> list[Snapshot]:
    """Return a page of the named snapshots, of conversations and of the whole memory, in the order of their seqs."""
    if after is not None and not isinstance(after, Snapshot):
        checks.invalid(f"after must be a Snapshot, not {type(after).__name__} ({checks.brief(after)})")
    count = None if limit is None else checks.count(limit, "limit")
    engine = core.engine
    known = core.read_written(STORE_STREAM, lambda state: list(state.part(SETTINGS).snapshots.values()), at)
    streams = engine.reader.streams
    places = sorted(
        (each.seq, streams.name_of(each.stream) if each.stream else "", each.name, each.cut) for each in known
    )
    begin = 0 if after is None else bisect_right(places, (after.seq, after.stream, after.name or "", after.cut))
    end = None if count is None else begin + count
    return [Snapshot(stream, seq, name, engine, core.branch, cut) for seq, stream, name, cut in places[begin:end]]


def restore(core: Core, target: object, options: Options) -> None:
    """Continue from an earlier state of the whole memory: one commit, with one event for each stream that differs."""
    engine = core.engine
    batches.check_no_batch(engine, "a restore of the whole memory")
    engine.reader.check_writable()
    sources = core.sources(options.sources)
    base = _base(core, target)
    call = ("memory.restore", target if isinstance(target, str) else [base.branch, base.seq])
    request = None if options.request_id is None else core.request(options.request_id, STORE_STREAM, call)
    for _ in range(REDO_COUNT_MAX):
        if request is not None and engine.reader.is_answered(request):
            return
        pending = _restoration(core, base, sources, options.expected, request)
        try:
            engine.commit(pending)
        except WrongVersion:
            continue
        return
    raise StoreBusy(
        f"the memory was written to in each of REDO_COUNT_MAX = {REDO_COUNT_MAX} attempts to restore it; "
        f"let its writers pause and call again"
    )


def _base(core: Core, target: object) -> Side:
    if isinstance(target, str):
        target = get_snapshot(core, target)
    if not isinstance(target, Snapshot):
        checks.invalid(f"restore takes a Snapshot or a name, not {type(target).__name__} ({checks.brief(target)})")
    if target.stream:
        checks.invalid(f"the snapshot is of {target.stream} alone; give it to the restore of a conversation")
    if target.origin is None:
        checks.invalid("this Snapshot was made by hand; take one with memory.snapshot()")
    if target.origin is not core.engine and not memory_snapshot.is_of_earlier_handle(core, target):
        checks.invalid("the snapshot is of another memory; export that one and load it into a new path instead")
    return Side(target.branch, target.seq)


def _restoration(
    core: Core, base: Side, sources: tuple[int, ...], expected: object, request: Request | None
) -> Transaction:
    engine = core.engine
    head = engine.reader.current_head()
    core.check_head(expected)
    pending = Transaction(core.engine.reader)
    for key, version, event in _restore_events(core, Side(core.branch, head), base, sources):
        pending.insert(key, event)
        pending.reads[key] = version
    if request is not None:
        pending.requests[request.id_hash] = (request, range(len(pending.events)))

    def is_current() -> bool:
        if expected != ANY:
            return engine.reader.head == head
        return not engine.reader.differing_streams(Side(core.branch, head), Side(core.branch, engine.reader.head))

    pending.is_current = is_current
    return pending


def _restore_events(core: Core, now: Side, base: Side, sources: tuple[int, ...]) -> Iterator[tuple[str, int, Restored]]:
    """Yield key, version and event of each stream whose state differs from its state at the base."""
    engine, elder = core.engine, core.with_branch(base.branch)
    for stream in sorted(engine.reader.differing_streams(now, base)):
        if engine.reader.digests_of(core.key(stream), None) == engine.reader.digests_of(elder.key(stream), base.seq):
            continue
        place = memory_snapshot.pointer(elder, stream, base.seq)
        # Unlike the restore of one conversation, this also restores its project: the whole memory is as it was.
        depth, _ = core.read_written(stream, _identity)
        _, project = elder.read_written(stream, _identity, base.seq)
        yield core.key(stream), engine.reader.version(core.key(stream)), Restored(sources, *place, depth, project)


def _identity(state: State) -> tuple[int, str | None]:
    if SESSION not in state.kind.views:
        return 0, None
    session = state.part(SESSION)
    return session.depth, session.project


def fork(core: Core, name: str, frozen: int | None, at: "int | dates.datetime | None", options: Options) -> Core:
    """Return the core of a fork of the live memory: the one of that name, or a new one from now or from ``at``."""
    if frozen is not None:
        raise ReadOnly(f"this memory is frozen at seq {frozen}; call fork(name, at={frozen}) of the live one")
    seq = None if at is None else seq_at(core.engine, at)
    name = checks.name(name, "name")
    known = _find_fork(core, name) if seq is None and options == Options() else None
    if known is not None:
        return known
    batches.check_no_batch(core.engine, "a fork of the memory")
    engine, sources = core.engine, core.sources(options.sources)

    def decide(state: State) -> Event | None:
        core.check_head(options.expected)
        settings = state.part(SETTINGS)
        if name in settings.numbers:
            if seq is not None:
                checks.invalid(f"the fork {name!r} exists already; leave at= out to open it, or give another name")
            return None
        if is_reserved(name):
            checks.invalid(f"{name!r} is what a fork is called whose name was erased; give another name")
        if reader.depth_of(settings.branches, core.branch) >= BASE_DEPTH_MAX:
            raise LimitExceeded(f"this fork is BASE_DEPTH_MAX = {BASE_DEPTH_MAX} forks deep already; fork an ancestor")
        return BranchForked(sources, core.branch, engine.reader.head if seq is None else seq, name)

    call = ("memory.fork", core.branch, name, seq)
    core.write(STORE_STREAM, decide, at=None, call=call, request_id=options.request_id, in_main=True)
    forked = _find_fork(core, name)
    if forked is None:
        raise NotFound(f"the fork {name!r} of this request was erased; give another request_id to make it anew")
    return forked


def _find_fork(core: Core, name: str) -> Core | None:
    def query(state: State) -> tuple[int, bool]:
        settings = state.part(SETTINGS)
        number = settings.numbers.get(name, 0)
        return number, reader.descends(settings.branches, number, core.branch)

    number, descends = core.engine.reader.read(STORE_STREAM, query)
    if not number:
        return None
    if not descends:
        checks.invalid(f"the fork {name!r} exists and was not forked from this one; open it from the main memory")
    return core.with_branch(number)


def clear_scratchpads(core: Core) -> None:
    """Clear all scratchpads that are not empty, including those of forks, up to ``GROUP_COUNT_MAX`` per commit."""
    with core.engine.reader.state_lock:
        numbers = range(len(core.engine.reader.branches_at(None)) + 1)
    filled = [
        Scratchpad(branch, stream, None, branch.opening())
        for branch, streams in zip(map(core.with_branch, numbers), _streams_with_notes(core, numbers), strict=True)
        for stream in streams
        if not branch.read(stream, lambda state: state.part(SCRATCH).is_empty, None)
    ]
    for first in range(0, len(filled), GROUP_COUNT_MAX):
        with batches.Batch(core.engine):
            for scratchpad in filled[first : first + GROUP_COUNT_MAX]:
                scratchpad.clear()


_FILLING: Final = (ScratchpadSet, NoteAdded, StateImported)
_EMPTYING: Final = (ScratchpadCleared, ConversationEnded, ForkDropped)


def _streams_with_notes(core: Core, branches: Iterable[int]) -> Iterator[list[str]]:
    """Yield for each branch the conversations whose scratchpads may hold something, sorted.

    The log is scanned, which takes less time than to read the state of each conversation.
    """
    names = core.engine.reader.names()
    known = set[str]()  # Conversations that held something in any branch.
    last: dict[tuple[int, str], bool] = {}  # Branch and conversation -> whether they may hold something.
    for seq, number, event_type in places_of(core.engine.reader, (*_FILLING, *_EMPTYING, Forked, Restored)):
        stream = names.stream(number)
        fills = event_type in _FILLING
        if event_type in (Forked, Restored):
            base = cast("Forked | Restored", core.event(seq).event).base_stream
            fills = bool(base) and names.stream(base) in known
        if fills:
            known.add(stream)
        last[names.branch_of(number), stream] = fills
    for branch in branches:
        # Where a branch has no such event of its own, it may hold what its parent held.
        yield sorted(stream for stream in known if last.get((branch, stream), bool(branch)))


def forks(core: Core, at: int | None, after: str | None, limit: int | None) -> list[str]:
    """Return the sorted names of the branches that were forked from this one, directly or through other forks."""
    after, limit = check_page(after, limit)
    known = core.engine.reader.branches_at(at)
    below = (
        branch.name
        for number, branch in enumerate(known, 1)
        if reader.descends(known, number, core.branch) and (after is None or branch.name > after)
    )
    from heapq import nsmallest  # noqa: PLC0415 - loaded only for a page

    return sorted(below) if limit is None else nsmallest(limit, below)
