"""The content of messages as parts, whichever provider's format it was given in, and the utterances they make. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec

from refold import checks
from refold.message import TOOL_ROLES, Message

Block: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["image", "document", "audio", "video"]

OPENAI: Final = "openai"
RESPONSES: Final = "openai-responses"
ANTHROPIC: Final = "anthropic"
GEMINI: Final = "gemini"
OLLAMA: Final = "ollama"


class TextPart(NamedTuple):
    """A text that a user or a model wrote."""

    text: str


class Media(NamedTuple):
    """An image, document, sound or video: either by its URL, or as base64 with a media type."""

    kind: Kind
    url: str | None = None
    media_type: str | None = None
    data: str | None = None
    name: str | None = None
    """The name of the file, if known."""


class ToolUse(NamedTuple):
    """A tool call; ``entry`` is its entry in ``tool_calls``, if it came in one."""

    id: str
    name: str
    arguments: dict[str, Any]
    entry: Block | None = None


class Result(NamedTuple):
    """The result of a tool call: a text, blocks, or any other JSON value that another program wrote."""

    id: str
    name: str | None
    content: object


class Mark(Enum):
    """The kinds of blocks that only the provider they come from can read."""

    THOUGHT = "thought"
    """The reasoning of a model, which means nothing to other providers."""
    OPAQUE = "opaque"
    """Content that other providers would miss, such as a file in the provider's own storage."""


class ContentPart(NamedTuple):
    """One part of a message; its ``value`` is ``None`` if no format that refold knows has such a block."""

    value: TextPart | Media | ToolUse | Result | Mark | None
    message: Message
    number: int
    """The place of the part in the message, from 1."""
    block: Block = {}  # noqa: RUF012 - a part without a block of its own; never changed
    own: str = ""
    """The format that the block belongs to, which takes it unchanged."""


_DATA_URL: Final = re.compile(r"data:([\w./+-]+);base64,(.*)\Z", re.DOTALL)
_SUFFIXES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "png": "image/png",
        "jpg": "image/jpeg",
        "jpeg": "image/jpeg",
        "webp": "image/webp",
        "gif": "image/gif",
        "heic": "image/heic",
        "heif": "image/heif",
        "pdf": "application/pdf",
        "wav": "audio/wav",
        "mp3": "audio/mp3",
        "mp4": "video/mp4",
    }
)


def media_type_of(url: str) -> str | None:
    """Return the media type that the suffix of a URL's path stands for, ``None`` if it has no known one."""
    path = url.partition("?")[0].partition("#")[0]
    return _SUFFIXES.get(path.rpartition(".")[2].lower())


def _of_media_type(media_type: str) -> Kind:
    main = media_type.partition("/")[0].lower()
    return cast("Kind", main) if main in {"image", "audio", "video"} else "document"


# Readers of blocks. Each takes a block of its type and returns its value, ``None`` if the block is malformed.


def _text(block: Block, key: str = "text") -> TextPart | None:
    return TextPart(block[key]) if isinstance(block.get(key), str) else None


def _mark(_: Block, mark: Mark) -> Mark:
    return mark


def _media_at(kind: Kind, url: object, name: object = None) -> Media | Mark | None:
    """Return what a URL leads to, or what a data URL holds."""
    if not isinstance(url, str):
        return None
    known = name if isinstance(name, str) else None
    if not url.startswith("data:"):
        return Media(kind, url, name=known)
    found = _DATA_URL.match(url)
    return Mark.OPAQUE if found is None else Media(kind, None, found[1], found[2], known)


def _by_url(block: Block, kind: Kind, key: str) -> Media | Mark | None:
    given = block.get(key)
    if given is None and "file_id" in block:
        return Mark.OPAQUE
    return _media_at(kind, cast("Block", given).get("url") if isinstance(given, dict) else given)


def _audio(block: Block) -> Media | None:
    match block.get("input_audio"):
        case {"data": str(data), "format": str(name)}:
            return Media("audio", None, f"audio/{name}", data)
        case _:
            return None


def _file(block: Block) -> Media | Mark | None:
    """Read a file of either of OpenAI's formats; base64 without a media type is left to OpenAI."""
    given = block.get("file", block)
    match given:
        case {"file_data": str(data)} if data.startswith("data:"):
            return _media_at("document", data, given.get("filename"))
        case {"file_url": str(url)}:
            return _media_at("document", url, given.get("filename"))
        case dict():
            return Mark.OPAQUE
        case _:
            return None


def _source(block: Block) -> Media | Mark | None:
    kind, name = block["type"], block.get("title")
    match block.get("source"):
        case {"type": "base64", "media_type": str(media_type), "data": str(data)}:
            return Media(kind, None, media_type, data, name if isinstance(name, str) else None)
        case {"type": "url", "url": str(url)}:
            return _media_at(kind, url, name)
        case {"type": str()}:
            return Mark.OPAQUE
        case _:
            return None


def _tool_use(block: Block) -> ToolUse:
    return ToolUse(_id(block.get("id")), _id(block.get("name")), _arguments(block.get("input", {})))


def _tool_result(block: Block) -> Result:
    return Result(_id(block.get("tool_use_id")), None, block.get("content"))


def _gemini_text(block: Block) -> TextPart | Mark | None:
    return Mark.THOUGHT if block.get("thought") is True else _text(block)


def _first_value(value: object, *keys: str, default: Any = None) -> Any:
    """Return the value of the first key that an object has; Gemini takes names in camel case and in snake case."""
    fields = cast("Block", value) if isinstance(value, dict) else {}
    return next((fields[key] for key in keys if key in fields), default)


def _inline_data(block: Block) -> Media | None:
    blob = _first_value(block, "inlineData", "inline_data")
    media_type, data = _first_value(blob, "mimeType", "mime_type"), _first_value(blob, "data")
    if not isinstance(media_type, str) or not isinstance(data, str):
        return None
    return Media(_of_media_type(media_type), None, media_type, data)


_GOOGLE_FILES: Final = "https://generativelanguage.googleapis.com/"


def _file_data(block: Block) -> Media | Mark | None:
    file = _first_value(block, "fileData", "file_data")
    uri = _first_value(file, "fileUri", "file_uri")
    if not isinstance(uri, str):
        return None
    media_type = _first_value(file, "mimeType", "mime_type") or media_type_of(uri)
    if not isinstance(media_type, str) or not uri.startswith("https://") or uri.startswith(_GOOGLE_FILES):
        return Mark.OPAQUE  # A file in Google's storage, or a page such as that of a video.
    return Media(_of_media_type(media_type), uri, media_type)


def _function_call(block: Block) -> ToolUse:
    call = _first_value(block, "functionCall", "function_call")
    return ToolUse(
        _id(_first_value(call, "id")), _id(_first_value(call, "name")), _arguments(_first_value(call, "args") or {})
    )


def _function_response(block: Block) -> Result:
    answer = _first_value(block, "functionResponse", "function_response")
    response = _first_value(answer, "response")
    text = _first_value(response, "result", "output")
    content = text if isinstance(text, str) else msgspec.json.encode(response).decode()
    return Result(_id(_first_value(answer, "id")), _id(_first_value(answer, "name")) or None, content)


_Value: TypeAlias = "TextPart | Media | ToolUse | Result | Mark | None"
_Reader: TypeAlias = Callable[[Block], _Value]
_opaque: Final = partial(_mark, mark=Mark.OPAQUE)
_thought: Final = partial(_mark, mark=Mark.THOUGHT)

# A text has no format of its own where the same block means the same in several: it is written anew in each.
_TYPES: Final[Mapping[str, tuple[str, _Reader]]] = MappingProxyType(
    {
        "text": (ANTHROPIC, _text),
        "input_text": ("", _text),
        "output_text": ("", _text),
        "refusal": ("", partial(_text, key="refusal")),
        "image_url": (OPENAI, partial(_by_url, kind="image", key="image_url")),
        "input_audio": (OPENAI, _audio),
        "file": (OPENAI, _file),
        "video_url": (OPENAI, partial(_by_url, kind="video", key="video_url")),  # Of servers with OpenAI's interface.
        "input_image": (RESPONSES, partial(_by_url, kind="image", key="image_url")),
        "input_file": (RESPONSES, _file),
        "image": (ANTHROPIC, _source),
        "document": (ANTHROPIC, _source),
        "tool_use": (ANTHROPIC, _tool_use),
        "tool_result": (ANTHROPIC, _tool_result),
        "reasoning": ("", _thought),  # Of frameworks, in either name.
        "text_reasoning": ("", _thought),
        "thinking": (ANTHROPIC, _thought),
        "redacted_thinking": (ANTHROPIC, _thought),
        "search_result": (ANTHROPIC, _opaque),
        "tool_reference": (ANTHROPIC, _opaque),
        "container_upload": (ANTHROPIC, _opaque),
        "compaction": (ANTHROPIC, _opaque),
    }
)
"""The types of blocks: the format that each belongs to, and its reader."""

_SERVER_TOOLS: Final = ("_tool_use", "_tool_result")
"""The endings of the types of blocks about tools that Anthropic runs itself, whose number grows."""

_FIELDS: Final[Mapping[str, tuple[str, _Reader]]] = MappingProxyType(
    {
        "text": (GEMINI, _gemini_text),
        "inlineData": (GEMINI, _inline_data),
        "inline_data": (GEMINI, _inline_data),
        "fileData": (GEMINI, _file_data),
        "file_data": (GEMINI, _file_data),
        "functionCall": (GEMINI, _function_call),
        "function_call": (GEMINI, _function_call),
        "functionResponse": (GEMINI, _function_response),
        "function_response": (GEMINI, _function_response),
        "executableCode": (GEMINI, _opaque),
        "executable_code": (GEMINI, _opaque),
        "codeExecutionResult": (GEMINI, _opaque),
        "code_execution_result": (GEMINI, _opaque),
    }
)
"""As ``_TYPES``, for Gemini's parts, which have no type but a field of their own."""


def part_of(block: object, message: Message, number: int) -> ContentPart:
    """Read a block of a message."""
    if not isinstance(block, dict):
        return ContentPart(None, message, number, {"type": block})
    fields = cast("Block", block)
    own, read = _row_of(fields)
    return ContentPart(read(fields), message, number, fields, own)


def is_readable(block: Block) -> bool:
    """Return whether any format knows such a block."""
    return _value_of(block) is not None


def check_blocks(role: object, content: object) -> None:
    """Raise ``InvalidInput`` for a block that no provider takes in a message of this role; ignore other content."""
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    for number, block in enumerate(blocks, 1):
        value = _value_of(block)
        if value is None or (isinstance(value, ToolUse) and role != "assistant"):
            checks.invalid(
                f"block {number} of content is {checks.brief(block)}, which no provider takes in a "
                f"message of role {checks.brief(role)}; give it as its provider has it, or as a text"
            )


def _value_of(given: object) -> _Value:
    """Return a block in the form that providers take; ``None`` if none takes it."""
    block = cast("Block", given) if isinstance(given, dict) else {}
    return _row_of(block)[1](block)


def _row_of(block: Block) -> tuple[str, _Reader]:
    """Return the format that a block belongs to, and its reader."""
    kind = block.get("type")
    if isinstance(kind, str):
        is_server_tool = kind.endswith(_SERVER_TOOLS) and kind not in _TYPES
        return (ANTHROPIC, _opaque) if is_server_tool else _TYPES.get(kind, _UNKNOWN)
    return next((row for field, row in _FIELDS.items() if kind is None and field in block), _UNKNOWN)


def _read_nothing(_: Block) -> None:
    """Read a block that no format knows."""


_UNKNOWN: Final[tuple[str, _Reader]] = ("", _read_nothing)


def parts_of(message: Message) -> Iterator[ContentPart]:
    """Yield the parts of a message in order, its tool calls at the end."""
    content = message.content
    given = content if isinstance(content, list) else ()
    blocks = [part_of(block, message, number) for number, block in enumerate(given, 1)]
    if message.role in TOOL_ROLES and not any(isinstance(part.value, Result) for part in blocks):
        yield ContentPart(Result(message.tool_call_id or "", message.name, content), message, 1)
        return
    if isinstance(content, str):
        yield ContentPart(TextPart(content), message, 1)
    for part in blocks:
        is_misplaced = isinstance(part.value, ToolUse) and message.role != "assistant"
        yield part._replace(value=None) if is_misplaced else part
    for number, call in enumerate(message.tool_calls or (), len(blocks) + 1):
        yield ContentPart(_call(call), message, number)


def calls_of(message: Message) -> Iterator[ToolUse]:
    """Yield the tool calls that a message makes, whichever provider's form they have."""
    return (part.value for part in parts_of(message) if isinstance(part.value, ToolUse))


def _call(given: Block) -> ToolUse:
    """Read an entry of ``tool_calls``: a function, a custom tool of OpenAI's, or the bare fields of either."""
    called = _first_value(given, "function", "custom")
    fields = cast("Block", called) if isinstance(called, dict) else given if called is None else {}
    arguments = _arguments(_first_value(fields, "arguments", "input", default={}))
    return ToolUse(_id(given.get("id")), _id(fields.get("name")), arguments, given)


def _id(given: object) -> str:
    """Return the id or name of a call as a text: a recorded one can be any JSON value."""
    return given if isinstance(given, str) else "" if given is None else str(given)


def _arguments(given: Any) -> dict[str, Any]:
    """Return a call's arguments as an object; anything that is not a JSON object is passed on under ``arguments``.

    A blank text and null mean no arguments, as they do where the call is executed.
    """
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given if given.strip() else "{}")
        except checks.UNDECODABLE:
            return {"arguments": given}
    if given is None:
        return {}
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {"arguments": given}


# Utterances: messages with something to say, each call with its result.


class Utterance:
    """What one message says, and the results of the calls that it makes, one for each call."""

    __slots__ = ("calls", "message", "parts", "results")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.parts: list[ContentPart] = []
        self.calls: list[ToolUse] = []
        self.results: list[ContentPart | None] = []

    @property
    def role(self) -> str:
        """The role of the message; what a tool message says beside its results is the user's."""
        return "user" if self.message.role in TOOL_ROLES else self.message.role

    @property
    def content(self) -> list[ContentPart]:
        """The parts beside the calls."""
        return [part for part in self.parts if not isinstance(part.value, ToolUse)]

    def add(self, part: ContentPart) -> None:
        """Add a part, unless it is a blank text, which providers refuse."""
        if isinstance(part.value, TextPart) and not part.value.text.strip():
            return
        self.parts.append(part)
        if isinstance(part.value, ToolUse):
            self.calls.append(part.value)
            self.results.append(None)

    def answer(self, part: ContentPart, result: Result) -> None:
        """Give a call its result.

        Of several calls with the result's id, the first without a result gets it, else it replaces that of the last. A
        result without an id answers the first call that waits for one, of the same name if it has one.
        """
        if result.id:
            places = [place for place, call in enumerate(self.calls) if call.id == result.id]
        else:
            places = [place for place, call in enumerate(self.calls) if result.name in {None, call.name}]
        waiting = (place for place in places if self.results[place] is None)
        place = next(waiting, places[-1] if places and result.id else None)
        if place is not None:
            self.results[place] = part


def utterances_of(messages: Sequence[Message]) -> list[Utterance]:
    """Return the utterances of messages; a result belongs to the last message before it that makes a call with its id.

    Left out are results without a call, and messages that say nothing: without content, with blank texts or with the
    thoughts of a model alone.
    """
    utterances: list[Utterance] = []
    makers: dict[str, Utterance] = {}
    last: Utterance | None = None
    for message in messages:
        utterance = Utterance(message)
        for part in parts_of(message):
            if isinstance(part.value, Result):
                maker = makers.get(part.value.id) if part.value.id else last
                if maker is not None:
                    maker.answer(part, part.value)
            else:
                utterance.add(part)
        if any(part.value is not Mark.THOUGHT for part in utterance.parts):
            utterances.append(utterance)
        if utterance.calls:
            last = utterance
            makers |= {call.id: utterance for call in utterance.calls}
    return utterances
