"""Edits of a window by its messages: the newest one taken out."""

from collections.abc import Callable
from typing import Any

from refold.event import Event, Recorded
from refold.fold import State
from refold.memory.options import Core
from refold.message import Message
from refold.views.window import WINDOW, MessageRemoved


def pop(core: Core, stream: str, cited: tuple[int, ...], write: Callable[..., Recorded | None]) -> Message | None:
    """Take the newest message out of a window and return it, ``None`` where there is none."""
    taken: list[Message] = []  # The last is the one that was taken: a decision may be made more than once.

    def decide(state: State) -> Event | None:
        newest = state.part(WINDOW).newest()
        if newest is None:
            return None
        taken.append(newest)
        return MessageRemoved(cited, newest.id)

    noted = write(decide, ("pop",))
    if noted is None:
        return None
    message = taken[-1] if taken else _found_before(core, stream, noted)
    if message.stamp.seq < 0 and message.event.sources:
        core.expect_event(message)
    return message


def _found_before(core: Core, stream: str, noted: Recorded) -> Message:
    """Return the message that a pop took which was answered before; one that was erased since has no content."""
    removed: Any = noted.event
    found = core.read_around(stream, lambda state: state.part(WINDOW).find(removed.id), noted.stamp, is_before=True)
    assert found is not None, f"seq {noted.stamp.seq} removed a message that was not there"
    return found
