"""What a mirror says of one round: what was written, what was taken, what was not, and what was in the way."""

from msgspec import Struct


class MirrorEdit(Struct, frozen=True):
    """An edit by hand that became an event: ``kind`` is ``set``, ``delete`` or ``append``.

    ``name`` is the key, or the day; ``text`` the value or the note, ``None`` for a deletion.
    """

    file: str
    kind: str
    name: str
    text: str | None = None


class MirrorConflict(Struct, frozen=True):
    """An edit by hand that the log does not take: it stays as it is, and the hand's side is kept beside the file.

    ``name`` is the key, or the seqs of the notes that the hand changed or removed; ``hand`` and ``log`` are the two
    sides, ``None`` where there is nothing. ``kept`` is the file with the hand's side, empty where that is nothing.
    """

    file: str
    name: str
    hand: str | None
    log: str | None
    kept: str
    reason: str


class MirrorProblem(Struct, frozen=True):
    """A file that could not be read or written, and why: it was left as it is, and the log too."""

    file: str
    reason: str


class MirrorReport(Struct, frozen=True):
    """What one round came to; the files that it wrote are those of the log's state at ``seq``.

    Of a check it says what a round would do.
    """

    seq: int
    written: tuple[str, ...] = ()
    edits: tuple[MirrorEdit, ...] = ()
    conflicts: tuple[MirrorConflict, ...] = ()
    problems: tuple[MirrorProblem, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is left to a person: no conflict and no problem."""
        return not (self.conflicts or self.problems)

    @property
    def has_changed(self) -> bool:
        """Whether a round did anything."""
        return bool(self.written or self.edits or self.conflicts)

    def __bool__(self) -> bool:
        """Return whether there is anything to tell."""
        return bool(self.has_changed or self.problems)
