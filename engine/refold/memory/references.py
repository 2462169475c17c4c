"""Results that callers give in place of seqs: resolved to their seqs, unless they are results of another memory."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from refold import checks, fold
from refold.engine import batch as batches
from refold.engine.engine import Engine
from refold.engine.reader import Reader
from refold.engine.transaction import place_of
from refold.errors import InvalidInput
from refold.event import Event, Stamp
from refold.log.record import EventBytes
from refold.views.store import ERASED_PREFIX

_ADVICE: Final = "give a result of this memory, or a seq"


def check_results(engine: Engine, given: Sequence[object], seqs: Sequence[int]) -> None:
    """Raise ``InvalidInput`` for a result of another memory, whose seq is of another event here.

    ``given`` are seqs and results, ``seqs`` their seqs. Only the event at the seq of each result is read.
    """
    results = [(item, seq) for item, seq in zip(given, seqs, strict=True) if seq > 0 and not isinstance(item, int)]
    if results:
        engine.check_at_head(partial(_check_each, engine.reader, results))


def _check_each(reader: Reader, results: Sequence[tuple[object, int]], head: int) -> None:
    for item, seq in results:
        if seq > head:
            checks.invalid(f"{checks.brief(item)} is of another memory: this one ends at seq {head}; {_ADVICE}")
    with reader.state_lock:
        for (item, seq), found in zip(results, reader.log.events_at([seq for _, seq in results]), strict=True):
            stream = reader.streams.name_of(found.number)
            if not _is_result_of(item, found, stream):
                kind = fold.NAMES.get(fold.EVENT_TYPES.get(fold.tag_of(found.array), Event), "an unknown event")
                here = f"seq {seq} of this one is {kind} in {stream}"
                checks.invalid(f"{checks.brief(item)} is of another memory: {here}; {_ADVICE}")


def _is_result_of(item: Any, found: EventBytes, stream: str) -> bool:
    """Return whether a result is of an event: by its id, by its stamp, or else by its time."""
    own_id, stamp = getattr(item, "id", None), getattr(item, "stamp", None)
    if isinstance(own_id, str):
        return own_id.encode() in found.array
    if not isinstance(stamp, Stamp):
        return getattr(item, "time_ns", found.time_ns) == found.time_ns
    is_renamed = stream.partition("/")[2].startswith(ERASED_PREFIX)
    event = getattr(item, "event", None)  # A scenario can show one of another type, but not of another id.
    return (
        (stamp.version, stamp.time_ns) == (found.version, found.time_ns)
        and (is_renamed or stamp.stream == stream)
        and getattr(event, "id", "").encode() in found.array
    )


def sources_of(engine: Engine, sources: Sequence[Any]) -> tuple[int, ...]:
    """Return the seqs of the sources of a mutation; those of this context's open batch are provisional."""
    seqs = engine.check_at_head(partial(checks.sources, sources))
    check_results(engine, sources, seqs)
    if any(seq < 0 for seq in seqs):
        _check_provisional(engine, sources)
    return seqs


def cause_of(engine: Engine, cause: object, at: int | None) -> int:
    """Return the seq of a cause, 0 for none; a frozen memory has no later one."""
    check = partial(checks.cause, cause)
    seq = engine.check_at_head(check) if at is None else check(at)
    check_results(engine, (cause,), (seq,))
    return seq


def _check_provisional(engine: Engine, sources: Sequence[Any]) -> None:
    """Refuse results of any batch except this context's open one: they never got a seq."""
    batch = batches.active_batch(engine)
    events, stamps = ([], []) if batch is None else (batch.transaction.events, batch.transaction.stamps)
    for source in sources:
        stamp = getattr(source, "stamp", None)
        if stamp is not None and stamp.seq < 0:
            place = place_of(stamp.seq)
            if place >= len(events) or not (stamps[place] is stamp or _is_of(events[place], source)):
                raise InvalidInput(f"source {checks.brief(source)} is of a batch that was not committed; leave it out")


def _is_of(event: Event, result: Any) -> bool:
    """Return whether a result was made from an event: it holds that very event or its bytes, or has the same id."""
    if event is getattr(result, "event", None) or getattr(event, "id", "") == getattr(result, "id", None):
        return True
    return getattr(event, "item", b"") is getattr(result, "packed", None)
