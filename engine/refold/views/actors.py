"""The actors that events named, in the store's own stream, and so not part of ``state_hash``."""

from typing import Any, ClassVar

import msgspec

from refold import checks
from refold.event import Event, Located, Stamp, View


class ActorNamed(Event, frozen=True, tag=50):
    """An actor got a number, that of the seq of this event, which comes right before the first event of the actor."""

    sentence: ClassVar[str] = "{name} was met as an actor"

    is_visible = False

    name: str = ""

    def check(self, *, is_erased: bool) -> None:
        """Raise ``InvalidInput`` for an invalid name."""
        if not is_erased:
            checks.actor(self.name)


class Actors:
    """The seq of the event that named each actor."""

    __slots__ = ("seqs",)

    def __init__(self) -> None:
        self.seqs: dict[str, int] = {}

    def pack(self) -> tuple[Any, list[int]]:
        return self.seqs or None, []

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Actors":
        actors = cls()
        actors.seqs = msgspec.convert(inline or {}, dict[str, int])
        return actors

    def logical(self) -> Any:
        return sorted(self.seqs.items()) or None

    def plain(self) -> dict[str, Any]:
        return dict(self.seqs)


ACTORS = View("actors", kinds=("store",), state=Actors)


@ACTORS.on(ActorNamed)
def _actor_named(actors: Actors, stamp: Stamp, event: ActorNamed) -> None:
    """Record the name; for an actor that was named twice, the first number counts, and an erased name is free again."""
    if not stamp.erased:
        actors.seqs.setdefault(event.name, stamp.seq)
