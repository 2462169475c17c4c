"""The switches of a store: what its owner turned on and off, and how often what they govern was of use.

Part of the store's own stream, and so no part of ``state_hash``: neither says anything about what an agent knows.
"""

from typing import Any

import msgspec

from refold.event import Event, Located, Stamp, View, unpack_json


class SettingChanged(Event, frozen=True, tag=44):
    """A setting got another value; ``packed`` is msgpack of it."""

    key: str = ""
    packed: bytes = b""


class UsageCounted(Event, frozen=True, tag=45):
    """Something was of use: memories were extracted or injected, a skill was matched or used."""

    kind: str
    count: int
    name: str = ""
    score: float = 0.0
    conversation: str = ""
    project: str = ""

    def mentions(self) -> tuple[str, ...]:
        """Return the conversation in which it was."""
        return (self.conversation,)


class Switches:
    """The settings that differ from their defaults, and the totals of use by kind."""

    __slots__ = ("usage", "values")

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.usage: dict[str, int] = {}


def _pack(switches: Switches) -> tuple[Any, list[int]]:
    empty = not switches.values and not switches.usage
    return None if empty else [switches.values, switches.usage], []


def _unpack(inline: Any, events: Located) -> Switches:
    switches = Switches()
    if inline is not None:
        switches.values, switches.usage = msgspec.convert(inline, tuple[dict[str, bytes], dict[str, int]])
    return switches


def _logical(switches: Switches) -> Any:
    rows = [sorted(switches.values.items()), sorted(switches.usage.items())]
    return rows if any(rows) else None


def _plain(switches: Switches) -> dict[str, Any]:
    settings = {key: unpack_json(packed) for key, packed in sorted(switches.values.items())}
    return {name: shown for name, shown in (("settings", settings), ("usage", dict(switches.usage))) if shown}


SWITCHES = View(
    "switches", kinds=("store",), empty=Switches, pack=_pack, unpack=_unpack, logical=_logical, plain=_plain
)


@SWITCHES.on(SettingChanged)
def setting_changed(switches: Switches, stamp: Stamp, event: SettingChanged) -> None:
    """Take the value; an erased change leaves the one before."""
    if not stamp.erased:
        switches.values[event.key] = event.packed


@SWITCHES.on(UsageCounted)
def usage_counted(switches: Switches, stamp: Stamp, event: UsageCounted) -> None:
    """Add to the total; the number is no secret, so that an erased event counts too."""
    switches.usage[event.kind] = switches.usage.get(event.kind, 0) + event.count
