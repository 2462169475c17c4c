"""What a rig writes down: each call before it is made, each answer after it, and what the log holds at the end.

A line is one of these structs as JSON. Times are those of the monotonic clock, which all processes of a machine share.
"""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec
from msgspec import Struct

PARENT = -1
"""The process number of the one that starts, kills and checks the others."""

LOOK_MESSAGES = 5
"""How many of the newest messages one look shows."""


class Write(Struct, frozen=True, omit_defaults=True):
    """One event that a call asks for. No two events have the same mark."""

    stream: str
    mark: str
    key: str = ""
    """The scratchpad key that gets the mark as its value; empty for a message, whose content begins with the mark."""
    expected: int | None = None
    padding_bytes: int = 0


class Look(Struct, frozen=True, omit_defaults=True):
    """One read: the newest messages of a stream, or one key of its scratchpad."""

    stream: str
    key: str = ""


class Call(Struct, frozen=True, tag=True, omit_defaults=True):
    """A call that is about to be made: several writes are one batch. A call that is made again keeps its name."""

    name: str
    process: int
    invoked_ns: int
    writes: tuple[Write, ...] = ()
    look: Look | None = None


class Answer(Struct, frozen=True, tag=True, omit_defaults=True):
    """What a call came back with."""

    name: str
    returned_ns: int
    places: tuple[tuple[int, int], ...] = ()
    """Seq and version of each write, for verbs that tell; empty for the others."""
    seen: tuple[str, ...] = ()
    """The marks that a look saw, oldest first."""
    error: str = ""
    """The name of the exception, empty for what was acknowledged."""
    actual: int = -1
    """The version that a ``WrongVersion`` named."""
    reason: str = ""
    """What the exception said."""


class Ready(Struct, frozen=True, tag=True):
    """A process has opened the memory and waits for the word to begin."""

    process: int


class Done(Struct, frozen=True, tag=True):
    """A process has made all its calls and waits to be stopped."""

    process: int


Line: TypeAlias = Call | Answer | Ready | Done

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Line).decode


class Fact(Struct, frozen=True):
    """One event that the log holds; its mark is empty if no call asked for it by name, as with openings."""

    seq: int
    stream: str
    version: int
    mark: str = ""
    key: str = ""


class Delivery(Struct, frozen=True):
    """What one subscriber was given, from the first event after ``after`` on, while it was subscribed."""

    subscriber: str
    seqs: tuple[int, ...]
    after: int | None = None
    """``None`` where the subscriber began at a head that nobody knows."""
    until: int | None = None
    """The seq up to which it was given time to come; ``None`` where it was cut off."""


class Operation(Struct, frozen=True):
    """All attempts at one call, as one: from the first time it was invoked until it was first acknowledged."""

    name: str
    process: int
    writes: tuple[Write, ...]
    look: Look | None
    invoked_ns: int
    answers: tuple[Answer, ...]
    is_pending: bool
    """Whether the last attempt never came back."""

    @property
    def acknowledgement(self) -> Answer | None:
        """The first answer that is no refusal."""
        return next((answer for answer in self.answers if not answer.error), None)

    @property
    def is_acknowledged(self) -> bool:
        """Whether the caller was told that it is done."""
        return self.acknowledgement is not None

    @property
    def refusal(self) -> Answer | None:
        """The answer of a call that was refused in the end; its request was not written by an earlier attempt."""
        return None if self.is_acknowledged or self.is_pending else self.answers[-1]

    @property
    def is_unknown(self) -> bool:
        """Whether the caller cannot know if it is done."""
        return self.is_pending and not self.is_acknowledged

    @property
    def returned_ns(self) -> int | None:
        """When the caller knew, ``None`` while it does not."""
        if self.is_unknown:
            return None
        return (self.acknowledgement or self.answers[-1]).returned_ns


def operations(lines: Iterable[Line]) -> list[Operation]:
    """Return the operations that the lines tell of, in the order of their first invocation.

    The lines of one name are in the order in which they were written: its attempts were made one after the other.
    """
    attempts: dict[str, list[Call | Answer]] = {}
    for line in lines:
        if isinstance(line, (Call, Answer)):
            attempts.setdefault(line.name, []).append(line)
    return [_operation(said) for said in attempts.values()]


def _operation(said: list[Call | Answer]) -> Operation:
    first = said[0]
    assert isinstance(first, Call), f"{first.name} was answered before it was called"
    answers = tuple(line for line in said if isinstance(line, Answer))
    is_pending = isinstance(said[-1], Call)
    return Operation(first.name, first.process, first.writes, first.look, first.invoked_ns, answers, is_pending)
