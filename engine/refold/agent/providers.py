"""Models that answer in JSON: two wires as plain dicts, providers over HTTP, JSON found in what models write."""

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, Final, Literal, Protocol, cast, runtime_checkable
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Struct

from refold import checks
from refold.errors import InvalidInput, RefoldError
from refold.limits import (
    JSON_BEGINNINGS_COUNT_MAX,
    PROVIDER_SECONDS_DEFAULT,
    PROVIDER_SECONDS_MAX,
    REPLY_BYTES_MAX,
    REPLY_CHARS_MAX,
    REPLY_TOKENS_DEFAULT,
)

# JSON out of what models write: behind thoughts, inside of fences, among other words, cut off.

_THOUGHT_BEGINS: Final = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_THOUGHT_ENDS: Final = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_BEGINNING: Final = re.compile(r"[\[{]")
_NEXT_ITEM: Final = re.compile(r"[\s,]*")
_SHOWN_CHARS: Final = 80
_DECODER: Final = json.JSONDecoder()


class NoJson(RefoldError):
    """A model's answer holds no JSON value; the message shows how it begins."""


def parsed(text: str) -> tuple[Any, bool]:
    """Return the first JSON object or array of a text, and whether it was cut off, so that only its whole items are it.

    Raises ``NoJson`` where there is none.
    """
    for said in _spoken(text[:REPLY_CHARS_MAX]):
        found = _found(said)
        if found is not None:
            return found
    raise NoJson(f"Failed to parse memory extraction JSON: no JSON value in {text.strip()[:_SHOWN_CHARS]!a}")


def _spoken(text: str) -> list[str]:
    """Return what is no thought: what follows the last one, then what stands before the first one."""
    ends = [found.end() for found in _THOUGHT_ENDS.finditer(text)]
    begins = _THOUGHT_BEGINS.search(text)
    before = text if begins is None else text[: begins.start()]
    return [text[ends[-1] :], before] if ends else [before]


def _found(said: str) -> tuple[Any, bool] | None:
    """Return the first JSON object or array of such, and whether it was cut off; another array where there is none."""
    passed: tuple[Any, bool] | None = None
    begins = [found.start() for found in islice(_BEGINNING.finditer(said), JSON_BEGINNINGS_COUNT_MAX)]
    for begin in begins:
        whole = _decoded(said, begin)
        if whole is not None:
            value: Any = whole[0]
            if not value or said[begin] == "{" or isinstance(value[0], dict):
                return value, False
            # A mark of a footnote, perhaps, or a list of numbers that was all there is.
            passed = passed or (value, False)
            continue
        if said[begin] == "[":
            items = _items(said, begin + 1)
            if items:
                return items, True
    return passed


def _decoded(text: str, begin: int) -> tuple[Any, int] | None:
    """Return the JSON value at a place and where it ends, ``None`` where there is none."""
    try:
        return _DECODER.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return None


def _items(text: str, begin: int) -> list[Any]:
    """Return the objects of an array up to the one that is cut off."""
    items: list[Any] = []
    while True:
        found = _NEXT_ITEM.match(text, begin)
        begin = found.end() if found is not None else begin
        item = _decoded(text, begin) if text[begin : begin + 1] == "{" else None
        if item is None:
            return items
        items.append(item[0])
        begin = item[1]


# The two ways in which models are spoken to: OpenAI's chat completions and Anthropic's messages, as plain dicts.
#
# Pure: requests are built and replies are read here, and sent elsewhere. Seven providers speak one of the two, each
# with quirks of its own, which are a table.

JSON_SCHEMA: Final = "json_schema"
TOOL: Final = "tool"
JSON_OBJECT: Final = "json_object"
PROMPT: Final = "prompt"

TOOL_NAME: Final = "answer"
"""The tool that a model is made to call so that its arguments are the answer."""

_JSON_REMINDER: Final = "Answer with JSON alone, of this schema: "
"""Some gateways refuse JSON mode unless the messages hold the word."""


class Quirks(Struct, frozen=True, kw_only=True):
    """How one provider is spoken to: its address, its wire, and the ways to JSON that work with it, best first."""

    name: str
    url: str
    wire: Literal["openai", "anthropic"]
    ladder: tuple[str, ...]
    caches: bool = False
    """Whether parts of the system prompt may be marked for its cache; else it is one string."""


PROVIDERS: Final = {
    quirks.name: quirks
    for quirks in (
        Quirks(
            name="anthropic",
            url="https://api.anthropic.com/v1/messages",
            wire="anthropic",
            ladder=(JSON_SCHEMA, TOOL, PROMPT),
            caches=True,
        ),
        Quirks(
            name="openai",
            url="https://api.openai.com/v1/chat/completions",
            wire="openai",
            ladder=(JSON_SCHEMA, TOOL, JSON_OBJECT, PROMPT),
        ),
        # Its reasoning model refuses a forced tool; JSON mode may be cut off.
        Quirks(
            name="deepseek",
            url="https://api.deepseek.com/v1/chat/completions",
            wire="openai",
            ladder=(TOOL, JSON_OBJECT, PROMPT),
        ),
        Quirks(
            name="qwen",
            url="https://dashscope.aliyuncs.com/compatible-mode/v1/chat/completions",
            wire="openai",
            ladder=(TOOL, JSON_OBJECT, PROMPT),
        ),
        Quirks(
            name="glm",
            url="https://open.bigmodel.cn/api/paas/v4/chat/completions",
            wire="openai",
            ladder=(TOOL, JSON_OBJECT, PROMPT),
        ),
        # It ignores what it is told of a format without saying so, and takes the system prompt as one string.
        Quirks(
            name="minimax",
            url="https://api.minimax.io/anthropic/v1/messages",
            wire="anthropic",
            ladder=(TOOL, PROMPT),
        ),
        # It has no way to force a tool.
        Quirks(
            name="ollama",
            url="http://localhost:11434/v1/chat/completions",
            wire="openai",
            ladder=(JSON_SCHEMA, JSON_OBJECT, PROMPT),
        ),
    )
}
"""The seven providers, by name."""


class Question(Struct, frozen=True, kw_only=True):
    """What a model is asked: by whom it is answered, with how much, in which form."""

    model: str
    system: tuple[str, ...]
    messages: tuple[dict[str, Any], ...]
    schema: Mapping[str, Any]
    temperature: float
    max_tokens: int


class Usage(Struct, frozen=True):
    """The tokens of a call, as the provider counted them."""

    input_tokens: int = 0
    output_tokens: int = 0


def wire_body(quirks: Quirks, channel: str, question: Question) -> dict[str, Any]:
    """Return the request that asks a question through a channel."""
    asked = _BODIES[quirks.wire](quirks, channel, question)
    return asked | {"model": question.model, "temperature": question.temperature, "max_tokens": question.max_tokens}


def _openai_body(_: Quirks, channel: str, question: Question) -> dict[str, Any]:
    system = "\n\n".join([*question.system, *_reminder(channel, question)])
    schema = {"name": TOOL_NAME, "schema": dict(question.schema)}
    forms: dict[str, dict[str, Any]] = {
        JSON_SCHEMA: {"response_format": {"type": "json_schema", "json_schema": {**schema, "strict": True}}},
        TOOL: {
            "tools": [{"type": "function", "function": {"name": TOOL_NAME, "parameters": dict(question.schema)}}],
            "tool_choice": "required",
        },
        JSON_OBJECT: {"response_format": {"type": "json_object"}},
        PROMPT: {},
    }
    first = [{"role": "system", "content": system}] if system else []
    return {"messages": [*first, *question.messages]} | forms[channel]


def _anthropic_body(quirks: Quirks, channel: str, question: Question) -> dict[str, Any]:
    texts = [text for text in (*question.system, *_reminder(channel, question)) if text]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts]
    if blocks:
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
    forms: dict[str, dict[str, Any]] = {
        JSON_SCHEMA: {"output_config": {"format": {"type": "json_schema", "schema": dict(question.schema)}}},
        TOOL: {
            "tools": [{"name": TOOL_NAME, "input_schema": dict(question.schema)}],
            "tool_choice": {"type": "tool", "name": TOOL_NAME} if quirks.caches else {"type": "any"},
        },
        PROMPT: {},
    }
    system = blocks if quirks.caches else "\n\n".join(texts)
    return ({"system": system} if texts else {}) | {"messages": list(question.messages)} | forms[channel]


def _reminder(channel: str, question: Question) -> list[str]:
    if channel in (JSON_SCHEMA, TOOL):
        return []
    return [_JSON_REMINDER + msgspec.json.encode(question.schema).decode()]


_BODIES: Final = {"openai": _openai_body, "anthropic": _anthropic_body}


def wire_headers(quirks: Quirks, api_key: str | None) -> dict[str, str]:
    """Return the headers of a request."""
    sent = {"Content-Type": "application/json", "Accept": "application/json"}
    if quirks.wire == "anthropic":
        sent["anthropic-version"] = "2023-06-01"
    if api_key is not None:
        sent |= {"x-api-key": api_key} if quirks.wire == "anthropic" else {"Authorization": f"Bearer {api_key}"}
    return sent


def wire_answer(quirks: Quirks, reply: object) -> tuple[str, Usage]:
    """Return the text of a reply, or the arguments of the tool that it calls, and its usage.

    Raises ``InvalidInput`` for what is no reply of this wire.
    """
    if not isinstance(reply, dict):
        checks.invalid(f"the reply is a {type(reply).__name__}, not a JSON object")
    given = cast("dict[str, Any]", reply)
    try:
        return _ANSWERS[quirks.wire](given), _usage(given.get("usage"))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        checks.invalid(f"the reply holds no answer ({type(error).__name__}: {error})")


def _openai_answer(reply: dict[str, Any]) -> str:
    message = reply["choices"][0]["message"]
    for call in message.get("tool_calls") or ():
        return _as_text(call["function"]["arguments"])
    return _as_text(message.get("content") or "")


def _anthropic_answer(reply: dict[str, Any]) -> str:
    blocks: Sequence[dict[str, Any]] = reply["content"]
    for block in blocks:
        if block["type"] == "tool_use":
            return _as_text(block["input"])
    return "".join(_as_text(block["text"]) for block in blocks if block["type"] == "text")


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_ANSWERS: Final = {"openai": _openai_answer, "anthropic": _anthropic_answer}


def _usage(given: object) -> Usage:
    """Return a usage; what is no number counts as 0."""
    counts = cast("dict[str, Any]", given) if isinstance(given, dict) else {}

    def count(*names: str) -> int:
        return next((found for name in names if isinstance(found := counts.get(name), int) and found >= 0), 0)

    return Usage(count("input_tokens", "prompt_tokens"), count("output_tokens", "completion_tokens"))


_READ_BYTES: Final = 65_536
_TRY_NEXT: Final = (400, 404, 415, 422)
"""What a provider says that does not know a channel: the next one is tried."""

_OK: Final = 200


class ProviderFailed(RefoldError):
    """A model could not be asked, or gave no usable answer; ``status`` is the HTTP status, 0 for none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class JsonResult(Struct, frozen=True):
    """A model's answer: the JSON value, whether it was cut off, the tokens, the raw text, the channel it came by."""

    value: Any
    is_cut_off: bool = False
    usage: Usage = Usage()
    raw: str = ""
    channel: str = PROMPT


@runtime_checkable
class JsonProvider(Protocol):
    """What answers in JSON: all that extraction asks of a model."""

    @property
    def id(self) -> str:
        """The name under which it is recorded."""
        ...

    def complete_json(
        self,
        messages: Sequence[dict[str, Any]],
        system: Sequence[str],
        schema: Mapping[str, Any],
        *,
        temperature: float = 0.0,
        max_tokens: int = REPLY_TOKENS_DEFAULT,
        timeout_seconds: float = PROVIDER_SECONDS_DEFAULT,
    ) -> JsonResult:
        """Return the answer to messages, as JSON of a schema as far as the model keeps to it."""
        ...


class CallableProvider:
    """A provider made of a function of (messages, system, schema) that returns the text of an answer, or its value.

    >>> CallableProvider(lambda messages, system, schema: "[]").complete_json([], [], {}).value
    []
    """

    def __init__(
        self,
        function: Callable[[list[dict[str, Any]], list[str], dict[str, Any]], Any],
        *,
        id: str = "callable",  # noqa: A002 - the protocol's word
    ) -> None:
        self.id = checks.name(id, "id")
        self._function = function

    def complete_json(
        self,
        messages: Sequence[dict[str, Any]],
        system: Sequence[str],
        schema: Mapping[str, Any],
        *,
        temperature: float = 0.0,  # noqa: ARG002 - the function knows its own
        max_tokens: int = REPLY_TOKENS_DEFAULT,  # noqa: ARG002
        timeout_seconds: float = PROVIDER_SECONDS_DEFAULT,  # noqa: ARG002
    ) -> JsonResult:
        """Return what the function returns, parsed where it is a text; what it raises, it raises."""
        answer = self._function(list(messages), list(system), dict(schema))
        if not isinstance(answer, str):
            return JsonResult(answer)
        value, is_cut_off = parsed(answer)
        return JsonResult(value, is_cut_off, raw=answer)


class HttpProvider:
    """A provider over HTTP: one of ``PROVIDERS`` by name, or ``Quirks`` of one's own, with a model of it.

    Nothing is sent before ``complete_json``. Each channel of the provider's ladder is tried, until one is understood.
    """

    def __init__(
        self, provider: str | Quirks, model: str, *, api_key: str | None = None, url: str | None = None
    ) -> None:
        if not isinstance(cast("object", provider), Quirks) and provider not in tuple(PROVIDERS):
            checks.invalid(f"provider is {checks.shown(provider)}; give one of {', '.join(PROVIDERS)}, or Quirks")
        self._quirks = PROVIDERS[provider] if isinstance(provider, str) else provider
        self._model = checks.name(model, "model")
        self._api_key = None if api_key is None else checks.text(api_key, "api_key")
        if not (api_key or "").isascii() or not (api_key or "").isprintable():
            checks.invalid("api_key holds what no header can; was a newline read with it?")
        self._url = _url(checks.text(url or self._quirks.url, "url"))

    def __repr__(self) -> str:
        """Return the provider without its key."""
        return f"HttpProvider({self.id!r})"

    @property
    def id(self) -> str:
        """The provider's name and the model's."""
        return f"{self._quirks.name}/{self._model}"

    def complete_json(
        self,
        messages: Sequence[dict[str, Any]],
        system: Sequence[str],
        schema: Mapping[str, Any],
        *,
        temperature: float = 0.0,
        max_tokens: int = REPLY_TOKENS_DEFAULT,
        timeout_seconds: float = PROVIDER_SECONDS_DEFAULT,
    ) -> JsonResult:
        """Return the answer of the first channel that gives one, all channels together within the time-out.

        Raises ``ProviderFailed`` for any other status, a time-out, a lost connection, or an answer without JSON.
        """
        question = Question(
            model=self._model,
            system=tuple(system),
            messages=tuple(messages),
            schema=schema,
            temperature=temperature,
            max_tokens=max_tokens,
        )
        until = time.monotonic() + checked_seconds(timeout_seconds)
        problem = ProviderFailed(f"{self.id} has no channel")
        for channel in self._quirks.ladder:
            try:
                return self._asked(channel, question, until)
            except ProviderFailed as error:
                if error.status not in (_OK, *_TRY_NEXT):
                    raise
                problem = error
        raise problem

    def _asked(self, channel: str, question: Question, until: float) -> JsonResult:
        try:
            asked = msgspec.json.encode(wire_body(self._quirks, channel, question))
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            checks.invalid(f"the question holds what JSON cannot: {error}")
        status, content = self._sent(asked, until)
        if status != _OK:
            raise ProviderFailed(
                f"{self.id} answered {status} to channel {channel}; see the provider's documentation", status
            )
        try:
            text, usage = wire_answer(self._quirks, msgspec.json.decode(content))
            value, is_cut_off = parsed(text)
        except (msgspec.DecodeError, InvalidInput, NoJson, UnicodeError, RecursionError) as error:
            raise ProviderFailed(f"{self.id} gave no usable answer through channel {channel}: {error}", _OK) from error
        return JsonResult(value, is_cut_off, usage, text, channel)

    def _sent(self, content: bytes, until: float) -> tuple[int, bytes]:
        """Return status and content of the reply."""
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._url.hostname or "", self._url.port, timeout=_left(until, self.id))
        target = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        try:
            connection.connect()
            with _hung_up(connection.sock, until, self.id):
                connection.request("POST", target, content, wire_headers(self._quirks, self._api_key))
                response = connection.getresponse()
                return response.status, self._read(response)
        except (OSError, ValueError, http.client.HTTPException) as error:
            _left(until, self.id)
            raise ProviderFailed(
                f"{self.id} could not be asked ({type(error).__name__}: {error}); try again later"
            ) from error
        finally:
            connection.close()

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        """Return a reply's content."""
        content = bytearray()
        while piece := response.read1(_READ_BYTES):
            content += piece
            if len(content) > REPLY_BYTES_MAX:
                raise ProviderFailed(f"{self.id} answered with more than REPLY_BYTES_MAX = {REPLY_BYTES_MAX:,} bytes")
        return bytes(content)


@contextmanager
def _hung_up(connected: socket.socket, until: float, provider: str) -> Generator[None]:
    """Hang up when the time is over: a reply that comes in drops, headers too, is no way around the time-out."""

    def hang_up() -> None:
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(_left(until, provider), hang_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    _left(until, provider)


def _url(url: str) -> SplitResult:
    """Return an address in its parts."""
    try:
        found = urlsplit(url)
        is_one = found.scheme in ("http", "https") and bool(found.hostname) and (found.port or 1) > 0
    except ValueError:
        found, is_one = SplitResult("", "", "", "", ""), False
    if not is_one or not url.isascii() or not url.isprintable() or " " in url:
        checks.invalid(f"url is {checks.shown(url)}; give one that begins with http:// or https://")
    return found


def checked_seconds(seconds: object) -> float:
    """Return a time-out of a question."""
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 < seconds <= PROVIDER_SECONDS_MAX:
        bound = f"PROVIDER_SECONDS_MAX = {PROVIDER_SECONDS_MAX}"
        checks.invalid(f"timeout_seconds is {checks.shown(seconds)}; give a number over 0, at most {bound}")
    return float(seconds)


def _left(until: float, provider: str) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise ProviderFailed(f"{provider} took too long; give it more timeout_seconds")
    return left
