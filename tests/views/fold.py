"""Given events, the state: the fold alone, without an engine and without a disk."""

from refold import fold
from refold.event import FLAG_ERASED, Event, Stamp

BEGIN_NS = 1_764_000_000_000_000_000


class Erased:
    """Marks an event of the list as erased: only its structural part is left."""

    def __init__(self, event: Event) -> None:
        structural = fold.STRUCTURAL[type(event)]
        self.event = type(event)(**{field: getattr(event, field) for field in structural})


def stamp_of(seq: int, stream: str, *, erased: bool = False) -> Stamp:
    when_ns = BEGIN_NS + seq
    return Stamp(seq, stream, seq, when_ns, when_ns, flags=FLAG_ERASED if erased else 0)


def folded(kind: str, *events: Event | Erased) -> fold.State:
    """Return the state after the events, at seqs 1, 2, 3; after each, packing and unpacking must give it back."""
    state = fold.empty(kind)
    log: list[tuple[Event, Stamp]] = []
    for seq, given in enumerate(events, 1):
        event = given.event if isinstance(given, Erased) else given
        log.append((event, stamp_of(seq, f"{kind}/x", erased=isinstance(given, Erased))))
        fold.fold(state, log[-1][1], event)
        assert_packs(state, log)
    return state


def assert_packs(state: fold.State, log: list[tuple[Event, Stamp]]) -> None:
    inline, seqs = fold.pack(state)
    unpacked = fold.unpack(state.kind.name, inline, [log[seq - 1] for seq in seqs])
    assert fold.digests(unpacked) == fold.digests(state)
    assert fold.plain(unpacked) == fold.plain(state)
    assert fold.pack(unpacked) == (inline, seqs)
