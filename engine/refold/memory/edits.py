"""Edits of the messages in a window: the newest taken out, the content of one replaced."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from refold import checks
from refold.errors import InvalidInput, LimitExceeded, NotFound
from refold.event import Event, Recorded, StateImported
from refold.fold import State
from refold.memory.core import Core
from refold.message import (
    TOOL_ROLES,
    Message,
    MessageAppended,
    MessageReplaced,
    imported_messages,
    message_event,
    replace_content,
)
from refold.views.window import WINDOW, MessageRemoved, Window


def pop(core: Core, stream: str, cited: tuple[int, ...], write: Callable[..., Recorded | None]) -> Message | None:
    """Take the newest message out of a window and return it, ``None`` if there is none."""
    taken: list[Message] = []  # The last one is the message taken: a decision can be made more than once.

    def decide(state: State) -> Event | None:
        newest = state.part(WINDOW).newest()
        if newest is None:
            return None
        taken.append(newest)
        return MessageRemoved(cited, newest.id)

    noted = write(decide, ("pop",))
    if noted is None:
        return None
    removed: Any = noted.event
    message = taken[-1] if taken else _message_before(core, stream, removed.id, noted)
    if message.stamp.seq < 0 and message.event.sources:
        core.expect_event(message)
    return message


def _message_before(core: Core, stream: str, message_id: str, noted: Recorded) -> Message:
    """Return a message as it was in the window before an event; one that was erased since has no content."""
    message = core.read_around(stream, lambda state: state.part(WINDOW).find(message_id), noted.stamp, is_before=True)
    assert message is not None, f"seq {noted.stamp.seq} is about a message that was not there"
    return message


# Replacing the content.


class Content(NamedTuple):
    """The content of a message as a caller gives it."""

    content: object
    tokens: int | None
    name: object
    tool_calls: object
    tool_call_id: object
    metadata: object

    def as_event(self, core: Core, role: str, name: str | None) -> MessageAppended:
        """Check the content, count its tokens, and return it as the event of a message with a role, and a name to keep.

        Who said a message does not change with its words.
        """
        tokens = core.counter if self.tokens is None else checks.tokens(self.tokens)
        rest = (name if self.name is None else self.name, self.tool_calls, self.tool_call_id, self.metadata)
        return message_event((), "", role, self.content, tokens, False, *rest)  # noqa: FBT003 - a field of the row


_CONTENT: Final = ("tokens", "call_ids", "answers", "text", "parts", "name", "calls", "extra")


def replace(
    core: Core,
    stream: str,
    key: str | int,
    content: Content,
    cited: tuple[int, ...],
    write: Callable[..., Recorded | None],
    request_id: str | None,
) -> Message:
    """Replace the content of a message in a window and return the new message."""
    # Tokens are counted here, with no lock held; the role of a message never changes.
    known = core.read_lightly(stream, lambda state: state.part(WINDOW).find(key), None)
    role = known.role if known is not None else "assistant" if content.tool_calls else "tool"
    made = content.as_event(core, role, None if known is None else known.name)
    before: list[Message] = []

    def find(state: State) -> Message:
        live = state.part(WINDOW).find(key)
        if live is None:
            raise NotFound(f"message {checks.brief(key)} is not in the window of {stream}; see window()")
        return live

    def decide(state: State) -> Event | None:
        window, live = state.part(WINDOW), find(state)
        is_alike = known is not None and (known.role, known.name) == (live.role, live.name)
        new = made if is_alike else content.as_event(core, live.role, live.name)
        event = _replacement_event(core, window, live, new, cited)
        before.append(live)
        is_same = all(getattr(event, field) == getattr(live.event, field) for field in _CONTENT)
        return None if is_same and not live.stamp.erased else event

    call: tuple[object, ...] = ("replace", key, made.text, made.parts, content.name, made.calls)
    call += (content.tool_call_id, made.extra, content.tokens)
    noted = write(decide, call)
    if noted is None:
        return before[-1] if before else core.read_unchanged(stream, find, request_id, call)
    event: Any = noted.event
    return replace_content(before[-1] if before else _message_before(core, stream, event.id, noted), event, noted.stamp)


def _replacement_event(
    core: Core, window: Window, live: Message, new: MessageAppended, cited: tuple[int, ...]
) -> MessageReplaced:
    if live.id == window.summary:
        raise InvalidInput(f"message {live.id} is the summary of what has left; summarize() writes another one")
    answers = live.event.answers if new.answers is None and live.role in TOOL_ROLES else new.answers
    if answers != live.event.answers:
        raise InvalidInput(
            f"message {live.id} answers the call {live.event.answers!r}, its new content {answers!r}; let it answer "
            f"the same one, or remove it and append another"
        )
    origin = live.stamp.seq
    event = MessageReplaced(
        tuple(dict.fromkeys((*cited, origin))),  # So that erasing the message reaches its replacement.
        live.id,
        live.event.role,
        new.tokens,
        new.call_ids,
        answers,
        origin,
        _place_of(core, live) if origin == window.origin else 0,
        new.text,
        new.parts,
        new.name,
        new.calls,
        new.extra,
    )
    _check_pinned_tokens(window, event, live)
    return event


def _check_pinned_tokens(window: Window, event: MessageReplaced, live: Message) -> None:
    if not window.pinned:
        return
    then = window.copy()
    then.replace(event, live.stamp)
    if then.pinned_tokens > window.window_tokens:
        raise LimitExceeded(
            f"pinned messages would hold {then.pinned_tokens} tokens, over this window's {window.window_tokens}; "
            f"unpin one, give a shorter content, or raise set_window_tokens"
        )


def _place_of(core: Core, live: Message) -> int:
    """Return the place of a message in the imported state that it came with."""
    event, stamp = core.event(live.stamp.seq)
    assert isinstance(event, StateImported), f"seq {stamp.seq} imported a state"
    return next(place for place, each in enumerate(imported_messages(event, stamp)) if each.id == live.id)
