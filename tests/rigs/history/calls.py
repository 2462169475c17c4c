"""What a call of a rig does to a memory, and what the memory's log says of it afterwards."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from refold import Conversation, Memory, Message, RefoldError, StoreFull, StoreUnreachable, WrongVersion
from refold.event import Recorded
from refold.message import MessageAppended
from refold.views.scratchpad import ScratchpadSet
from tests.rigs.history.record import LOOK_MESSAGES, Answer, Call, Fact, Look, Write

T = TypeVar("T")

UNREACHABLE_SECONDS_MAX = 120

WINDOW_TOKENS = 4 * LOOK_MESSAGES
"""Every message is one token, so that windows evict and yet hold what a look shows."""


def answered(call: Callable[[], T]) -> T:
    """Make a call, again as long as a server does not answer or has no room."""
    until = time.monotonic() + UNREACHABLE_SECONDS_MAX
    while True:
        try:
            return call()
        except (StoreFull, StoreUnreachable):
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def opened(path: str, copies: str, **options: Any) -> Memory:
    """Open a store, or a log on a server whose copies lie in a directory."""
    if copies:
        options["cache"] = copies
    return answered(lambda: Memory(path, window_tokens=WINDOW_TOKENS, **options))


def perform(memory: Memory, call: Call) -> Answer:
    """Make a call and return what it came back with, and when; an error of another kind is not caught.

    Where a server does not answer or has no room, the call is made again until it does and has, as a client would under
    its request id.
    """
    return answered(lambda: _performed(memory, call))


def _performed(memory: Memory, call: Call) -> Answer:
    try:
        answer = _looked(memory, call, call.look) if call.look is not None else _written(memory, call)
    except (StoreFull, StoreUnreachable):
        raise
    except RefoldError as error:
        actual = error.actual if isinstance(error, WrongVersion) else -1
        answer = Answer(call.name, 0, error=type(error).__name__, actual=actual, reason=str(error))
    return replace(answer, returned_ns=time.monotonic_ns())


def _looked(memory: Memory, call: Call, look: Look) -> Answer:
    memory.refresh()  # What other machines were answered for is here at once if it is asked for.
    chat = memory.conversation(look.stream)
    if look.key:
        value = chat.scratchpad.get(look.key)
        return Answer(call.name, 0, seen=() if value is None else (value,))
    return Answer(call.name, 0, seen=tuple(_mark(message.content) for message in chat.window(last=LOOK_MESSAGES)))


def _written(memory: Memory, call: Call) -> Answer:
    if len(call.writes) == 1:
        results = [_write(memory.conversation(call.writes[0].stream), call.writes[0])]
    else:
        with memory.batch():
            results = [_write(memory.conversation(write.stream), write) for write in call.writes]
    places = [(message.stamp.seq, message.stamp.version) for message in results if message is not None]
    return Answer(call.name, 0, places=tuple(places) if len(places) == len(call.writes) else ())


def _write(chat: Conversation, write: Write) -> Message | None:
    """Write under a request id, which is the mark: made again, it is the same request."""
    options: dict[str, Any] = {"request_id": write.mark}
    if write.expected is not None:
        options["expected"] = write.expected
    if write.key:
        chat.scratchpad.set(write.key, write.mark, **options)
        return None
    return chat.append("user", f"{write.mark} {'x' * write.padding_bytes}", tokens=1, **options)


def facts(memory: Memory, after: int = 0) -> list[Fact]:
    """Return what the log holds behind a seq."""
    return [_fact(recorded) for recorded in memory.events(after=after)]


def _fact(recorded: Recorded) -> Fact:
    event, stamp = recorded
    stream = stamp.stream.removeprefix("conversation/")
    if isinstance(event, ScratchpadSet):
        return Fact(stamp.seq, stream, stamp.version, event.value, event.key)
    if isinstance(event, MessageAppended):
        return Fact(stamp.seq, stream, stamp.version, _mark(event.content))
    return Fact(stamp.seq, stream, stamp.version)


def _mark(content: Any) -> str:
    return str(content).partition(" ")[0]
