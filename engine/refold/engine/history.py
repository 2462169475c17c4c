"""What is asked of the whole log: hashes, differences, counts, and whether everything is as it should be."""

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final

import msgspec

from refold import fold
from refold.engine.changes import changes_between
from refold.engine.checkpoints import Checkpoints
from refold.engine.core import Engine
from refold.engine.loader import Loader
from refold.engine.streams import STORE_STREAM, Streams
from refold.limits import PAGE_EVENTS
from refold.results import Change, Report, Stats
from refold.store.record import STAMP
from refold.views.settings import SETTINGS

_ENCODE: Final = msgspec.msgpack.Encoder().encode


def ids(engine: Engine, kind: str, *, at: int | None, after: str | None, limit: int | None) -> list[str]:
    """Return the ids of the streams of a kind that had an event by ``at``, sorted."""
    prefix = len(kind) + 1
    found: list[str] = []
    with engine.state_lock:
        engine.check_open()
        for name in engine.streams.names(kind, "" if after is None else f"{kind}/{after}"):
            if limit is not None and len(found) >= limit:
                break
            if at is None or engine.last_seq(name, at):
                found.append(name[prefix:])
    return found


def state_hash(engine: Engine, at: int | None) -> str:
    """Return the SHA-256 over (stream, view, digest) of every state that is not empty."""
    with engine.state_lock:
        engine.current_head()
        slots = (engine.streams.find(name) for name in engine.streams.names(""))
        return _hash((slot.name, engine.digests(slot, at)) for slot in slots if slot is not None)


def replay_hash(engine: Engine, at: int | None) -> str:
    """Return the state hash of a fold from the first event on: no checkpoint row takes part."""
    with engine.state_lock:
        engine.check_open()
        until = engine.current_head() if at is None else at
        streams, loader = from_zero(engine, until)
        states = loader.replayed(until)
        named = ((streams.name_of(number), state) for number, state in states.items())
        return _hash((name, fold.digests(state)) for name, state in named)


def from_zero(engine: Engine, until: int) -> tuple[Streams, Loader]:
    """Return streams and loader that know every event up to ``until`` by itself, and no checkpoint."""
    checkpoints = Checkpoints(None)
    streams = Streams(engine.log, checkpoints)
    streams.scan_tail(0, until)
    return streams, Loader(engine.log, streams, checkpoints)


def _hash(streams: Iterable[tuple[str, list[tuple[str, bytes]]]]) -> str:
    rows = [(name, view, digest) for name, digests in streams if name != STORE_STREAM for view, digest in digests]
    return sha256(_ENCODE(sorted(rows))).hexdigest()


def diff(engine: Engine, a: tuple[str | None, int], b: tuple[str | None, int]) -> list[Change]:
    """Return the changes from side ``a`` to side ``b``, each a stream (``None``: all) and a seq."""
    (stream_a, seq_a), (stream_b, seq_b) = a, b
    if stream_a is None and stream_b is None:
        pairs = [(name, name) for name in sorted(_touched(engine, min(seq_a, seq_b), max(seq_a, seq_b)))]
    else:
        pairs = [(stream_a or stream_b or "", stream_b or stream_a or "")]
    changes: list[Change] = []
    for before, after in pairs:
        plain_before = engine.read(before, fold.plain, seq_a)
        plain_after = engine.read(after, fold.plain, seq_b)
        changes.extend(changes_between(after, plain_before, plain_after))
    return changes


def _touched(engine: Engine, after: int, until: int) -> set[str]:
    """Return the streams that have events with ``after < seq <= until``, but for the store's own."""
    numbers: set[int] = set()
    seq = after
    while seq < until:
        records = engine.log.read(seq + 1, min(PAGE_EVENTS, until - seq))
        numbers.update(STAMP.unpack_from(record)[0] for record in records)
        seq += len(records)
    return {engine.streams.name_of(number) for number in numbers} - {STORE_STREAM}


def stats(engine: Engine, path: str | None, at: int | None) -> Stats:
    """Return counts of events, streams by kind, named snapshots, and bytes."""
    counts = {kind: len(ids(engine, kind, at=at, after=None, limit=None)) for kind in fold.KINDS}
    return Stats(
        engine.current_head() if at is None else at,
        counts["conversation"],
        counts["project"],
        counts["profile"],
        counts["journal"],
        engine.read(STORE_STREAM, lambda state: len(state.part(SETTINGS).snapshots), at),
        engine.log.size_bytes(),
        path,
    )


def verify(engine: Engine, progress: Callable[[int, int], None] | None = None) -> Report:
    """Return what is wrong with the log, its rows and the live states; all writers of all processes wait meanwhile."""
    from refold.engine.inspection import Inspection  # noqa: PLC0415 - loaded only by those who ask

    with engine.exclusive():
        engine.check_open()
        with engine.log.still() as turn, engine.state_lock:
            if turn.moved:
                engine.catch_up()
            inspection = Inspection(engine, lambda: from_zero(engine, engine.head))
            findings = tuple(inspection.findings(progress or _silent))
            hashed = "" if findings else state_hash(engine, None)
            return Report(not findings, findings, engine.head, len(list(engine.streams.names(""))), hashed)


def _silent(done: int, whole: int) -> None:
    """Show no progress."""
