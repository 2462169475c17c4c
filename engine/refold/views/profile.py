"""The profile: flat key/value facts that outlive conversations, in the order in which they were first set."""

from typing import Any

from refold.event import Event, Located, Stamp, View
from refold.views.base import Keyed


class ProfileSet(Event, frozen=True, tag=16):
    """A fact of the profile got a value."""

    prior: int
    key: str = ""
    value: str = ""


class ProfileDeleted(Event, frozen=True, tag=17):
    """A fact was removed from the profile."""

    prior: int
    key: str = ""


class ProfileFacts:
    """The facts by key."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: Keyed[str] = Keyed()

    def pack(self) -> tuple[Any, list[int]]:
        return self.entries.pack()

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "ProfileFacts":
        facts = cls()
        located = iter(events)
        facts.entries.unpack(inline, str, lambda _: _value_of(next(located)[0]))
        return facts

    def logical(self) -> Any:
        entries = self.entries
        return entries.rows(entries.values) or None

    def plain(self) -> dict[str, Any]:
        return dict(self.entries.values)


def _value_of(event: Event) -> str:
    assert isinstance(event, ProfileSet), f"{event!r} was packed as a profile value"
    return event.value


PROFILE = View("profile", kinds=("profile",), state=ProfileFacts)


@PROFILE.on(ProfileSet)
def _profile_set(facts: ProfileFacts, stamp: Stamp, event: ProfileSet) -> None:
    facts.entries.on_set(stamp, event, event.value)


@PROFILE.on(ProfileDeleted)
def _profile_deleted(facts: ProfileFacts, stamp: Stamp, event: ProfileDeleted) -> None:
    facts.entries.on_delete(stamp, event)
