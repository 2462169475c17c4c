"""Dropped conversations: which they are, and the refusal of writes through older handles."""

from refold.engine.scan import EventFilter
from refold.engine.transaction import Decide, erased_count
from refold.errors import Closed
from refold.event import Event, ForkDropped
from refold.fold import State
from refold.memory.options import Core

_CONVERSATION = "conversation/"


class Drops:
    """The streams of each branch that were ever dropped and the seq of the last drop, read from the log on demand.

    What is known is replaced as a whole, without a lock, for which a signal handler that writes could wait forever.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int, dict[str, int]]] = {}
        """By branch: the count of erasures when it was read, the seq that it reaches, and the drops up to there."""

    def names(self, core: Core, at: int | None) -> frozenset[str]:
        """Return the ids of a branch's conversations that are dropped as of a seq, that is, end with a drop by then."""
        streams = [stream for stream in self.seqs(core) if stream.startswith(_CONVERSATION)]
        return frozenset(each.removeprefix(_CONVERSATION) for each in streams if _is_dropped(core, each, at))

    def seqs(self, core: Core) -> dict[str, int]:
        """Return the seq of the last drop of each stream of a branch that was ever dropped."""
        count = erased_count(core.engine.reader)
        read_count, seq, streams = self._known.get(core.branch, (count, 0, {}))
        if read_count != count:  # Erasing a conversation renames it.
            seq, streams = 0, {}
        head = core.engine.reader.current_head()
        if seq < head:
            found = core.events(EventFilter((), (ForkDropped,)), after=seq, until=head)
            streams = streams | {stamp.stream: stamp.seq for _, stamp in found}
            self._known[core.branch] = (count, head, streams)
        return streams


def _is_dropped(core: Core, stream: str, at: int | None) -> bool:
    reader = core.engine.reader
    last = reader.last_seq(core.key(stream), reader.current_head() if at is None else at)
    return bool(last) and isinstance(core.event(last).event, ForkDropped)


def guard(core: Core, stream: str, since: int, make: Event | Decide) -> Event | Decide:
    """Return ``make``, or a decision that raises ``Closed`` if the stream was dropped after the handle was taken."""
    seq = core.drops.seqs(core).get(stream, 0)
    if seq <= since:
        return make

    def refuse(_: State) -> Event | None:  # Not called for a request that was answered before.
        raise Closed(
            f"{stream} was dropped at seq {seq}, after this handle was taken; take another one with "
            f"memory.conversation(id) to begin it anew"
        )

    return refuse
