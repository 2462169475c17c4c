"""A model's reply, as the log can store it, and the calls in it."""

import inspect
from collections.abc import Sequence
from itertools import chain, count
from types import NoneType
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from refold import checks
from refold.agent.providers import Usage
from refold.agent.tools import storable_text
from refold.limits import NAME_BYTES_MAX, TOOL_NAME_CHARS_MAX
from refold.memory.turns import groups_of
from refold.message import Message

_ID_CHARS_MAX: Final = NAME_BYTES_MAX // 4  # The most characters of a call id, at up to four bytes each.
_NUMBER_CHARS: Final = 12  # Characters of an id that are left for a number.
# The output of a call that never got one; providers reject a call without an output.
INTERRUPTED: Final = "Error: the session was interrupted before this call came back"
ASYNCHRONOUS: Final = (
    "the model's reply is asynchronous, and AgentLoop calls it without await; make it a plain method, which can use "
    "asyncio.run(...), and on an event loop run the turn on another thread: await asyncio.to_thread(loop.run, text)"
)


class Call(Struct, frozen=True):
    """A tool call by a model; `arguments` is JSON as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"


class Reply(Struct, frozen=True):
    """A model's text, its tool calls, and its token usage if the provider counts it."""

    text: str | None = None
    calls: tuple[Call, ...] = ()
    usage: Usage | None = None


def recorded_calls(tool_calls: Sequence[dict[str, Any]] | None) -> tuple[Call, ...]:
    """Return the calls of a recorded message; messages of other hosts can lack any part of a call."""
    calls: list[Call] = []
    for call in tool_calls or ():
        function: Any = call.get("function")
        fields = cast("dict[str, Any]", function) if isinstance(function, dict) else {}
        arguments = fields.get("arguments") or ""
        calls.append(_storable_call(Call(call.get("id") or "", fields.get("name") or "", arguments)))
    return tuple(calls)


def storable_reply(reply: object) -> Reply:
    """Return a reply as the log can store it; ``InvalidInput`` if it is none."""
    if inspect.iscoroutine(reply):
        reply.close()
    if inspect.isawaitable(reply):
        checks.invalid(ASYNCHRONOUS)
    if not isinstance(reply, Reply) or not isinstance(cast("object", reply.text), (str, NoneType)):
        checks.invalid(f"a model's reply must be a Reply with a text or None, not {checks.brief(reply)}")
    calls = reply.calls if isinstance(cast("object", reply.calls), (tuple, list)) else (reply.calls,)
    text = None if reply.text is None else storable_text(reply.text, len(reply.text))
    if not isinstance(cast("object", reply.usage), (Usage, NoneType)):
        checks.invalid(f"a reply's usage must be a Usage or None, not {checks.brief(reply.usage)}")
    return Reply(text, tuple(map(_storable_call, calls)), reply.usage)


def _storable_call(call: object) -> Call:
    if not isinstance(call, Call):
        checks.invalid(f"a reply's calls must be a tuple of Call, not {checks.brief(call)}")
    arguments = cast("object", call.arguments)
    try:
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        text = ""
    return Call(
        storable_text(call.id or "", _ID_CHARS_MAX),
        storable_text(call.name or "", TOOL_NAME_CHARS_MAX),
        storable_text(text, len(text)),
    )


def render_calls(calls: Sequence[Call], window: Sequence[Message]) -> list[dict[str, Any]]:
    """Render the calls of a message, renaming those with the id of another call that has no answer of its tool yet."""
    taken = set[str]()
    for group in groups_of(window):
        answered = {message.event.answers for message in group if message.content != INTERRUPTED}
        taken.update(call_id for call_id in group[0].event.call_ids if call_id not in answered)
    recorded: list[dict[str, Any]] = []
    for call in calls:
        others = (f"{call.id[: _ID_CHARS_MAX - _NUMBER_CHARS]}-{number}" for number in count(2))
        name = next(name for name in chain((call.id,), others) if name not in taken)
        taken.add(name)
        recorded.append({"id": name, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
    return recorded
