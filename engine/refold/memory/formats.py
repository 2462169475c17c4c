"""Messages as providers' APIs take them."""

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgspec

from refold import checks
from refold.errors import InvalidInput
from refold.message import TOOL_ROLES, Message


def openai(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as OpenAI chat messages; a field that was not given is absent, not null."""
    return [_openai_message(message) for message in messages]


def _openai_message(message: Message) -> dict[str, Any]:
    rendered: dict[str, Any] = {"role": message.role, "content": message.content}
    for field in ("name", "tool_calls", "tool_call_id"):
        value = getattr(message, field)
        if value is not None:
            rendered[field] = value
    return rendered


def anthropic(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as Anthropic messages: calls and results as content blocks, neighbours of one role joined.

    System and developer messages are left out; that API takes them as ``system=``. So are messages without content,
    which it refuses.
    """
    rendered: list[dict[str, Any]] = []
    for message in messages:
        if message.role in ("system", "developer"):
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _result_block(message) if message.role in TOOL_ROLES else _blocks(message)
        if not blocks:
            continue
        if rendered and rendered[-1]["role"] == role:
            rendered[-1]["content"].extend(blocks)
        else:
            rendered.append({"role": role, "content": blocks})
    return rendered


def _blocks(message: Message) -> list[dict[str, Any]]:
    content = message.content
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) and content else list(content or [])
    return [*blocks, *(_use_block(call) for call in message.tool_calls or ())]


def _use_block(call: dict[str, Any]) -> dict[str, Any]:
    given = call.get("function", call)
    function = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    return {
        "type": "tool_use",
        "id": call.get("id", ""),
        "name": function.get("name", ""),
        "input": _parsed(function.get("arguments", {})),
    }


def _parsed(arguments: Any) -> Any:
    """Return a call's arguments as an object; text that is no JSON object is handed on under ``arguments``."""
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments or "{}")
        except msgspec.DecodeError:
            return {"arguments": arguments}
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {"arguments": arguments}


def _result_block(message: Message) -> list[dict[str, Any]]:
    return [
        {
            "type": "tool_result",
            "tool_use_id": message.tool_call_id or "",
            "content": message.content if message.content is not None else "",
        }
    ]


FORMATS: Final[dict[str, Callable[[Sequence[Message]], list[dict[str, Any]]]]] = {
    "anthropic": anthropic,
    "openai": openai,
}


def rendered(form: object, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages in the form that a provider's API takes; ``InvalidInput`` for a form that is not known."""
    if not isinstance(form, str) or form not in FORMATS:
        message = f"format is {checks.shown(form)}; give one of {', '.join(sorted(FORMATS))}"
        raise InvalidInput(message)
    return FORMATS[form](messages)
