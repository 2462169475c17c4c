"""Dropped conversations: which they are, and the refusal of writes through older handles."""

from typing import Final, NamedTuple

from refold.engine.scan import EventFilter
from refold.engine.transaction import Decide, erased_count
from refold.errors import Closed
from refold.event import Event, ForkDropped
from refold.fold import State
from refold.memory.core import Core

_CONVERSATION: Final = "conversation/"


class _Drops(NamedTuple):
    """The streams of a branch that were ever dropped, as of a seq."""

    until: int
    seqs: dict[str, int]
    """The seq of the last drop of each stream."""
    erased_count: int
    """The number of erased events when the log was read: erasing a conversation renames it."""


def _drops_by_branch(_: Core) -> dict[int, _Drops]:
    return {}  # Entries are replaced as a whole, without a lock, for which a signal handler could wait forever.


def dropped_ids(core: Core, at: int | None) -> frozenset[str]:
    """Return the ids of a branch's conversations that are dropped as of a seq, that is, end with a drop by then."""
    streams = [stream for stream in drop_seqs(core) if stream.startswith(_CONVERSATION)]
    return frozenset(each.removeprefix(_CONVERSATION) for each in streams if _is_dropped(core, each, at))


def drop_seqs(core: Core) -> dict[str, int]:
    """Return the seq of the last drop of each stream of a branch that was ever dropped."""
    drops, count = core.part(_drops_by_branch), erased_count(core.engine.reader)
    until, seqs, read_count = drops.get(core.branch, _Drops(0, {}, count))
    if read_count != count:
        until, seqs = 0, {}
    head = core.engine.reader.current_head()
    if until < head:
        events = core.events(EventFilter((), (ForkDropped,)), after=until, until=head)
        seqs = seqs | {stamp.stream: stamp.seq for _, stamp in events}
        drops[core.branch] = _Drops(head, seqs, count)
    return seqs


def _is_dropped(core: Core, stream: str, at: int | None) -> bool:
    reader = core.engine.reader
    last = reader.last_seq(core.key(stream), reader.current_head() if at is None else at)
    return bool(last) and isinstance(core.event(last).event, ForkDropped)


def guard(core: Core, stream: str, since: int, make: Event | Decide) -> Event | Decide:
    """Return ``make``, or a decision that raises ``Closed`` if the stream was dropped after the handle was taken."""
    seq = drop_seqs(core).get(stream, 0)
    if seq <= since:
        return make

    def refuse(_: State) -> Event | None:  # Not called for a request that was answered before.
        raise Closed(
            f"{stream} was dropped at seq {seq}, after this handle was taken; take another one with "
            f"memory.conversation(id) to begin it anew"
        )

    return refuse
