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


def _pack(shown: Shown) -> tuple[Any, list[int]]:
    return [shown.count, shown.last_seq] if shown.count else None, []


def _unpack(inline: Any, events: Located) -> Shown:
    shown = Shown()
    if inline is not None:
        shown.count, shown.last_seq = msgspec.convert(inline, tuple[int, int])
    return shown


def _logical(shown: Shown) -> Any:
    return [shown.count, shown.last_seq] if shown.count else None


def _plain(shown: Shown) -> dict[str, Any]:
    return {"shown": shown.count, "last_seq": shown.last_seq} if shown.count else {}


CONTEXTS = View(
    "contexts",
    kinds=("conversation",),
    empty=Shown,
    pack=_pack,
    unpack=_unpack,
    logical=_logical,
    plain=_plain,
)


@CONTEXTS.on(ContextShown)
def context_shown(shown: Shown, stamp: Stamp, event: ContextShown) -> None:
    """Count it; that there was one is known of an erased one too."""
    shown.count += 1
    shown.last_seq = stamp.seq


@CONTEXTS.on(StateImported)
def state_imported(shown: Shown, stamp: Stamp, event: StateImported) -> None:
    """Begin anew: what was shown elsewhere was not shown here."""
    shown.count = shown.last_seq = 0


@CONTEXTS.on(ForkDropped)
def fork_dropped(shown: Shown, stamp: Stamp, event: ForkDropped) -> None:
    """Begin anew."""
    shown.count = shown.last_seq = 0
