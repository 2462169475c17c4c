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


class Facts:
    """The facts by key."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: Keyed[str] = Keyed()


def _pack(facts: Facts) -> tuple[Any, list[int]]:
    return facts.entries.pack()


def _unpack(inline: Any, events: Located) -> Facts:
    facts = Facts()
    located = iter(events)
    facts.entries.unpack(inline, str, lambda _: _value_of(next(located)[0]))
    return facts


def _value_of(event: Event) -> str:
    assert isinstance(event, ProfileSet), f"{event!r} was packed as a profile value"
    return event.value


def _logical(facts: Facts) -> Any:
    entries = facts.entries
    return entries.rows(entries.values) or None


def _plain(facts: Facts) -> dict[str, Any]:
    return dict(facts.entries.values)


PROFILE = View(
    "profile",
    kinds=("profile",),
    empty=Facts,
    pack=_pack,
    unpack=_unpack,
    logical=_logical,
    plain=_plain,
)


@PROFILE.on(ProfileSet)
def profile_set(facts: Facts, stamp: Stamp, event: ProfileSet) -> None:
    """Hold the value under its key."""
    if stamp.erased:
        facts.entries.drop_at(event.prior, 0)
    else:
        facts.entries.put(stamp.seq, event.key, event.value)


@PROFILE.on(ProfileDeleted)
def profile_deleted(facts: Facts, stamp: Stamp, event: ProfileDeleted) -> None:
    """Drop the key."""
    if stamp.erased:
        facts.entries.drop_at(event.prior, 0)
    else:
        facts.entries.drop(event.key)
