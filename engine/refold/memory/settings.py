"""Settings of a store: what a host turns on and off, recorded; and how often it was of use."""

from typing import Final

from refold import checks
from refold.engine.pending import ANY
from refold.engine.streams import STORE_STREAM
from refold.event import Event, pack_json, unpack_json
from refold.fold import State
from refold.memory.door import Door, Sources
from refold.views.switches import SWITCHES, SettingChanged, UsageCounted

DEFAULTS: Final[dict[str, bool | int]] = {
    "memory_enabled": True,
    "memory_auto_extract": True,
    "memory_max_injected": 10,
    "memory_review_extracted": False,
    "skills_enabled": True,
    "skills_auto_generate": False,
    "skills_max_injected_chars": 4_000,
}
"""Every setting with the value that it has until somebody changes it."""

_NUMBER_MAX: Final = 1_000_000
_SCORE_MAX: Final = 1e12
USAGES: Final = ("memory_extracted", "memory_injected", "skill_matched", "skill_used")


class Settings:
    """A handle on the settings of a store: each has a default, and a change of one is an event.

    >>> from refold import Memory
    >>> settings = Memory().settings
    >>> settings.set("memory_max_injected", 5)
    >>> settings.get("memory_max_injected"), settings.get("memory_enabled")
    (5, True)
    """

    __slots__ = ("_at", "_door")

    def __init__(self, door: Door, at: int | None) -> None:
        self._door = door
        self._at = at

    def __repr__(self) -> str:
        """Return the handle with what differs from the defaults."""
        changed = {name: value for name, value in self.items() if value != DEFAULTS[name]}
        return f"Settings({changed})"

    def get(self, name: str) -> bool | int:
        """Return the value of a setting; ``InvalidInput`` for a name that is none."""
        return dict(self.items())[_known(name)]

    def items(self) -> list[tuple[str, bool | int]]:
        """Return every setting as (name, value), always in the same order."""
        values = self._door.read(STORE_STREAM, lambda state: dict(state.part(SWITCHES).values), self._at)
        return [(name, unpack_json(values[name]) if name in values else value) for name, value in DEFAULTS.items()]

    def set(
        self,
        name: str,
        value: bool | int,  # noqa: FBT001 - the value of a switch is one
        *,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sources = (),
    ) -> None:
        """Change a setting; the value that it has appends nothing. ``InvalidInput`` for a value of another type."""
        default = DEFAULTS[_known(name)]
        if isinstance(default, bool):
            value = checks.flag(value, name)
        else:
            value = checks.integer(value, name, 0, _NUMBER_MAX, "the most of a setting")
        cited, packed = self._door.sources(sources), pack_json(value)

        def decide(state: State) -> Event | None:
            held = state.part(SWITCHES).values.get(name)
            is_same = packed == (pack_json(default) if held is None else held)
            return None if is_same else SettingChanged(cited, name, packed)

        asked = ("settings.set", name, value)
        self._door.note(STORE_STREAM, decide, at=self._at, asked=asked, expected=expected, request_id=request_id)

    def count_usage(
        self,
        kind: str,
        count: int = 1,
        *,
        name: str = "",
        score: float = 0.0,
        conversation: str = "",
        project: str = "",
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sources = (),
    ) -> None:
        """Record that memories were extracted or injected, or a skill was matched or used; 0 of them appends nothing.

        ``kind`` is memory_extracted, memory_injected, skill_matched or skill_used. ``memory.stats().usage`` has totals.
        """
        if kind not in USAGES:
            checks.invalid(f"kind is {checks.shown(kind)}; give one of {', '.join(USAGES)}")
        texts = [checks.text(text, what) for text, what in ((name, "name"), (conversation, "conversation"))]
        counted = checks.integer(count, "count", 0, _NUMBER_MAX, "the most of a count")
        said = (kind, counted, texts[0], _score(score), texts[1], checks.text(project, "project"))
        event = UsageCounted(self._door.sources(sources), *said)

        def decide(_: State) -> Event | None:
            return event if counted else None

        asked = ("settings.count_usage", *said)
        self._door.note(STORE_STREAM, decide, at=self._at, asked=asked, expected=expected, request_id=request_id)


def _score(score: object) -> float:
    if not isinstance(score, (int, float)) or isinstance(score, bool) or not abs(score) <= _SCORE_MAX:
        checks.invalid(f"score is {checks.shown(score)}; give a number, at most {_SCORE_MAX:g} either way")
    return float(score)


def _known(name: object) -> str:
    if not isinstance(name, str) or name not in DEFAULTS:
        checks.invalid(f"there is no setting {checks.shown(name)}; there are {', '.join(DEFAULTS)}")
    return name
