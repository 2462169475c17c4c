"""Blocks of the messages of a project that contexts search: which of them were replaced, and which user said them."""

from array import array
from collections.abc import Sequence
from typing import Final

from refold.engine.reader import Reader
from refold.event import StateImported
from refold.limits import PAGE_EVENTS
from refold.message import MessageReplaced, messages_of

ROLES: Final = ("user", "assistant")
"""The roles of the messages that are searched for a context."""


class ScopeBlock:
    """Consecutive messages of a scope: those of users and models, which of them were replaced, and names of users."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._count = 0  # Messages that were read, those of other roles too.
        self.seqs = array("q")
        self.replaced: list[tuple[str, int, MessageReplaced]] = []  # Each with its stream and seq.
        self._named: dict[str, list[tuple[int, int]]] = {}  # Seq and place of the messages of users, by their names.

    def fill(self, seqs: Sequence[int]) -> None:
        """Read the events that follow those that were read; ``seqs`` are those of all."""
        while self._count < len(seqs):
            page = seqs[self._count : self._count + PAGE_EVENTS]
            with self._reader.state_lock:
                events = self._reader.loader.recorded_events(page)
            for recorded in events:
                event, stamp = recorded
                if isinstance(event, MessageReplaced):
                    self.replaced.append((stamp.stream, stamp.seq, event))
                if isinstance(event, StateImported) or getattr(event, "role", "") in ROLES:
                    self.seqs.append(stamp.seq)
                for place, message in enumerate(messages_of(recorded)):
                    if message.name is not None and message.role == "user":
                        self._named.setdefault(message.name, []).append((stamp.seq, place))
            self._count += len(page)

    def said_by_others(self, asker: str) -> list[tuple[int, int]]:
        """Return seq and place of the messages that users with other names than the one who asks said."""
        return [place for name, places in self._named.items() if name != asker for place in places]
