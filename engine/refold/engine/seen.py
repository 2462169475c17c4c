"""What one walk over the log has seen: what the rows beside the log are held against."""

from array import array

from refold.store.record import SEQ


class Seen:
    """Where streams stand, which bodies are gone, which rows have to be there; all of it from records alone."""

    def __init__(self) -> None:
        self.heads: dict[int, tuple[int, int]] = {}
        """Number of a stream -> version and seq of its last event."""
        self.begins: dict[int, tuple[int, int, int]] = {}
        """Number of a branch's stream -> seq of its first event, and version and seq that it says it goes on from."""
        self.branches: dict[int, int] = {}
        """Number of a stream -> branch of its events."""
        self.marked: set[int] = set()
        """Seqs of the events whose headers say that the body was erased."""
        self.erased: set[int] = set()
        """Seqs that ``Erased`` events name."""
        self.derived: set[bytes] = set()
        """The keys that the index of sources has to hold."""
        self.tags: set[int] = set()
        self.commands = array("Q")
        """For each event the first seq of the command that it belongs to."""

    def derive(self, seq: int, sources: tuple[int, ...]) -> None:
        """Take note of what an event was derived from."""
        self.derived.update(SEQ.pack(source) + SEQ.pack(seq) for source in sources)
