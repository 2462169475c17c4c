"""The store's own stream, not part of ``state_hash``: snapshots, forks, erasures, settings, usage counts, hashes."""

from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct

from refold import checks
from refold.event import BranchForked, Erased, Event, Located, SnapshotNamed, Stamp, View, unpack_json
from refold.limits import HASH_BYTES

ERASED_PREFIX: Final = "erased-"
"""The prefix of a branch's name, before its number, once its own name was erased."""


def is_reserved(name: str) -> bool:
    """Return whether a name is one that a branch has once its own name was erased."""
    return name.startswith(ERASED_PREFIX) and name.removeprefix(ERASED_PREFIX).isdigit()


class NamedSnapshot(Struct, frozen=True, array_like=True, gc=False):
    """A named snapshot: its name, the number of its stream (0: the whole memory), and the seq that it points at.

    ``cut`` is the seq of the whole log at which it was taken.
    """

    name: str
    stream: int
    seq: int
    cut: int = 0


class Branch(Struct, frozen=True, array_like=True, gc=False):
    """A fork of a whole memory: its name, the branch that it was forked from, and the last seq that both share."""

    name: str
    parent: int
    seq: int


class StoreSettings:
    """The named snapshots by stream number and name, the seqs that were erased, and the branches."""

    __slots__ = ("branches", "erased", "numbers", "snapshots")

    def __init__(self) -> None:
        self.snapshots: dict[tuple[int, str], NamedSnapshot] = {}
        self.erased: list[int] = []
        self.branches: list[Branch] = []
        """In the order of forking: the first is branch 1. Only the main line knows all of them."""
        self.numbers: dict[str, int] = {}  # Name -> number of the branch.

    def add(self, branch: Branch) -> None:
        """Give a branch the next number; the branch that it was forked from must exist."""
        assert 0 <= branch.parent <= len(self.branches), f"branch {branch.name!r} has no parent {branch.parent}"
        self.branches.append(branch)
        self.numbers[branch.name] = len(self.branches)

    def pack(self) -> tuple[Any, list[int]]:
        return [list(self.snapshots.values()), self.erased, *_optional_rows(self.branches)], []

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "StoreSettings":
        settings = cls()
        for named in msgspec.convert(inline[0], list[NamedSnapshot]):
            settings.snapshots[named.stream, named.name] = named
        settings.erased = msgspec.convert(inline[1], list[int])
        for rows in inline[2:]:
            for branch in msgspec.convert(rows, list[Branch]):
                settings.add(branch)
        return settings

    def logical(self) -> Any:
        rows = [[named.stream, named.name, named.seq] for named in self.snapshots.values()]
        some = _optional_rows(self.branches)
        return [sorted(rows), sorted(self.erased), *some] if rows or self.erased or some else None

    def plain(self) -> dict[str, Any]:
        return {f"{named.stream}/{named.name}": named.seq for named in self.snapshots.values()}


def _optional_rows(branches: list[Branch]) -> list[list[Branch]]:
    """Return the branches if there are any, so that the rows of stores without branches keep their old form."""
    return [branches] if branches else []


SETTINGS = View("settings", kinds=("store",), state=StoreSettings)


@SETTINGS.on(SnapshotNamed)
def _snapshot_named(settings: StoreSettings, stamp: Stamp, event: SnapshotNamed) -> None:
    if not stamp.erased:
        settings.snapshots[event.base_stream, event.name] = NamedSnapshot(
            event.name, event.base_stream, event.base_seq, stamp.seq
        )


@SETTINGS.on(Erased)
def _erased(settings: StoreSettings, stamp: Stamp, event: Erased) -> None:
    settings.erased.extend(event.seqs)


@SETTINGS.on(BranchForked)
def _branch_forked(settings: StoreSettings, stamp: Stamp, event: BranchForked) -> None:
    """Give the branch the next number, which also names it if its own name was erased."""
    name = f"{ERASED_PREFIX}{len(settings.branches) + 1}" if stamp.erased else event.name
    settings.add(Branch(name, event.base_branch, event.base_seq))


class ContextHashed(Event, frozen=True, tag=51):
    """The parts of a shown context were hashed; its only source is the event that records the context.

    Anyone who has the file can test guesses of a part against its hash. So an erasure reaches the hashes of every
    context that may have shown the erased content, and nothing else of that context: it can still be built again.
    """

    sentence: ClassVar[str] = "the parts of a context were hashed"
    bookkeeping: ClassVar[frozenset[str]] = frozenset(("digests",))
    is_visible: ClassVar[bool] = False

    digests: tuple[bytes, ...] = ()
    """The SHA-256 of each part, in the order of ``ContextShown.names``."""

    def check(self, *, is_erased: bool) -> None:
        if len(self.sources) != 1:
            checks.invalid(f"hashes of a context have {len(self.sources)} sources, not the context alone")
        if not is_erased and any(len(digest) != HASH_BYTES for digest in self.digests):
            checks.invalid(f"a digest has not {HASH_BYTES = } bytes")


@SETTINGS.on(ContextHashed)
def _context_hashed(settings: StoreSettings, stamp: Stamp, event: ContextHashed) -> None:
    """Keep nothing of it: the hashes are found next to their context."""


# The settings that an owner changed, and the usage counts of hooks and skills.


DEFAULTS: Final[dict[str, bool | int]] = {
    "memory_enabled": True,
    "memory_auto_extract": True,
    "memory_max_injected": 200,
    "memory_review_extracted": False,
    "messages_max_injected": 50,
    "skills_enabled": True,
    "skills_auto_generate": False,
    "skills_max_injected_chars": 4_000,
}
"""Every setting with its default value."""

_NUMBER_MAX: Final = 1_000_000
_SCORE_MAX: Final = 1e12
USAGES: Final = ("memory_extracted", "memory_injected", "skill_matched", "skill_used")


def default_of(name: object) -> bool | int:
    """Return the default value of a setting; raises ``InvalidInput`` for an unknown name."""
    if not isinstance(name, str) or name not in DEFAULTS:
        checks.invalid(f"there is no setting {checks.brief(name)}; there are {', '.join(DEFAULTS)}")
    return DEFAULTS[name]


def check_setting(name: str, value: object) -> bool | int:
    """Return the value of a setting; raises ``InvalidInput`` for a value of another type."""
    if isinstance(default_of(name), bool):
        return checks.flag(value, name)
    return checks.integer(value, name, 0, _NUMBER_MAX, "the most of a setting")


def check_usage(kind: object, count: object, score: object) -> tuple[str, int, float]:
    """Return a kind of use, its count, and its score."""
    known = checks.one_of(kind, "kind", USAGES)
    counted = checks.integer(count, "count", 0, _NUMBER_MAX, "the most of a count")
    if not isinstance(score, (int, float)) or isinstance(score, bool) or not abs(score) <= _SCORE_MAX:
        checks.invalid(f"score is {checks.brief(score)}; give a number, at most {_SCORE_MAX:g} either way")
    return known, counted, float(score)


class SettingChanged(Event, frozen=True, tag=44):
    """A setting got another value; ``packed`` is the value as msgpack."""

    sentence: ClassVar[str] = "the setting {key} got the value {packed!s}"
    subject: ClassVar[tuple[str, str]] = ("setting", "key")

    key: str = ""
    packed: bytes = b""

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            check_setting(self.key, unpack_json(self.packed))


class UsageCounted(Event, frozen=True, tag=45):
    """A use was counted: memories were extracted or injected, or a skill was matched or used."""

    sentence: ClassVar[str] = "{count!s} uses were counted: {kind!s}"

    kind: str
    count: int
    name: str = ""
    score: float = 0.0
    conversation: str = ""
    project: str = ""

    def check(self, *, is_erased: bool) -> None:  # noqa: ARG002 - an erased event keeps its kind and count
        check_usage(self.kind, self.count, self.score)

    def mentions(self) -> tuple[str, ...]:
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
    """Set the value; an erased change leaves the previous one."""
    if not stamp.erased:
        switches.values[event.key] = event.packed


@SWITCHES.on(UsageCounted)
def _usage_counted(switches: Switches, stamp: Stamp, event: UsageCounted) -> None:
    """Add to the total; the number is not secret, so an erased event counts too."""
    switches.usage[event.kind] = switches.usage.get(event.kind, 0) + event.count
