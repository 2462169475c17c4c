"""A trail: where every stream of every branch stands, line by line of an export, before any of it is in a store."""

from array import array
from bisect import bisect_right
from typing import NamedTuple

from refold.engine.jsonl import Line
from refold.engine.keys import key_of
from refold.event import BranchForked, ConversationOpened, Event, ForkDropped, Forked, Restored, StateImported
from refold.views.settings import ERASED_PREFIX, Branch

_END = 2**64


class Stand(NamedTuple):
    """Where a stream stands: its version and the seq of its last event."""

    version: int
    seq: int


class Stands:
    """Where every stream of every branch stands, event by event; a branch's stream goes on from what it inherited."""

    def __init__(self) -> None:
        self.forks: list[Branch] = []
        """The branches, in the order of their numbers."""
        self._seqs: dict[str, array[int]] = {}
        self._inherited: dict[str, int] = {}
        """The version that a branch's stream went on from."""

    def __len__(self) -> int:
        """Return how many streams have events, those of all branches together."""
        return len(self._seqs)

    def has(self, branch: int, stream: str) -> bool:
        """Return whether a stream has events of its own in a branch."""
        return key_of(branch, stream) in self._seqs

    def at(self, branch: int, stream: str, until: int = _END) -> Stand:
        """Return where a stream stands at a seq, what its branch inherited included."""
        while True:
            key = key_of(branch, stream)
            seqs = self._seqs.get(key)
            count = 0 if seqs is None else len(seqs) if until == _END else bisect_right(seqs, until)
            if seqs is not None and count:
                return Stand(self._inherited[key] + count, seqs[count - 1])
            if not branch:
                return Stand(0, 0)
            branch, until = self.elder(branch, until)

    def elder(self, branch: int, until: int) -> tuple[int, int]:
        """Return the branch that one was forked from, and up to which seq it inherits."""
        fork = self.forks[branch - 1]
        return fork.parent, min(until, fork.seq)

    def note(self, branch: int, stream: str, seq: int) -> None:
        """Take note of a stream's next event."""
        key = key_of(branch, stream)
        if key not in self._seqs:
            self._inherited[key] = self.at(branch, stream).version
            self._seqs[key] = array("Q")
        self._seqs[key].append(seq)


class Trail:
    """What was seen of an export so far: branches, the seqs of each stream, and which conversations are open."""

    def __init__(self) -> None:
        self.branches: dict[str, int] = {"": 0}
        """The number of each branch by its name."""
        self._numbers: dict[str, int] = {}
        self._stands = Stands()
        self._opened: dict[str, list[tuple[int, bool]]] = {}
        """From which seq on a conversation was open, or was not any more."""

    @property
    def streams(self) -> int:
        """How many streams have events, those of all branches together."""
        return len(self._stands)

    def number(self, fork: str, stream: str) -> int:
        """Return the number of a stream in the order in which lines name them: the same in every pass."""
        return self._numbers.setdefault(key_of(self.branches[fork], stream), len(self._numbers) + 1)

    def has(self, fork: str, stream: str) -> bool:
        """Return whether a stream has events of its own in a branch."""
        return fork in self.branches and self._stands.has(self.branches[fork], stream)

    def stand(self, fork: str, stream: str) -> Stand:
        """Return where a stream stands, what its branch inherited included."""
        return self._stands.at(self.branches[fork], stream)

    def is_open(self, fork: str, stream: str) -> bool:
        """Return whether a conversation takes messages."""
        branch, until = self.branches[fork], _END
        while True:
            changes = self._opened.get(key_of(branch, stream), [])
            known = next((is_open for seq, is_open in reversed(changes) if seq <= until), None)
            if known is not None or not branch:
                return known is True
            branch, until = self._stands.elder(branch, until)

    def note(self, line: Line, event: Event) -> None:
        """Take note of a line."""
        branch = self.branches[line.branch]
        self._stands.note(branch, line.stream, line.seq)
        is_open = _opens(event)
        if is_open is not None:
            self._opened.setdefault(key_of(branch, line.stream), []).append((line.seq, is_open))
        if isinstance(event, BranchForked):
            forks = self._stands.forks
            name = f"{ERASED_PREFIX}{len(forks) + 1}" if line.erased else event.name
            forks.append(Branch(name, event.base_branch, event.base_seq))
            self.branches[name] = len(forks)


def _opens(event: Event) -> bool | None:
    """Return whether an event leaves its conversation open or closed, ``None`` where it says nothing of that."""
    if isinstance(event, ForkDropped):
        return False
    if isinstance(event, StateImported):
        return bool(event.policy)
    if isinstance(event, (Forked, Restored)):
        return True if event.base_seq else None
    return True if isinstance(event, ConversationOpened) else None
