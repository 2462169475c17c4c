"""Slots: where one stream stands, and what of it is in RAM."""

from typing import TYPE_CHECKING

from refold import fold
from refold.engine.keys import key_of, kind_of
from refold.event import Event, Stamp
from refold.limits import EVENT_OVERHEAD_BYTES, STREAM_OVERHEAD_BYTES

if TYPE_CHECKING:
    from refold.engine.stock import Stock


class Slot:
    """Where one stream stands: its head, its folded state if loaded, and what its next checkpoint covers.

    A stream that a branch has only inherited has the number 0 until its first event there.
    """

    __slots__ = (
        "base",
        "branch",
        "digest",
        "due",
        "floating",
        "held",
        "is_used",
        "key",
        "kind",
        "name",
        "number",
        "seq",
        "seq_written",
        "seqs",
        "state",
        "stock",
        "version",
        "version_written",
        "weight",
    )

    def __init__(self, number: int, name: str, branch: int = 0) -> None:
        self.number = number
        self.name = name
        self.branch = branch
        self.key = key_of(branch, name)
        self.kind = kind_of(name)
        self.base: tuple[int, int] | None = None
        """The event that a branch's stream goes on from: the number of the stream that holds it, and its seq."""
        self.version = self.version_written = 0
        self.seq = self.seq_written = 0
        """Where the stream stands; ``_written`` runs ahead while a commit is under way."""
        self.state: fold.State | None = None
        self.stock: Stock | None = None
        """The project's memories on a shelf, told of every event; ``None`` as long as nobody searches them."""
        self.seqs: list[int] = []
        """The seqs of the stream's events since its last kept checkpoint row."""
        self.due = 0
        """How many events may come before the next kept row; 0 is the default of ``Checkpoints``."""
        self.floating = 0
        """The seq of the row that the next one replaces, 0 where there is none."""
        self.digest: tuple[int, list[tuple[str, bytes]]] | None = None
        """The digests of the views at a seq, if they were computed."""
        self.is_used = True
        """Whether the stream was touched since it was last asked to leave."""
        self.held = 0
        """How many events the weight stands for."""
        self.weight = STREAM_OVERHEAD_BYTES
        """What the stream takes in RAM, roughly, in bytes."""

    def weigh(self, inline_bytes: int, events: int) -> int:
        """Count only so many of the events from now on; return by how much the weight changed."""
        each = (self.weight - STREAM_OVERHEAD_BYTES) // self.held if self.held else EVENT_OVERHEAD_BYTES
        before, self.held = self.weight, events
        self.weight = STREAM_OVERHEAD_BYTES + inline_bytes + each * events
        return self.weight - before

    def heir(self, number: int) -> "Slot":
        """Return a slot with a number of its own that goes on where this inherited one stands."""
        slot = Slot(number, self.name, self.branch)
        slot.base, slot.state = self.base, self.state
        slot.weight, slot.held = self.weight, self.held
        slot.stand(self.version, self.seq)
        return slot

    def stand(self, version: int, seq: int) -> None:
        """Stand at an event."""
        self.version = self.version_written = version
        self.seq = self.seq_written = seq


def told(slot: Slot, stamp: Stamp, event: Event) -> None:
    """Tell the rows of a stream, if it has any, of an event that was folded into its state.

    They are a cache: whatever goes wrong there must not undo a commit. They go, and who searches next fills others, or
    is told what is wrong.
    """
    if slot.stock is None:
        return
    try:
        assert slot.state is not None, slot.name
        slot.stock.follow(slot.state, stamp, event)
    except Exception:
        import logging  # noqa: PLC0415 - only a failure needs it

        logger = logging.getLogger("refold")
        logger.exception("the rows of %s could not follow seq %d; they are filled anew", slot.name, stamp.seq)
        slot.stock.is_torn = True
        slot.stock.detach()
