"""Snapshots, restores and forks of a whole memory: how each is decided and what each returns; and its verification."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from refold import checks
from refold.engine import batch as batches
from refold.engine import branches, history
from refold.engine.branches import Side
from refold.engine.loader import Recorded
from refold.engine.pending import ANY, Pending, Request
from refold.engine.streams import STORE_STREAM
from refold.errors import InvalidInput, LimitExceeded, NotFound, ReadOnly, StoreBusy, WrongVersion
from refold.event import BranchForked, Event, Restored, SnapshotNamed
from refold.fold import State
from refold.limits import BASE_DEPTH_MAX, REDO_COUNT_MAX
from refold.memory import travel
from refold.memory.arguments import checked_path, checked_witness, paged
from refold.memory.door import Door, Options
from refold.memory.moments import seq_at
from refold.memory.snapshot import Snapshot
from refold.results import Backup, Loaded, Receipt, Report
from refold.views.session import SESSION
from refold.views.settings import SETTINGS, is_reserved

if TYPE_CHECKING:
    import datetime
    import os

    from refold.memory.memory import Memory

_WHOLE = 0
"""The number under which the snapshots of a whole memory are kept: that of no stream."""


def verify(door: Door, progress: Callable[[int, int], None] | None, witness: object) -> Report:
    """Return what is wrong with the store, held against the witness, or the memory's own, if there is one."""
    return history.verify(door.engine, door.branch, progress, checked_witness(witness, door.path))


def counts(memory: "Memory", door: Door) -> str:
    """Return the counts that a memory shows of itself."""
    fork = f"fork={branches.name_of(door.engine, door.branch)!r}, " if door.branch else ""
    return f"{fork}events={memory.head}, conversations={len(memory.conversations())}"


def head(door: Door, at: int | None) -> int:
    """Return the seq of the last event, or the one at which a memory is frozen."""
    door.engine.check_open()
    return door.engine.current_head() if at is None else at


def events(door: Door, at: int | None, after: int, until: int | None) -> Iterator[Recorded]:
    """Return the events of all streams of a branch with ``after < seq <= until``."""
    checks.count(after, "after")
    last = at if until is None else seq_at(door.engine, until, head(door, at))
    return door.engine.all_events(after, last, door.branch)


def snapshot(door: Door, name: str | None, at: int | None, options: Options) -> Snapshot:
    """Return a pointer to the state of a whole memory; with a name, record it, once and for ever."""
    engine = door.engine
    batches.refuse(engine, "a snapshot")
    if name is None:
        travel.refuse_options(options)
        return Snapshot("", engine.current_head() if at is None else at, None, engine, door.branch)
    name = travel.checked_name(name)
    if at is not None:
        message = f"this memory is frozen at seq {at}; name a snapshot of the live one, or take an unnamed one here"
        raise ReadOnly(message)
    decide = _naming(door, name, options)
    door.note(STORE_STREAM, decide, at=None, asked=("memory.snapshot", name), request_id=options.request_id)
    return named(door, name)


def _naming(door: Door, name: str, options: Options) -> Callable[[State], Event | None]:
    engine, sources = door.engine, door.sources(options.sources)

    def decide(state: State) -> Event | None:
        door.check_head(options.expected)
        known = state.part(SETTINGS).snapshots.get((_WHOLE, name))
        if known is None:
            return SnapshotNamed(sources, _WHOLE, engine.head, name)
        if branches.differing(engine, Side(door.branch, known.seq), Side(door.branch, engine.head)):
            message = f"snapshot {name!r} of the memory already stands at seq {known.seq}; give another name"
            raise InvalidInput(message)
        return None

    return decide


def named(door: Door, name: str) -> Snapshot:
    """Return the snapshot of the whole memory that was kept under a name."""
    found = door.read_written(STORE_STREAM, lambda state: state.part(SETTINGS).snapshots.get((_WHOLE, name)))
    if found is None:
        message = (
            f"the memory has no snapshot named {checks.shown(name)}; memory.snapshots() lists those that exist, "
            f"those of the memory without a stream"
        )
        raise NotFound(message)
    return Snapshot("", found.seq, name, door.engine, door.branch)


def snapshots(door: Door, at: int | None) -> list[Snapshot]:
    """Return the named snapshots, of conversations and of the whole, in the order of their seqs."""
    engine = door.engine
    known = door.read_written(STORE_STREAM, lambda state: list(state.part(SETTINGS).snapshots.values()), at)
    ordered = sorted(known, key=lambda found: (found.seq, found.stream, found.name))
    streams = [engine.streams.name_of(found.stream) if found.stream else "" for found in ordered]
    return [
        Snapshot(stream, found.seq, found.name, engine, door.branch)
        for stream, found in zip(streams, ordered, strict=True)
    ]


def restore(door: Door, target: object, options: Options) -> None:
    """Go on from an earlier state of the whole memory: one commit, one event for each stream that differs."""
    engine = door.engine
    batches.refuse(engine, "a restore of the whole memory")
    engine.check_writable()
    sources = door.sources(options.sources)
    base = _base(door, target)
    asked = ("memory.restore", target if isinstance(target, str) else [base.branch, base.seq])
    request = None if options.request_id is None else door.request(options.request_id, STORE_STREAM, asked)
    for _ in range(REDO_COUNT_MAX):
        if request is not None and engine.is_answered(request):
            return
        pending = _restoration(door, base, sources, options.expected, request)
        try:
            engine.commit_batch(pending)
        except WrongVersion:
            continue
        return
    message = (
        f"the memory was written to in each of REDO_COUNT_MAX = {REDO_COUNT_MAX} attempts to restore it; "
        f"let its writers pause and call again"
    )
    raise StoreBusy(message)


def _base(door: Door, target: object) -> Side:
    """Return the branch and the seq that a snapshot of a whole memory, or its name, stands for."""
    if isinstance(target, str):
        target = named(door, target)
    if not isinstance(target, Snapshot):
        checks.invalid(f"restore takes a Snapshot or a name, not {type(target).__name__} ({checks.shown(target)})")
    if target.stream:
        checks.invalid(f"the snapshot is of {target.stream} alone; give it to the restore of a conversation")
    if target.origin is None:
        checks.invalid("this Snapshot was made by hand; take one with memory.snapshot()")
    if target.origin is not door.engine and not travel.is_of_earlier_handle(door, target):
        checks.invalid("the snapshot is of another memory; export that one and load it into a new path instead")
    return Side(target.branch, target.seq)


def _restoration(
    door: Door, base: Side, sources: tuple[int, ...], expected: object, request: Request | None
) -> Pending:
    """Return the batch that brings every stream back that differs now, if nothing changes before it is written."""
    engine = door.engine
    head = engine.current_head()
    door.check_head(expected)
    pending = Pending()
    for key, version, event in _restored(door, Side(door.branch, head), base, sources):
        pending.add(key, event, None)
        pending.reads[key] = version
    if request is not None:
        pending.requests[request.id_hash] = (request, range(len(pending.events)))

    def stands() -> bool:
        if expected != ANY:
            return engine.head == head
        return not branches.differing(engine, Side(door.branch, head), Side(door.branch, engine.head))

    pending.stands = stands
    return pending


def _restored(door: Door, now: Side, base: Side, sources: tuple[int, ...]) -> Iterator[tuple[str, int, Restored]]:
    """Return key, version and event of the streams whose state is not what it was at the base."""
    engine, elder = door.engine, door.to(base.branch)
    for stream in sorted(branches.differing(engine, now, base)):
        if engine.digests_of(door.key(stream), None) == engine.digests_of(elder.key(stream), base.seq):
            continue
        place = travel.pointer(elder, stream, base.seq)
        # Unlike the restore of one conversation, this one brings back its project too: the whole is as it was.
        depth, _ = door.read_written(stream, _identity)
        _, project = elder.read_written(stream, _identity, base.seq)
        yield door.key(stream), engine.version(door.key(stream)), Restored(sources, *place, depth, project)


def _identity(state: State) -> tuple[int, str | None]:
    """Return how deep a conversation is forked, and its project; other streams have neither."""
    if SESSION not in state.kind.views:
        return 0, None
    session = state.part(SESSION)
    return session.depth, session.project


def fork_from(
    door: Door, name: str, frozen: int | None, at: "int | datetime.datetime | None", options: Options
) -> Door:
    """Return the door to a fork of the live memory, from now or from a seq or a datetime."""
    if frozen is not None:
        message = f"this memory is frozen at seq {frozen}; call fork(name, at={frozen}) of the live one"
        raise ReadOnly(message)
    return fork(door, name, None if at is None else seq_at(door.engine, at), options)


def fork(door: Door, name: str, seq: int | None, options: Options) -> Door:
    """Return the door to a fork of the memory: the one of that name, or a new one from now or from a seq."""
    name = checks.name(name, "name")
    known = _opened(door, name) if seq is None and options == Options() else None
    if known is not None:
        return known
    batches.refuse(door.engine, "a fork of the memory")
    decide = _forking(door, name, seq, options)
    asked = ("memory.fork", door.branch, name, seq)
    door.note(STORE_STREAM, decide, at=None, asked=asked, request_id=options.request_id, in_main=True)
    forked = _opened(door, name)
    assert forked is not None, f"{name} was forked and is not there"
    return forked


def _opened(door: Door, name: str) -> Door | None:
    """Return the door to a branch that exists; ``InvalidInput`` if it was not forked from this one."""
    known = branches.branches_at(door.engine, None)
    number = next((number for number, branch in enumerate(known, 1) if branch.name == name), 0)
    if not number:
        return None
    if not branches.descends(known, number, door.branch):
        checks.invalid(f"the fork {name!r} exists and was not forked from this one; open it from the main memory")
    return door.to(number)


def _forking(door: Door, name: str, seq: int | None, options: Options) -> Callable[[State], Event | None]:
    engine, sources = door.engine, door.sources(options.sources)

    def decide(state: State) -> Event | None:
        door.check_head(options.expected)
        settings = state.part(SETTINGS)
        if name in settings.numbers:
            if seq is not None:
                checks.invalid(f"the fork {name!r} exists already; leave at= out to open it, or give another name")
            return None
        if is_reserved(name):
            checks.invalid(f"{name!r} is what a fork is called whose name was erased; give another name")
        if branches.depth_of(settings.branches, door.branch) >= BASE_DEPTH_MAX:
            message = f"this fork is BASE_DEPTH_MAX = {BASE_DEPTH_MAX} forks deep already; fork an ancestor"
            raise LimitExceeded(message)
        return BranchForked(sources, door.branch, engine.head if seq is None else seq, name)

    return decide


def ids(door: Door, at: int | None, kind: str, after: str | None, limit: int | None) -> list[str]:
    """Return a page of the ids of the streams of a kind, sorted."""
    known, wanted = paged(after, limit)
    return history.ids(door.engine, door.branch, kind, at=at, after=known, limit=wanted)


def forks(door: Door, at: int | None, after: str | None, limit: int | None) -> list[str]:
    """Return the names of the branches that were forked from this one, directly or through others, sorted."""
    after, limit = paged(after, limit)
    known = branches.branches_at(door.engine, at)
    below = (
        branch.name
        for number, branch in enumerate(known, 1)
        if branches.descends(known, number, door.branch) and (after is None or branch.name > after)
    )
    from heapq import nsmallest  # noqa: PLC0415 - loaded only by those who ask for a page

    return sorted(below) if limit is None else nsmallest(limit, below)


def clear_scratchpads(memory: "Memory") -> None:
    """Empty the scratchpad of every conversation of a memory that was just opened; close it where that fails."""
    try:
        for conversation_id in memory.conversations():
            memory.conversation(conversation_id).clear()
    except BaseException:
        memory.close()
        raise


def backup(door: Door, path: "str | os.PathLike[str]", progress: Callable[[int, int], None] | None) -> Backup:
    """Copy the whole store to a path where nothing is."""
    from refold.memory import backups  # noqa: PLC0415 - loaded only by those who move a store, as below

    return backups.backup(door, path, progress)


def export(door: Door, path: "str | os.PathLike[str]", at: int | None) -> int:
    """Write every event with its stamp to a JSONL file; return how many there were."""
    from refold.engine import transfer  # noqa: PLC0415

    return transfer.export(door.engine, checked_path(path), at)


def erase(door: Door, at: int | None, seqs: Iterable[Any], derived: str) -> Receipt:
    """Erase the bytes of events; return what was reached."""
    from refold.memory import erasing  # noqa: PLC0415 - loaded only by those who erase

    return erasing.erase_events(door, at, seqs, derived)


def load(
    door: Door,
    path: "str | os.PathLike[str]",
    progress: Callable[[int, int], None] | None,
    rename: Mapping[str, str] | None,
) -> Loaded:
    """Load an export into the main line."""
    from refold.engine import joining, transfer  # noqa: PLC0415 - loaded only by those who move a store

    batches.refuse(door.engine, "a load")
    if door.branch:
        checks.invalid("an export is of a whole store, with its forks; load it into the main memory")
    return transfer.load(door.engine, checked_path(path), progress, joining.checked_rename(rename))
