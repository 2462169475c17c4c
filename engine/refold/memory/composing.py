"""Composing what a conversation takes and shows: tokens counted, pins that fit, messages and scratchpads handed out."""

from collections.abc import Callable
from typing import Any

from refold import checks
from refold.engine.pending import Noted
from refold.errors import LimitExceeded
from refold.event import ConversationOpened, Event, unpack_json
from refold.fold import State
from refold.memory.door import Door
from refold.message import Message, MessageAppended
from refold.results import Scratchpad
from refold.text import TokenCounter, countable
from refold.views.scratch import SCRATCH
from refold.views.session import SESSION
from refold.views.window import WINDOW


def counted(counter: TokenCounter, content: Any, tool_calls: Any) -> int:
    """Return the tokens of a message whose parts are checked first: a counter sees only what can be stored."""
    if isinstance(content, str):
        checks.text(content, "content")
    elif content is not None:
        content = unpack_json(checks.packed_json(checks.json_objects(content, "content"), "content"))
    if tool_calls is not None:
        tool_calls = unpack_json(checks.packed_json(checks.json_objects(tool_calls, "tool_calls"), "tool_calls"))
    return checks.tokens(sum(checks.tokens(counter.count(text)) for text in countable(content, tool_calls)))


def fitting(event: MessageAppended, opening: ConversationOpened) -> Callable[[State], Event]:
    """Return the decision to append a message that is pinned, or that answers into a group that may be."""

    def decide(state: State) -> Event:
        window = state.part(WINDOW)
        budget = window.window_tokens if window.policy else opening.window_tokens
        held = window.pinned_with(event)
        if held > budget:
            message = (
                f"pinned messages would hold {held} tokens, over this window's {budget}; "
                f"pin less, raise set_window_tokens, or clear_window() first"
            )
            raise LimitExceeded(message)
        return event

    return decide


def asked(event: MessageAppended, tokens: int | None, occurred_ns: int | None) -> tuple[Any, ...]:
    """Return what makes two appends the same request: all that was given, nothing that was made here."""
    given = (event.role, event.text, event.parts, event.name, event.calls, event.answers, event.pinned, event.extra)
    return ("append", *given, tokens, occurred_ns)


def handed_out(door: Door, noted: Noted) -> Message:
    """Return the message of a noted event; the engine fills in its stamp if its batch is still open."""
    event, stamp = noted
    assert isinstance(event, MessageAppended), event
    message = Message(event, stamp)
    if stamp.seq < 0:
        door.expect_stamp(message)
    return message


def counts(state: State, opening: ConversationOpened) -> tuple[int, int, int]:
    """Return how many messages are live, their tokens, and the budget: recorded, or to be recorded."""
    window = state.part(WINDOW)
    return len(window), window.tokens, window.window_tokens if window.policy else opening.window_tokens


def scratchpad(state: State) -> Scratchpad:
    """Return the scratchpad of a state, whole: keys, sorted, and notes."""
    scratch = state.part(SCRATCH)
    entries = scratch.entries.values
    return Scratchpad({key: entries[key] for key in sorted(entries)}, [text for _, text in scratch.notes])


def project_of(state: State, opening: ConversationOpened) -> str | None:
    """Return the project of a conversation, or the one that it is about to be opened in."""
    session = state.part(SESSION)
    return session.project if session.opened else session.project or opening.project
