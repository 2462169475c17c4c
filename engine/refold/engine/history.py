"""Queries over the whole log: hashes, differences, ids and counts."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, cast

import msgspec

from refold import fold
from refold.engine.engine import Engine
from refold.engine.loader import Loader
from refold.engine.reader import Reader, Side
from refold.engine.streams import STORE_STREAM, CheckpointGaps, Checkpoints, Streams, key_of, kind_of
from refold.event import unpack_json
from refold.results import Change, Stats
from refold.text import sha256
from refold.views.board import plain_name
from refold.views.store import SETTINGS, SWITCHES
from refold.views.table import TABLE, Pointer

# Differences between two states, as paths with the values before and after.

_ABSENT = object()
"""The value of a path that does not exist, which is not the same as a JSON null."""


def changes_between(
    stream: str, before: dict[str, Any], after: dict[str, Any], *, by_order: Collection[str] = ()
) -> Iterator[Change]:
    """Return the changes from one plain state to another, view by view, in a fixed order.

    In the views of ``by_order``, dicts with the same keys in a different order differ too.
    """
    for view in sorted({*before, *after}):
        sides = before.get(view, {}), after.get(view, {})
        for path, old, new in _differences((), *sides, by_order=view in by_order):
            yield Change(stream, view, path, old, new)


def _differences(
    path: tuple[str | int, ...], before: object, after: object, *, by_order: bool = False
) -> Iterator[tuple[tuple[str | int, ...], Any, Any]]:
    old: Any = before
    new: Any = after
    if isinstance(before, dict) and isinstance(after, dict):
        olds, news = cast("dict[str, object]", before), cast("dict[str, object]", after)
        if by_order and list(olds) != list(news):
            yield path, _value_or_none(old), _value_or_none(new)
            return
        for key in dict.fromkeys((*olds, *news)):
            yield from _differences((*path, key), olds.get(key, _ABSENT), news.get(key, _ABSENT), by_order=by_order)
    elif isinstance(before, list) and isinstance(after, list):
        firsts, seconds = cast("list[object]", before), cast("list[object]", after)
        for place in range(max(len(firsts), len(seconds))):
            yield from _differences((*path, place), _item(firsts, place), _item(seconds, place), by_order=by_order)
    elif not _is_same(old, new):
        yield path, _value_or_none(old), _value_or_none(new)


def _is_same(before: object, after: object) -> bool:
    """Return whether two values are the same JSON; ``1``, ``1.0`` and ``true`` differ, as do ``0.0`` and ``-0.0``."""
    return type(before) is type(after) and before == after and (type(before) is not float or str(before) == str(after))


def _item(items: list[object], place: int) -> object:
    return items[place] if place < len(items) else _ABSENT


def _value_or_none(value: object) -> object:
    return None if value is _ABSENT else value


_ENCODE: Final = msgspec.msgpack.Encoder().encode


def ids(
    engine: Engine,
    branch: int,
    kind: str,
    *,
    at: int | None = None,
    prefix: str = "",
    after: str | None = None,
    limit: int | None = None,
) -> list[str]:
    """Return the ids of a branch's streams of a kind that begin with ``prefix`` and had an event by ``at``, sorted."""
    found: list[str] = []
    with engine.reader.state_lock:
        engine.reader.current_head()
        for name in engine.reader.streams.names(branch, f"{kind}/{prefix}", "" if after is None else f"{kind}/{after}"):
            if limit is not None and len(found) >= limit:
                break
            if (at is None and not branch) or engine.reader.last_seq(key_of(branch, name), at):
                found.append(name[len(kind) + 1 :])
    return found


def names_with(reader: Reader, text: str) -> list[str]:
    """Return the names of the streams, in all branches, whose part after the kind contains a text, sorted.

    The text is also looked for in the name of a node's project as it was given.
    """
    names = set[str]()
    with reader.state_lock:
        reader.current_head()
        for branch in range(1 + len(reader.branches_at(None))):
            for name in reader.streams.names(branch):
                if any(text in each.partition("/")[2] for each in (name, plain_name(name))):
                    names.add(name)
    return sorted(names)


def state_hash(engine: Engine, branch: int, at: int | None) -> str:
    """Return the SHA-256 over (stream, view, digest) of every state of a branch that is not empty."""
    reader = engine.reader

    def compute_hash() -> str:
        names = reader.streams.names(branch)
        return hash_of((name, reader.digests_of(key_of(branch, name), at)) for name in names)

    return reader.from_one_file(compute_hash)


def replay_hash(engine: Engine, branch: int, at: int | None) -> str:
    """Return the state hash of a fold from the first event on, without any checkpoint row."""

    def compute_hash() -> str:
        until = engine.reader.head if at is None else at
        streams, loader = from_zero(engine, until)
        states = loader.replay_states(until, engine.reader.bounds(branch, until))
        named = ((streams.name_of(number), state) for number, state in states.items())
        return hash_of((name, fold.digests(state)) for name, state in named)

    return engine.reader.from_one_file(compute_hash)


def from_zero(engine: Engine, until: int) -> tuple[Streams, Loader]:
    """Return streams and a loader that know each event up to ``until`` by itself, without checkpoints."""
    checkpoints = Checkpoints(None)
    streams = Streams(engine.reader.log, checkpoints)
    streams.scan_tail(CheckpointGaps(0, {}), until)
    return streams, Loader(engine.reader.log, streams, checkpoints)


def hash_of(streams: Iterable[tuple[str, list[tuple[str, bytes]]]]) -> str:
    """Return the state hash of streams other than the store's own, given as names with the digests of their views."""
    rows = [(name, view, digest) for name, digests in streams if name != STORE_STREAM for view, digest in digests]
    return sha256(_ENCODE(sorted(rows))).hex()


def diff(engine: Engine, a: Side, b: Side) -> list[Change]:
    """Return the changes from side ``a`` to side ``b``; a side without a stream takes the other's, or all."""
    if a.stream is None and b.stream is None:
        pairs = [(name, name) for name in sorted(engine.reader.differing_streams(a, b))]
    else:
        pairs = [(a.stream or b.stream or "", b.stream or a.stream or "")]
    changes: list[Change] = []
    for before, after in pairs:
        keys = key_of(a.branch, before), key_of(b.branch, after)
        first, second = (engine.reader.read(key, fold.plain, side.seq) for key, side in zip(keys, (a, b), strict=True))
        if kind_of(after) == TABLE.name:
            first, second = _load_values(engine, first, second)
        found = list(changes_between(after, first, second))
        if not found:
            # States that differ but read the same differ in the order of keys: of a JSON value, or of facts.
            ours, theirs = (
                set(engine.reader.read(key, fold.digests, side.seq)) for key, side in zip(keys, (a, b), strict=True)
            )
            by_order = {view for view, _ in ours ^ theirs}
            found = list(changes_between(after, first, second, by_order=by_order))
        changes += found
    return changes


def _load_values(engine: Engine, *sides: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the plain states of a table, with values and expiry times instead of pointers, for differing keys only."""
    held: list[dict[str, Pointer]] = [side.get(TABLE.name, {}) for side in sides]
    shared = dict(set(held[0].items()) & set(held[1].items()))
    left = [{key: at for key, at in side.items() if key not in shared} for side in held]
    seqs = sorted({at.seq for side in left for at in side.values()})
    values = {
        seq: unpack_json(getattr(event, "item"))  # noqa: B009 - a put has one
        for seq, (event, _) in zip(seqs, engine.reader.loader.recorded_events(seqs), strict=True)
    }
    return tuple(
        {
            TABLE.name: {key: values[at.seq] for key, at in side.items()},
            "expires": {key: at.expires_ns for key, at in side.items() if at.expires_ns},
        }
        for side in left
    )


def stats(engine: Engine, branch: int, path: str | None, at: int | None) -> Stats:
    """Return the counts of events, of a branch's streams by kind and of its named snapshots, and sizes in bytes."""
    from refold.log.ballast import reserved_bytes  # noqa: PLC0415 - loaded only for statistics

    counts = {kind: len(ids(engine, branch, kind, at=at, after=None, limit=None)) for kind in fold.KINDS}
    return Stats(
        engine.reader.current_head() if at is None else at,
        counts["conversation"],
        counts["project"],
        counts["profile"],
        counts["journal"],
        engine.reader.read(key_of(branch, STORE_STREAM), lambda state: len(state.part(SETTINGS).snapshots), at),
        engine.reader.log.files.size_bytes(),
        path,
        engine.reader.read(key_of(branch, STORE_STREAM), lambda state: dict(state.part(SWITCHES).usage), at),
        counts["board"],
        0 if path is None else reserved_bytes(path),
    )
