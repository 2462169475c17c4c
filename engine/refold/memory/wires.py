"""Messages in the formats of providers' APIs: OpenAI (chat and responses), Anthropic, Gemini, Ollama. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgspec

from refold import checks
from refold.errors import InvalidInput
from refold.message import PROMPT_ROLES, TOOL_ROLES, Message

Rendered: TypeAlias = list[dict[str, Any]]


def openai(messages: Sequence[Message]) -> Rendered:
    """Return messages as OpenAI chat messages; a field that was not given is absent, not null."""
    rendered: Rendered = []
    for message in messages:
        optional = ((field, getattr(message, field)) for field in ("name", "tool_calls", "tool_call_id"))
        given = {field: value for field, value in optional if value is not None}
        rendered.append({"role": message.role, "content": message.content, **given})
    return rendered


def anthropic(messages: Sequence[Message]) -> Rendered:
    """Return messages as Anthropic messages: calls and results as content blocks, adjacent ones of one role joined.

    System and developer messages are left out; that API takes them as ``system=``. Messages without content, which it
    rejects, are left out too.
    """
    rendered: Rendered = []
    for message in messages:
        if message.role not in PROMPT_ROLES:
            role = "assistant" if message.role == "assistant" else "user"
            _join(rendered, role, "content", _blocks(message))
    return rendered


def _join(rendered: Rendered, role: str, field: str, parts: list[dict[str, Any]]) -> None:
    """Add parts, if there are any, to the last message if it has the same role, else as a new message."""
    if parts and rendered and rendered[-1]["role"] == role:
        rendered[-1][field].extend(parts)
    elif parts:
        rendered.append({"role": role, field: parts})


def _blocks(message: Message) -> list[dict[str, Any]]:
    content = message.content
    if message.role in TOOL_ROLES:
        result = "" if content is None else content
        return [{"type": "tool_result", "tool_use_id": message.tool_call_id or "", "content": result}]
    blocks: list[dict[str, Any]] = (
        [{"type": "text", "text": content}] if isinstance(content, str) and content else list(content or [])
    )
    for call in message.tool_calls or ():
        made = _call(call)
        blocks.append({"type": "tool_use", "id": made.id, "name": made.name, "input": made.arguments})
    return blocks


# The parts of a message, in whichever API's format it was given.


class _Text(NamedTuple):
    text: str


class _Image(NamedTuple):
    kind: str
    data: str
    """Base64."""


class _Call(NamedTuple):
    id: str
    name: str
    arguments: dict[str, Any]


class _Result(NamedTuple):
    id: str
    text: str
    name: str | None


_Part: TypeAlias = _Text | _Image | _Call | _Result
_DATA_URL: Final = re.compile(r"data:([\w./+-]+);base64,(.*)\Z", re.DOTALL)


def _parts(message: Message, form: str) -> Iterator[_Part]:
    """Yield the parts of a message; raise ``InvalidInput`` for a block that the format has no place for."""
    content = message.content
    if message.role in TOOL_ROLES:
        yield _Result(message.tool_call_id or "", _text(content or "", form, message), message.name)
        return
    if isinstance(content, str):
        if content:
            yield _Text(content)
    else:
        for block in content or ():
            yield _part(block, form, message)
    yield from map(_call, message.tool_calls or ())


def _part(block: Any, form: str, message: Message) -> _Part:
    match block:
        case {"type": "text" | "input_text" | "output_text", "text": str(text)}:
            return _Text(text)
        case {"type": "tool_use", "name": str(name)}:
            return _Call(_id(block.get("id")), name, _parsed(block.get("input", {})))
        case {"type": "tool_result"}:
            return _Result(_id(block.get("tool_use_id")), _text(block.get("content") or "", form, message), None)
        case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            return _Image(kind, data)
        case {"type": "image_url", "image_url": {"url": str(url)}} if found := _DATA_URL.match(url):
            return _Image(found[1], found[2])
        case _:
            raise _unplaced(block, form, message)


def _unplaced(block: object, form: str, message: Message) -> InvalidInput:
    kind = cast("dict[str, Any]", block).get("type") if isinstance(block, dict) else block
    return InvalidInput(
        f"message {message.seq} has a block of type {checks.shown(kind)}, for which {form} has no place; "
        f"render that message yourself, or remove it from the window"
    )


def _text(content: object, form: str, message: Message) -> str:
    """Return the text of a tool's answer; raise ``InvalidInput`` for blocks that are not text."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for block in cast("list[object]", content) if isinstance(content, list) else [content]:
        part = _part(block, form, message)
        if not isinstance(part, _Text):
            raise _unplaced(block, form, message)
        texts.append(part.text)
    return "\n".join(texts)


def _call(call: dict[str, Any]) -> _Call:
    given = call.get("function", call)
    function = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    return _Call(_id(call.get("id")), _id(function.get("name")), _parsed(function.get("arguments", {})))


def _id(given: object) -> str:
    """Return the id or name of a call as a text: a recorded one can be any JSON value."""
    return given if isinstance(given, str) else "" if given is None else str(given)


def _parsed(arguments: Any) -> dict[str, Any]:
    """Return a call's arguments as an object; anything that is not a JSON object is passed on under ``arguments``."""
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments or "{}")
        except checks.UNDECODABLE:
            return {"arguments": arguments}
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {"arguments": arguments}


def openai_responses(messages: Sequence[Message]) -> Rendered:
    """Return messages as input items for OpenAI's Responses API; calls and their outputs are separate items."""
    items: Rendered = []
    for message in messages:
        kind = "output_text" if message.role == "assistant" else "input_text"
        role = "user" if message.role in TOOL_ROLES else message.role
        blocks: list[dict[str, Any]] = []
        for part in _parts(message, "openai-responses"):
            match part:
                case _Text(text):
                    blocks.append({"type": kind, "text": text})
                case _Image(mime, data):
                    blocks.append({"type": "input_image", "image_url": f"data:{mime};base64,{data}"})
                case _Call(call_id, name, arguments):
                    text = msgspec.json.encode(arguments).decode()
                    blocks = _flushed(items, role, blocks)
                    items.append({"type": "function_call", "call_id": call_id, "name": name, "arguments": text})
                case _Result(call_id, text, _):
                    blocks = _flushed(items, role, blocks)
                    items.append({"type": "function_call_output", "call_id": call_id, "output": text})
        _flushed(items, role, blocks)
    return items


def _flushed(items: Rendered, role: str, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the collected blocks as a message, if there are any, and return an empty list for the next ones."""
    if blocks:
        items.append({"type": "message", "role": role, "content": blocks})
    return []


def gemini(messages: Sequence[Message]) -> Rendered:
    """Return messages as Gemini contents: adjacent ones of one role joined, answers under the names of their tools.

    System and developer messages are left out; that API takes them as ``system_instruction``.
    """
    contents: Rendered = []
    names: dict[str, str] = {}
    for message in messages:
        if message.role in PROMPT_ROLES:
            continue
        role = "model" if message.role == "assistant" else "user"
        for part in _parts(message, "gemini"):
            match part:
                case _Text(text):
                    shown: dict[str, Any] = {"text": text}
                case _Image(mime, data):
                    shown = {"inlineData": {"mimeType": mime, "data": data}}
                case _Call(call_id, name, arguments):
                    names[call_id] = name
                    shown = {"functionCall": {"name": name, "args": arguments} | ({"id": call_id} if call_id else {})}
                case _Result(call_id, text, name):
                    answer = {"name": name or names.get(call_id, ""), "response": {"result": text}}
                    shown = {"functionResponse": answer | ({"id": call_id} if call_id else {})}
            _join(contents, role, "parts", [shown])
    return contents


def ollama(messages: Sequence[Message]) -> Rendered:
    """Return messages in Ollama's format: content is text, images are a field, arguments are objects."""
    chat: Rendered = []
    names: dict[str, str] = {}
    for message in messages:
        role = "system" if message.role in PROMPT_ROLES else message.role
        parts = list(_parts(message, "ollama"))
        for result in (part for part in parts if isinstance(part, _Result)):
            name = result.name or names.get(result.id)
            chat.append({"role": "tool", "content": result.text} | ({"tool_name": name} if name else {}))
        texts = [part.text for part in parts if isinstance(part, _Text)]
        images = [part.data for part in parts if isinstance(part, _Image)]
        calls = [part for part in parts if isinstance(part, _Call)]
        names |= {call.id: call.name for call in calls}
        if texts or images or calls:
            made = [{"function": {"name": call.name, "arguments": call.arguments}} for call in calls]
            beside = {"images": images} if images else {}
            chat.append({"role": role, "content": "\n".join(texts)} | beside | ({"tool_calls": made} if made else {}))
    return chat


FORMATS: Final[Mapping[str, Callable[[Sequence[Message]], Rendered]]] = MappingProxyType(
    {
        "anthropic": anthropic,
        "gemini": gemini,
        "ollama": ollama,
        "openai": openai,
        "openai-responses": openai_responses,
    }
)
"""The formats by name."""


def rendered(form: object, messages: Sequence[Message]) -> Rendered:
    """Return messages in the format of a provider's API; raise ``InvalidInput`` for an unknown one."""
    if not isinstance(form, str) or form not in FORMATS:
        raise InvalidInput(f"format is {checks.shown(form)}; give one of {', '.join(FORMATS)}")
    return FORMATS[form](messages)
