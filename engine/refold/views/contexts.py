"""The contexts of a conversation that a model was log: digests, counts and ids, so that each can be built again."""

from typing import Any

import msgspec

from refold.event import Event, ForkDropped, Located, Stamp, StateImported, View


class ContextShown(Event, frozen=True, tag=46):
    """A context was shown to a model; ``origin`` is the seq at which it was built, 0 for the empty log."""

    origin: int
    renderer: int
    tokens: tuple[int, ...]
    names: tuple[str, ...] = ()
    digests: tuple[bytes, ...] = ()
    ids: tuple[str, ...] = ()
    project: str = ""
    query: str | None = None
    day: str = ""
    profile: str = ""
    journal: str = ""
    skills: bytes = b""
    budget: bytes = b""


class ContextLog:
    """The number of contexts that were shown, and the seq of the last one."""

    __slots__ = ("count", "last_seq")

    def __init__(self) -> None:
        self.count = 0
        self.last_seq = 0

    def pack(self) -> tuple[Any, list[int]]:
        return [self.count, self.last_seq] if self.count else None, []

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "ContextLog":
        log = cls()
        if inline is not None:
            log.count, log.last_seq = msgspec.convert(inline, tuple[int, int])
        return log

    def logical(self) -> Any:
        return [self.count, self.last_seq] if self.count else None

    def plain(self) -> dict[str, Any]:
        return {"shown": self.count, "last_seq": self.last_seq} if self.count else {}


CONTEXTS = View("contexts", kinds=("conversation",), state=ContextLog)


@CONTEXTS.on(ContextShown)
def _context_shown(log: ContextLog, stamp: Stamp, event: ContextShown) -> None:
    """Count it; that there was one is known of an erased one too."""
    log.count += 1
    log.last_seq = stamp.seq


@CONTEXTS.on(StateImported)
def _state_imported(log: ContextLog, stamp: Stamp, event: StateImported) -> None:
    log.count = log.last_seq = 0


@CONTEXTS.on(ForkDropped)
def _fork_dropped(log: ContextLog, stamp: Stamp, event: ForkDropped) -> None:
    log.count = log.last_seq = 0
