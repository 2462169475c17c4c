"""Messages in the formats of providers' APIs: OpenAI (chat and responses), Anthropic, Gemini, Ollama. Pure.

What every format promises is that its API takes the request:

- Blank texts are left out, and so are messages that say nothing else.
- The results of a message's calls stand directly behind it, in the order of the calls; what was said in between comes
  after them. Of two results for one call, the later one counts, and a result whose call is not there is left out.
- A call without a result gets ``NO_RESULT``, unless nothing follows but other results: then its tool is still running.
- The name of a tool has no character and no length that the API refuses, in call and result alike, and a call's
  arguments are a JSON object: whatever else a model wrote stands in one, under ``arguments``.
- A block belongs to one format, and is passed on unchanged there. In the others it is written anew. Where they have no
  place for it, the text of a document or of a search result stands for it, else a short text says what it was, such
  as "(an image of type image/heic)"; the thoughts of a model are left out there.
- In place of a block that no format takes, a short text says its type: one such block must not stop a conversation.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgspec

from refold import checks
from refold.errors import InvalidInput
from refold.limits import VALUE_BYTES_MAX
from refold.memory.blocks import (
    ANTHROPIC,
    GEMINI,
    OLLAMA,
    OPENAI,
    RESPONSES,
    Block,
    ContentPart,
    Mark,
    Media,
    Result,
    TextPart,
    ToolUse,
    Utterance,
    media_type_of,
    part_of,
    utterances_of,
)
from refold.message import PROMPT_ROLES, Message
from refold.text import readable_text

Rendered: TypeAlias = list[dict[str, Any]]

NO_RESULT: Final = "Error: there is no result of this call"
"""The result of a call that has none, for example because it was erased."""

OPENING: Final = "(The conversation goes on.)"
"""The user's message at the front of a window that does not begin with one, for APIs that require it."""

_TOOL: Final = "tool"
"""The role that stands for results among the roles whose messages take media."""


APART: Final = frozenset((ANTHROPIC, GEMINI))
"""The formats without system messages, whose APIs take them separately."""


# The calls of an utterance, each with its id in the request and its result.


class _CallResult(NamedTuple):
    id: str
    call: ToolUse
    result: ContentPart | None


class _Exchange(NamedTuple):
    utterance: Utterance
    ids: list[str]
    answers: list[_CallResult]


_NO_WORD: Final = re.compile(r"[^a-zA-Z0-9_-]")

# An id from another provider, or one that a model gives to each of its calls, is changed in call and result alike.
_IDS: Final[Mapping[str, tuple[re.Pattern[str] | None, int]]] = MappingProxyType(
    {ANTHROPIC: (_NO_WORD, 64), OPENAI: (None, VALUE_BYTES_MAX), RESPONSES: (_NO_WORD, 64)}
)
"""What APIs refuse in the id of a call: the characters, and a greater length."""


# A model can make up any name, and a request with one that is refused fails in every later turn, too.
_TOOL_NAMES: Final[Mapping[str, tuple[re.Pattern[str], int]]] = MappingProxyType(
    {
        OPENAI: (_NO_WORD, 64),
        RESPONSES: (_NO_WORD, 64),
        ANTHROPIC: (_NO_WORD, 128),
        GEMINI: (re.compile(r"^(?=[0-9.:-])|[^a-zA-Z0-9_.:-]"), 64),
        OLLAMA: (_NO_WORD, 64),
    }
)
"""What APIs refuse in the name of a tool: the characters, and a greater length."""


def _tool_name(given: str, form: str) -> str:
    """Return the name of a tool as an API takes it, in calls and results alike."""
    unfit, length = _TOOL_NAMES[form]
    return unfit.sub("_", given)[:length] or "unnamed"


def _exchanges(messages: Sequence[Message], form: str) -> Iterator[_Exchange]:
    """Yield the utterances that a format has a place for, with the results that follow each of them."""
    utterances = [
        utterance for utterance in utterances_of(messages) if form not in APART or utterance.role not in PROMPT_ROLES
    ]
    uses: dict[str, int] = {}
    for utterance in utterances:
        ids = [_own_id(call.id, form, uses) for call in utterance.calls]
        answers = map(_CallResult, ids, utterance.calls, utterance.results)
        is_open = utterance is utterances[-1]
        yield _Exchange(utterance, ids, [answer for answer in answers if answer.result is not None or not is_open])


def _own_id(given: str, form: str, uses: dict[str, int]) -> str:
    """Return the id of a call as an API takes it, different from those of the calls before."""
    if form not in _IDS:
        return given
    unfit, length = _IDS[form]
    fit = (given if unfit is None else unfit.sub("_", given))[:length] or "call"
    made = fit
    while made in uses:
        uses[fit] += 1
        suffix = f"_{uses[fit]}"
        made = fit[: length - len(suffix)] + suffix
    uses[made] = 1
    return made


# Blocks in each format.


def _openai_text(text: str, _: str) -> Block:
    return {"type": "text", "text": text}


def _responses_text(text: str, role: str) -> Block:
    return {"type": "output_text" if role == "assistant" else "input_text", "text": text}


def _gemini_text(text: str, _: str) -> Block:
    return {"text": text}


_TEXTS: Final[Mapping[str, Callable[[str, str], Block]]] = MappingProxyType(
    {OPENAI: _openai_text, RESPONSES: _responses_text, ANTHROPIC: _openai_text, GEMINI: _gemini_text}
)

_SOUNDS: Final[Mapping[str, str]] = MappingProxyType(
    {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}
)
_PDF: Final = "application/pdf"
_IMAGES: Final = frozenset(("image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp"))
_GEMINI_TYPES: Final = (*_IMAGES, "image/heic", "image/heif", "audio/", "video/", _PDF, "text/", "application/json")


def _is_taken(media: Media) -> bool:
    """Return whether every API takes the type of an image, or of the data of a document, as far as it is known."""
    media_type = (media.media_type or media_type_of(media.url or "") or "").lower()
    return not media_type or media_type in (_IMAGES if media.kind == "image" else {_PDF})


def _url_of(media: Media) -> str:
    return media.url or f"data:{media.media_type};base64,{media.data}"


def _openai_media(media: Media) -> Block | None:
    match media:
        case Media(kind="image") if _is_taken(media):
            return {"type": "image_url", "image_url": {"url": _url_of(media)}}
        case Media(kind="audio", data=str(data), media_type=str(media_type)) if media_type in _SOUNDS:
            return {"type": "input_audio", "input_audio": {"data": data, "format": _SOUNDS[media_type]}}
        case Media(kind="document", data=str()) if _is_taken(media):
            return {"type": "file", "file": {"filename": media.name or "document.pdf", "file_data": _url_of(media)}}
        case _:
            return None


def _responses_media(media: Media) -> Block | None:
    match media:
        case Media(kind="image") if _is_taken(media):
            return {"type": "input_image", "image_url": _url_of(media)}
        case Media(kind="document", url=str(url)):
            return {"type": "input_file", "file_url": url}
        case Media(kind="document") if _is_taken(media):
            return {"type": "input_file", "filename": media.name or "document.pdf", "file_data": _url_of(media)}
        case _:
            return None


def _anthropic_media(media: Media) -> Block | None:
    source: Block
    match media:
        case Media(kind="image" | "document", url=str(url)) if url.startswith("https://") and _is_taken(media):
            source = {"type": "url", "url": url}
        case Media(kind="image" | "document", data=str(data)) if _is_taken(media):
            source = {"type": "base64", "media_type": media.media_type, "data": data}
        case _:
            return None
    title = {"title": media.name} if media.kind == "document" and media.name else {}
    return {"type": media.kind, "source": source, **title}


def _gemini_media(media: Media) -> Block | None:
    if media.url is None:
        if not (media.media_type or "").lower().startswith(_GEMINI_TYPES):
            return None
        return {"inlineData": {"mimeType": media.media_type, "data": media.data}}
    media_type = media.media_type or media_type_of(media.url)
    is_taken = media_type is not None and media.url.startswith("https://")
    return {"fileData": {"mimeType": media_type, "fileUri": media.url}} if is_taken else None


def _ollama_media(media: Media) -> Block | None:
    return {"data": media.data} if media.kind == "image" and media.url is None and _is_taken(media) else None


_MEDIA: Final[Mapping[str, Callable[[Media], Block | None]]] = MappingProxyType(
    {
        OPENAI: _openai_media,
        RESPONSES: _responses_media,
        ANTHROPIC: _anthropic_media,
        GEMINI: _gemini_media,
        OLLAMA: _ollama_media,
    }
)

_MEDIA_ROLES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        OPENAI: frozenset(("user",)),
        RESPONSES: frozenset(("user", "system", "developer", _TOOL)),
        ANTHROPIC: frozenset(("user", _TOOL)),
        GEMINI: frozenset(("user", "assistant", _TOOL)),
        OLLAMA: frozenset(("user", "assistant", "system", "developer", _TOOL)),
    }
)
"""The roles whose messages take media, in each format."""


def _media_block(media: Media, form: str, role: str) -> Block | None:
    """Return media as a block of a format, ``None`` if that has no place for it."""
    if role not in _MEDIA_ROLES[form]:
        return None
    made = _MEDIA[form](media)
    # Gemini's results take data alone.
    return None if form == GEMINI and role == _TOOL and media.url is not None else made


def _block(part: ContentPart, form: str, role: str) -> Block | None:
    """Return a part as a block of a format, ``None`` if that has no place for it."""
    value = part.value
    is_own = part.own == form
    if isinstance(value, Media):
        return part.block if is_own and role in _MEDIA_ROLES[form] else _media_block(value, form, role)
    if isinstance(value, (TextPart, Mark)) and is_own:
        return part.block
    return _TEXTS[form](value.text, role) if isinstance(value, TextPart) else None


def _fit(parts: Sequence[ContentPart], form: str, role: str) -> Iterator[ContentPart]:
    """Yield parts without thoughts of other providers, and texts in place of what a format has no place for."""
    for part in parts:
        value = part.value
        block = None if isinstance(value, TextPart) else _block(part, form, role)
        if isinstance(value, TextPart):
            yield part
        elif block is not None:
            yield part._replace(block=block, own=form)  # Built once: it is now the format's own.
        elif isinstance(value, Media) or value is Mark.OPAQUE:
            yield part._replace(value=TextPart(readable_text(part.block) or f"({_label(part)})"), own="")
        elif value is not Mark.THOUGHT:
            kind = checks.brief(part.block.get("type", next(iter(part.block), None)))
            yield part._replace(value=TextPart(f"(a block of type {kind}, which no provider takes here)"), own="")


def _blocks(parts: Sequence[ContentPart], form: str, role: str) -> list[Block]:
    blocks = (_block(part, form, role) for part in _fit(parts, form, role))
    return [block for block in blocks if block is not None]


_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {"image": "an image", "document": "a document", "audio": "audio", "video": "a video"}
)
"""The kinds of media as a text calls them."""


def _label(part: ContentPart) -> str:
    """Return what a block was, in a few words."""
    value = part.value
    if not isinstance(value, Media):
        return str(part.block.get("type", next(iter(part.block), "")))
    name = f" named {checks.brief(value.name)}" if value.name else ""
    source = f" at {checks.brief(value.url)}" if value.url is not None else f" of type {value.media_type}"
    return _KINDS[value.kind] + name + source


def _content(result: ContentPart | None) -> str | list[ContentPart]:
    """Return what a result says: a text, or parts without blank texts."""
    if result is None:
        return NO_RESULT
    assert isinstance(result.value, Result), "utterances give calls results"
    content = result.value.content
    if content is None or isinstance(content, str):
        return content or ""
    blocks = cast("list[object]", content) if isinstance(content, list) else [content]
    parts = [part_of(block, result.message, number) for number, block in enumerate(blocks, 1)]
    return [part for part in parts if not isinstance(part.value, TextPart) or part.value.text.strip()]


def _split(parts: str | Sequence[ContentPart], form: str, role: str) -> tuple[str, list[Block]]:
    """Return the texts of parts as one, and the other blocks, for formats that keep them apart."""
    if isinstance(parts, str):
        return parts, []
    fit = [*_fit(parts, form, role)]
    texts = [part.value.text for part in fit if isinstance(part.value, TextPart)]
    return "\n".join(texts), _blocks([part for part in fit if not isinstance(part.value, TextPart)], form, role)


# The formats.


def openai(messages: Sequence[Message]) -> Rendered:
    """Return messages as OpenAI chat messages; a field that was not given is absent, not null."""
    rendered: Rendered = []
    for utterance, ids, answers in _exchanges(messages, OPENAI):
        blocks = _blocks(utterance.content, OPENAI, utterance.role)
        content = blocks[0]["text"] if blocks and isinstance(utterance.message.content, str) else blocks or None
        entries = [_openai_call(call, call_id) for call, call_id in zip(utterance.calls, ids, strict=True)]
        calls = {"tool_calls": entries} if entries else {}
        rendered.append({"role": utterance.role, "content": content} | _name_field(utterance.message.name) | calls)
        for call_id, _, result in answers:
            parts = _content(result)
            output = parts if isinstance(parts, str) else _blocks(parts, OPENAI, _TOOL) or ""
            name = result.value.name if result is not None and isinstance(result.value, Result) else None
            named = {"name": _tool_name(name, OPENAI)} if name else {}
            rendered.append({"role": "tool", "content": output, "tool_call_id": call_id} | named)
    return rendered


_UNNAMABLE: Final = re.compile(r"[\s<|\\/>]")
_NAME_CHARS: Final = 64


def _name_field(given: str | None) -> dict[str, str]:
    """Return the field for the name of a speaker, without the characters that OpenAI refuses in it."""
    name = _UNNAMABLE.sub("_", given or "")[:_NAME_CHARS]
    return {"name": name} if name else {}


def _openai_call(call: ToolUse, call_id: str) -> Block:
    """Return a call as an entry of ``tool_calls``; one that has OpenAI's form keeps all of its fields."""
    entry, name = call.entry or {}, _tool_name(call.name, OPENAI)
    match entry:
        case {"type": "function", "function": {"name": str(), "arguments": str()}}:
            fields, given = entry["function"], entry["function"]["arguments"]
            # What the model wrote stays the same to the letter, so that providers find it in their caches.
            is_object = given.startswith("{") and call.arguments != {"arguments": given}
            arguments = given if is_object else _arguments_text(call)
            return entry | {"id": call_id, "function": fields | {"name": name, "arguments": arguments}}
        case {"type": "custom", "custom": {**custom}}:
            return entry | {"id": call_id, "custom": custom | {"name": name}}
        case _:
            return {"id": call_id, "type": "function", "function": {"name": name, "arguments": _arguments_text(call)}}


def _arguments_text(call: ToolUse) -> str:
    return msgspec.json.encode(call.arguments).decode()


def openai_responses(messages: Sequence[Message]) -> Rendered:
    """Return messages as input items for OpenAI's Responses API; calls and their outputs are separate items."""
    items: Rendered = []
    for utterance, ids, answers in _exchanges(messages, RESPONSES):
        content = _blocks(utterance.content, RESPONSES, utterance.role)
        if content:
            items.append({"type": "message", "role": utterance.role, "content": content})
        for call_id, call in zip(ids, utterance.calls, strict=True):
            named = {"name": _tool_name(call.name, RESPONSES), "arguments": _arguments_text(call)}
            items.append({"type": "function_call", "call_id": call_id} | named)
        for call_id, _, result in answers:
            parts = _content(result)
            text, media = _split(parts, RESPONSES, _TOOL)
            output = text if isinstance(parts, str) or not media else _blocks(parts, RESPONSES, _TOOL)
            items.append({"type": "function_call_output", "call_id": call_id, "output": output})
    return items


def anthropic(messages: Sequence[Message]) -> Rendered:
    """Return messages as Anthropic messages: calls and results as content blocks, adjacent ones of one role joined.

    System and developer messages are left out; that API takes them as ``system=``. The first message is the user's.
    """
    rendered: Rendered = []
    for utterance, ids, answers in _exchanges(messages, ANTHROPIC):
        left = iter(ids)
        blocks: list[Block] = []
        for part in utterance.parts:
            if isinstance(part.value, ToolUse):
                name = _tool_name(part.value.name, ANTHROPIC)
                call = {"type": "tool_use", "id": next(left), "name": name, "input": part.value.arguments}
                blocks.append((part.block if part.own == ANTHROPIC else {}) | call)
            else:
                blocks += _blocks([part], ANTHROPIC, utterance.role)
        _join(rendered, utterance.role, "content", blocks)
        _join(rendered, "user", "content", [_tool_result(answer) for answer in answers])
    return _with_opening(rendered, {"content": [{"type": "text", "text": OPENING}]})


def _tool_result(answer: _CallResult) -> Block:
    result, parts = answer.result, _content(answer.result)
    block = result.block if result is not None and result.own == ANTHROPIC else {}
    content = parts if isinstance(parts, str) else _blocks(parts, ANTHROPIC, _TOOL) or ""
    return block | {"type": "tool_result", "tool_use_id": answer.id, "content": content}


def _join(rendered: Rendered, role: str, field: str, parts: list[Block]) -> None:
    """Add parts, if there are any, to the last message if it has the same role, else as a new message."""
    if parts and rendered and rendered[-1]["role"] == role:
        rendered[-1][field].extend(parts)
    elif parts:
        rendered.append({"role": role, field: parts})


def _with_opening(rendered: Rendered, opening: Block) -> Rendered:
    """Put the user's message at the front if another comes first, as after an eviction."""
    if rendered and rendered[0]["role"] != "user":
        rendered.insert(0, {"role": "user"} | opening)
    return rendered


def gemini(messages: Sequence[Message]) -> Rendered:
    """Return messages as Gemini contents: adjacent ones of one role joined, results under the names of their tools.

    System and developer messages are left out; that API takes them as ``system_instruction``. The first content is the
    user's. Results have a content of their own, with nothing else in it.
    """
    contents: Rendered = []
    is_answered = False
    for utterance, ids, answers in _exchanges(messages, GEMINI):
        left = iter(ids)
        parts: list[Block] = []
        for part in utterance.parts:
            if isinstance(part.value, ToolUse):
                parts.append(_function_call(part, part.value, next(left)))
            else:
                parts += _blocks([part], GEMINI, utterance.role)
        role = "model" if utterance.role == "assistant" else "user"
        if is_answered:
            contents.append({"role": role, "parts": parts})
        else:
            _join(contents, role, "parts", parts)
        is_answered = bool(answers)
        if answers:
            contents.append({"role": "user", "parts": [_function_response(answer) for answer in answers]})
    return _with_opening(contents, {"parts": [{"text": OPENING}]})


def _function_call(part: ContentPart, call: ToolUse, call_id: str) -> Block:
    if part.own == GEMINI:
        return part.block  # With the signature of the thought that led to it.
    named = {"name": _tool_name(call.name, GEMINI), "args": call.arguments}
    return {"functionCall": named | ({"id": call_id} if call_id else {})}


def _function_response(answer: _CallResult) -> Block:
    if answer.result is not None and answer.result.own == GEMINI:
        return answer.result.block
    text, media = _split(_content(answer.result), GEMINI, _TOOL)
    response: Block = {"name": _tool_name(answer.call.name, GEMINI), "response": {"result": text}}
    return {
        "functionResponse": response | ({"id": answer.id} if answer.id else {}) | ({"parts": media} if media else {})
    }


def ollama(messages: Sequence[Message]) -> Rendered:
    """Return messages in Ollama's format: content is text, images are a field, arguments are objects."""
    chat: Rendered = []
    for utterance, _, answers in _exchanges(messages, OLLAMA):
        text, images = _split(utterance.content, OLLAMA, utterance.role)
        calls = [
            {"function": {"name": _tool_name(call.name, OLLAMA), "arguments": call.arguments}}
            for call in utterance.calls
        ]
        role = "system" if utterance.role in PROMPT_ROLES else utterance.role
        chat.append({"role": role, "content": text} | _images(images) | ({"tool_calls": calls} if calls else {}))
        for _, call, result in answers:
            text, images = _split(_content(result), OLLAMA, _TOOL)
            answer = {"role": "tool", "content": text, "tool_name": _tool_name(call.name, OLLAMA)}
            chat.append(answer | _images(images))
    return chat


def _images(blocks: Sequence[Block]) -> dict[str, Any]:
    return {"images": [block["data"] for block in blocks]} if blocks else {}


FORMATS: Final[Mapping[str, Callable[[Sequence[Message]], Rendered]]] = MappingProxyType(
    {ANTHROPIC: anthropic, GEMINI: gemini, OLLAMA: ollama, OPENAI: openai, RESPONSES: openai_responses}
)
"""The formats by name."""


def render(form: object, messages: Sequence[Message]) -> Rendered:
    """Return messages in the format of a provider's API; raise ``InvalidInput`` for an unknown one."""
    if not isinstance(form, str) or form not in FORMATS:
        raise InvalidInput(f"format is {checks.brief(form)}; give one of {', '.join(FORMATS)}")
    return FORMATS[form](messages)
