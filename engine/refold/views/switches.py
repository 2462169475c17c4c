"""The settings of a store that its owner changed, and the counts of use of hooks and skills.

They are in the store's own stream, and so no part of ``state_hash``: an agent knows nothing of them.
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

    def pack(self) -> tuple[Any, list[int]]:
        empty = not self.values and not self.usage
        return None if empty else [self.values, self.usage], []

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Switches":
        switches = cls()
        if inline is not None:
            switches.values, switches.usage = msgspec.convert(inline, tuple[dict[str, bytes], dict[str, int]])
        return switches

    def logical(self) -> Any:
        rows = [sorted(self.values.items()), sorted(self.usage.items())]
        return rows if any(rows) else None

    def plain(self) -> dict[str, Any]:
        settings = {key: unpack_json(packed) for key, packed in sorted(self.values.items())}
        return {name: values for name, values in (("settings", settings), ("usage", dict(self.usage))) if values}


SWITCHES = View("switches", kinds=("store",), state=Switches)


@SWITCHES.on(SettingChanged)
def _setting_changed(switches: Switches, stamp: Stamp, event: SettingChanged) -> None:
    """Take the value; an erased change leaves the one before."""
    if not stamp.erased:
        switches.values[event.key] = event.packed


@SWITCHES.on(UsageCounted)
def _usage_counted(switches: Switches, stamp: Stamp, event: UsageCounted) -> None:
    """Add to the total; the number is no secret, so that an erased event counts too."""
    switches.usage[event.kind] = switches.usage.get(event.kind, 0) + event.count
