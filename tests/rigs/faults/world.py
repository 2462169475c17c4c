"""What callers are told while calls fail, and how they look at the store meanwhile."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from refold import Conversation, Memory, StoreError, StoreFull
from tests.support.bounds import Clock, seeded_bytes

CHARS: Final = (5, 300, 9_000)
BEFORE_COUNT: Final = 6
"""Messages that are there before anything fails."""


@dataclass
class Erasure:
    """An erasure that was asked for: of messages of the conversation, or without seqs of all of another one."""

    texts: list[str]
    seqs: list[int]
    is_done: bool = False
    """Whether somebody was told that the bytes are gone."""
    is_refused: bool = False
    """Whether somebody was told that nothing was erased."""


@dataclass
class Copied:
    """A backup that was acknowledged, by its name, and the messages that were acknowledged before it."""

    name: str
    texts: list[str]


@dataclass
class Told:
    """What callers were told: of what they wrote, in order for each of them, and what was wrong meanwhile."""

    acknowledged: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    groups: list[list[str]] = field(default_factory=list)
    """Messages that stand or fall together."""
    errors: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    is_full: bool = False
    erasures: list[Erasure] = field(default_factory=list)
    backups: list[Copied] = field(default_factory=list)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return what was told, out of plain values."""
        told = cls(**values)
        told.erasures = [Erasure(**erasure) for erasure in values["erasures"]]
        told.backups = [Copied(**copied) for copied in values["backups"]]
        return told


@dataclass
class World:
    """A store under faults: how it is opened, what was told, and the chance that draws texts."""

    path: Path
    seed: int
    options: Mapping[str, Any]
    told: Told
    opened: int = 0

    def open(self) -> Memory:
        """Open the store as a process would that starts anew."""
        self.opened += 1
        random_bytes = seeded_bytes(self.seed * 1_000 + self.opened)
        return Memory(self.path, clock_ns=Clock(), random_bytes=random_bytes, **self.options)

    def text(self, name: str) -> str:
        """Return a text that occurs once, the same whenever it is asked for."""
        return f"{name} " + "x" * Random(f"{self.seed}/{name}").choice(CHARS)

    def tried(self, texts: list[str], write: Callable[[], object]) -> None:
        """Write, and note what the caller was told of the texts; only errors of the store are told."""
        try:
            write()
        except StoreError as error:
            self.told.unknown += texts
            self.told.errors.append(f"{type(error).__name__}: {error}")
            self.told.is_full |= isinstance(error, StoreFull)
            self.check_told(error)
        else:
            self.told.acknowledged += texts

    def check_told(self, error: StoreError) -> None:
        words = ("free ", "check ")
        if not any(word in str(error) for word in words):
            self.told.findings.append(f"an error that says no next step: {error}")


def chat_of(memory: Memory) -> Conversation:
    """Return the conversation that everybody writes to."""
    return memory.conversation("chat", window_tokens=1_000_000)


def append(world: World, memory: Memory, name: str) -> None:
    """Append a message that can be asked for again."""
    text = world.text(name)
    world.tried([text], lambda: chat_of(memory).append("user", text, tokens=1, request_id=name))


def look(world: World, memory: Memory) -> None:
    """Read while calls fail: everything acknowledged is there, once, and nothing that nobody wrote."""
    known = list(world.told.acknowledged)
    try:
        found = [str(message.content) for message in chat_of(memory).window()]
    except Exception as error:  # noqa: BLE001 - whatever a read raises is a finding
        world.told.findings.append(f"reading failed: {type(error).__name__}: {error}")
        return
    missing = [text[:12] for text in known if found.count(text) != 1]
    back = [text[:12] for erasure in world.told.erasures if erasure.is_done for text in erasure.texts if text in found]
    if back:
        world.told.findings.append(f"read while calls fail, {back} are there and were erased")
    if missing:
        world.told.findings.append(f"read while calls fail, {missing} are not there once")
