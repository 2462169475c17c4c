"""A message that a front end appended: the hooks get it before the first context that shows it, once."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic, sleep
from typing import Any, Final

from msgspec.structs import replace

from refold.agent.hooks import USER_MESSAGE, HookContext, Hooks
from refold.agent.turn_lock import Question
from refold.errors import NotFound, StoreBusy
from refold.limits import LOOP_WAIT_SECONDS_MAX
from refold.log.reservation import Reservation
from refold.memory.conversation import Conversation
from refold.memory.core import core_of
from refold.memory.turns import is_question, open_questions, open_turn_of
from refold.message import (
    HEARD_KEY,
    INJECTED_KEY,
    ORIGINAL_KEY,
    WITHHELD_KEY,
    Message,
    MessageAppended,
    is_withheld,
    text_of,
)
from refold.views.window import WINDOW

NOTHING_LEFT: Final = "a hook left nothing of the message"
_MARKS: Final = frozenset((HEARD_KEY, INJECTED_KEY, ORIGINAL_KEY, WITHHELD_KEY))
_POLL_SECONDS: Final = 0.05


def questions_of(message: Message) -> list[Question]:
    """Return who asks what in a user message, and what the user said originally if a hook changed it."""
    original = (message.metadata or {}).get(ORIGINAL_KEY)
    texts = [text_of(message), original] if isinstance(original, str) else [text_of(message)]
    return [Question(message.name, text) for text in texts]


def withheld_with(*messages: Message) -> dict[str, Any]:
    """Return the metadata of what answers messages: if one is withheld, so is this, even after it was erased."""
    return {WITHHELD_KEY: True} if any(map(is_withheld, messages)) else {}


def has_requests(chat: Conversation, after: int, before: int) -> bool:
    """Return whether a user's message or calls of tools came between two seqs."""
    appended = (Message(event, stamp) for event, stamp in chat.events(after) if isinstance(event, MessageAppended))
    return any(is_question(message) or message.event.call_ids for message in appended if message.seq < before)


def questions_outside(chat: Conversation, window: Sequence[Message]) -> list[Message]:
    """Return the messages of users since the last answer that are not in a context's window."""
    ids = {message.id for message in window}
    return [message for message in _open_questions(chat) if message.id not in ids]


def _open_questions(chat: Conversation) -> list[Message]:
    core, at = core_of(chat)
    return open_questions(open_turn_of(core, chat.place[0], at).messages)


def is_heard(chat: Conversation, message: Message) -> bool:
    """Return whether the hooks got a user message, or a turn has begun to answer it."""
    if not _MARKS.isdisjoint(message.metadata or {}):
        return True
    return any(stamp.cause == message.seq for _, stamp in chat.events(message.seq))


def hear(
    hooks: Hooks, context: HookContext, message: Message, write: Callable[[Callable[[], Any]], Any]
) -> tuple[Message, str | None]:
    """Let the hooks get an open message that no `run` appended; return it with what they add, and a reason to stop.

    Those before it that have no answer either come first. A message gets its new form and its mark after the hooks'
    writes, so that a crash in between loses none: the next turn calls the hooks again. Processes do this one after the
    other. A message that a hook stops leaves the window. `write` runs a function in a batch.
    """
    hear_others(hooks, context, message, write)
    return _hear(hooks, context, message, write) if hooks.is_registered(USER_MESSAGE) else (message, None)


def hear_others(
    hooks: Hooks, context: HookContext, message: Message, write: Callable[[Callable[[], Any]], Any]
) -> None:
    """Let the hooks get, as above, the other messages of users since the last answer: an answer to one is to all."""
    if not hooks.is_registered(USER_MESSAGE):
        return
    for each in _open_questions(context.conversation):
        if each.id != message.id:
            _hear(hooks, context, each, write)


def _hear(
    hooks: Hooks, context: HookContext, message: Message, write: Callable[[Callable[[], Any]], Any]
) -> tuple[Message, str | None]:
    chat = context.conversation
    if not text_of(message).strip() or is_heard(chat, message):
        return message, None
    with _alone(chat):
        core_of(chat)[0].engine.refresh()
        message = next((each for each in chat.window() if each.id == message.id), message)
        text = text_of(message)
        if not text.strip() or message.erased or is_heard(chat, message):
            return message, None
        context = replace(context, user_name=message.name or context.user_name)
        with context.memory.acting("user", cause=message.seq):
            answer = hooks.fire_user_message(context, text)
            hooks.fire_deferred(context, [message])
        content = text if answer.modified_message is None else answer.modified_message
        if answer.stop_reason is not None or not content.strip():
            write(partial(_take_back, chat, message))
            return message, answer.stop_reason or NOTHING_LEFT
        is_changed = content != text
        added = ({ORIGINAL_KEY: text} if is_changed else {}) | (answer.metadata or {})
        metadata = (message.metadata or {}) | (added or {HEARD_KEY: True})
        fields: dict[str, Any] = {"name": context.user_name, "metadata": metadata}
        if is_changed:
            fields["content"] = _with_text(message, content)
        else:
            fields |= {"content": message.content, "tokens": message.tokens}

        def mark() -> Message:
            live = next((each for each in chat.window() if each.id == message.id), None)
            return message if live is None or live.erased else chat.replace(message.id, **fields)

        with suppress(NotFound):  # It was taken back, or left the window, meanwhile.
            message = write(mark)
    if is_changed:
        core, at = core_of(chat)
        seq = core.read(chat.place[0], lambda state: state.part(WINDOW).replaced.get(message.id), at)
        hooks.compacted(context, seq or message.seq)
    return message, None


def _take_back(chat: Conversation, message: Message) -> None:
    """Take a message out of the window; withheld, it is not quoted as an earlier one either."""
    live = next((each for each in chat.window() if each.id == message.id), None)
    if live is not None and not live.erased:
        metadata = (live.metadata or {}) | {WITHHELD_KEY: True}
        chat.replace(live.id, live.content, tokens=live.tokens, name=live.name, metadata=metadata)
    chat.remove(message)


def _with_text(message: Message, text: str) -> str | list[dict[str, Any]]:
    """Return the content of a message with another text in place of its own, in front of its other blocks."""
    if not isinstance(message.content, list):
        return text
    return [{"type": "text", "text": text}, *(block for block in message.content if "text" not in block)]


@contextmanager
def _alone(chat: Conversation) -> Generator[None]:
    """Keep other processes of the machine from doing the same in the conversation."""
    core, _ = core_of(chat)
    reader = core.engine.reader
    directory = reader.log.files.directory
    if directory is None:
        yield
        return
    reservation = Reservation(directory, reader.keyed_hash(b"hear" + core.key(chat.place[0]).encode()).hex())
    until = monotonic() + LOOP_WAIT_SECONDS_MAX
    try:
        while not reservation.take():
            if monotonic() >= until:
                raise StoreBusy(
                    f"the hooks of another process have a message of {chat.id!r} for longer than "
                    f"LOOP_WAIT_SECONDS_MAX = {LOOP_WAIT_SECONDS_MAX} seconds; call again to wait longer"
                )
            sleep(_POLL_SECONDS)
        yield
    finally:
        reservation.release()
