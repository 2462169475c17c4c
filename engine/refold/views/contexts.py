"""What a model was shown of a conversation: each context as digests, counts and ids, so that it can be built again."""

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


class Shown:
    """How many contexts were shown, and the seq of the last one."""

    __slots__ = ("count", "last_seq")

    def __init__(self) -> None:
        self.count = 0
        self.last_seq = 0

    def pack(self) -> tuple[Any, list[int]]:
        return [self.count, self.last_seq] if self.count else None, []

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Shown":
        shown = cls()
        if inline is not None:
            shown.count, shown.last_seq = msgspec.convert(inline, tuple[int, int])
        return shown

    def logical(self) -> Any:
        return [self.count, self.last_seq] if self.count else None

    def plain(self) -> dict[str, Any]:
        return {"shown": self.count, "last_seq": self.last_seq} if self.count else {}


CONTEXTS = View("contexts", kinds=("conversation",), state=Shown)


@CONTEXTS.on(ContextShown)
def _context_shown(shown: Shown, stamp: Stamp, event: ContextShown) -> None:
    """Count it; that there was one is known of an erased one too."""
    shown.count += 1
    shown.last_seq = stamp.seq


@CONTEXTS.on(StateImported)
def _state_imported(shown: Shown, stamp: Stamp, event: StateImported) -> None:
    shown.count = shown.last_seq = 0


@CONTEXTS.on(ForkDropped)
def _fork_dropped(shown: Shown, stamp: Stamp, event: ForkDropped) -> None:
    shown.count = shown.last_seq = 0
