"""The branches of sessions: forks that start somewhere in a session, and restores that lead back."""

import threading
from typing import Any, Final, NamedTuple

from refold import Memory
from refold.engine.scan import EventFilter
from refold.event import FLAG_BASE, Forked, Restored
from refold.memory.core import core_of

_SHOWN_COUNT_MAX: Final = 50  # The newest branches of a session, which rarely has more than a few.
_CONVERSATION: Final = "conversation"


class BranchPoint(NamedTuple):
    """A branch that leaves a session at `base_seq` and continues from `seq` on, by a fork or a restore."""

    base: str
    base_seq: int
    session: str
    seq: int
    is_fork: bool


class Branches:
    """All branches of a memory, by the session that they leave; each event of the log is read once."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._lock = memory, threading.Lock()
        self._head, self._known = 0, list[BranchPoint]()

    def of(self, session: str) -> dict[str, Any]:
        """Return the origins of a session in other sessions, and the branches that leave it, oldest first."""
        known = self._read()
        branches = [each for each in known if each.base == session][-_SHOWN_COUNT_MAX:]
        origins = [each for each in known if each.session == session and each.base != session]
        return {"origins": origins[-_SHOWN_COUNT_MAX:], "branches": branches}

    def _read(self) -> list[BranchPoint]:
        core, _ = core_of(self._memory)
        reader = core.engine.reader
        with self._lock:
            head = reader.current_head()
            after = head if reader.types_written.isdisjoint((Forked, Restored)) else self._head
            # Searches by their flag, which takes half the time of a search by their types.
            for event, stamp in core.events(EventFilter(flags=FLAG_BASE), after=after, until=head):
                root, _, session = stamp.stream.partition("/")
                if root == _CONVERSATION and isinstance(event, (Forked, Restored)) and event.base_stream:
                    base = reader.streams.name_of(event.base_stream).partition("/")[2]
                    self._known.append(BranchPoint(base, event.base_seq, session, stamp.seq, isinstance(event, Forked)))
            self._head = head
            return list(self._known)
