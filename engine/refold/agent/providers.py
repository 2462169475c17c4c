"""Models that answer in JSON: HTTP providers, their two wire formats, and parsing of the JSON in their answers."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, Protocol, cast, runtime_checkable
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

import msgspec
from msgspec import Struct

from refold import checks
from refold.agent.secrets import secret_in
from refold.errors import InvalidInput, RefoldError
from refold.limits import (
    JSON_BEGINNINGS_COUNT_MAX,
    PROVIDER_SECONDS_DEFAULT,
    PROVIDER_SECONDS_MAX,
    REPLY_BYTES_MAX,
    REPLY_CHARS_MAX,
    REPLY_TOKENS_DEFAULT,
)

# Extraction of JSON from model output: after thoughts, inside fences, among other text, or cut off.

_THOUGHT_BEGINS: Final = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_THOUGHT_ENDS: Final = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_BEGINNING: Final = re.compile(r"[\[{]")
_NEXT_ITEM: Final = re.compile(r"[\s,]*")
# An answer in words that there is nothing to tell, which models give in place of an empty array.
_NOTHING: Final = re.compile(
    r"\W*(?:null|none|nothing|n/a|(?:there\s+(?:is|are|were)\s+)?(?:no|none|nothing)\s(?:[a-z-]+\s){0,4}?"
    r"(?:facts?|memories|memory|information|learned|extract(?:ed)?|remember(?:ed|ing)?|report|add)"
    r"(?:\s[a-z-]+){0,8})\W*",
    re.IGNORECASE,
)
_NOTHING_CHARS_MAX: Final = 120
_SHOWN_CHARS: Final = 80
_DECODER: Final = json.JSONDecoder()


class NoJson(RefoldError):
    """A model's answer contains no JSON value; the message quotes its beginning."""


def parse_json(text: str) -> tuple[Any, bool]:
    """Return the first JSON object or array of a text, and whether it was cut off, leaving only its complete items.

    Objects that follow one another, as in JSON lines, are an array. So is a short text that says that there is nothing:
    an empty one. Raises `NoJson` if there is none.
    """
    text = text[:REPLY_CHARS_MAX]
    ends = [match.end() for match in _THOUGHT_ENDS.finditer(text)]
    thought = _THOUGHT_BEGINS.search(text)
    before = text if thought is None else text[: thought.start()]
    # Try the text after the last thought, then the text before the first.
    for spoken in [text[ends[-1] :], before] if ends else [before]:
        value = _find_json(spoken)
        if value is not None:
            return value
        if len(spoken) <= _NOTHING_CHARS_MAX and _NOTHING.fullmatch(spoken):
            return [], False
    raise NoJson(f"Failed to parse memory extraction JSON: no JSON value in {text.strip()[:_SHOWN_CHARS]!a}")


def _find_json(text: str) -> tuple[Any, bool] | None:
    """Return the first object or array of objects, or else the first other array, and whether it was cut off."""
    other: tuple[Any, bool] | None = None
    for match in islice(_BEGINNING.finditer(text), JSON_BEGINNINGS_COUNT_MAX):
        begin = match.start()
        whole = _decode(text, begin)
        if whole is not None:
            value: Any = whole[0]
            if text[begin] == "{":
                items = _whole_items(text, begin)
                return items if len(items) > 1 else value, False
            if not value or isinstance(value[0], dict):
                return value, False
            # Perhaps a footnote mark, or a list of numbers that is the only value.
            other = other or (value, False)
        elif text[begin] == "[":
            items = _whole_items(text, begin + 1)
            if items:
                return items, True
    return other


def _decode(text: str, begin: int) -> tuple[Any, int] | None:
    try:
        return _DECODER.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return None


def _whole_items(text: str, begin: int) -> list[Any]:
    items: list[Any] = []
    while True:
        gap = _NEXT_ITEM.match(text, begin)
        begin = gap.end() if gap is not None else begin
        item = _decode(text, begin) if text[begin : begin + 1] == "{" else None
        if item is None:
            return items
        items.append(item[0])
        begin = item[1]


# The two wire formats, OpenAI's chat completions and Anthropic's messages, as plain dicts.

JSON_SCHEMA: Final = "json_schema"
TOOL: Final = "tool"
JSON_OBJECT: Final = "json_object"
PROMPT: Final = "prompt"
TOOL_NAME: Final = "answer"  # The tool that the model is forced to call; its arguments are the answer.
# Some gateways refuse JSON mode unless the messages contain the word "JSON".
_JSON_REMINDER: Final = "Answer with JSON alone, of this schema: "


class Quirks(Struct, frozen=True):
    """The address of a provider's endpoint, its wire format, and its usable channels for JSON answers, best first."""

    name: str
    url: str
    wire: Literal["openai", "anthropic"]
    ladder: tuple[str, ...]
    caches: bool = False  # Whether system blocks can be marked for its cache; if not, one string is sent.


_QUIRKS: Final = (
    Quirks("anthropic", "https://api.anthropic.com/v1/messages", "anthropic", (JSON_SCHEMA, TOOL, PROMPT), caches=True),
    Quirks("openai", "https://api.openai.com/v1/chat/completions", "openai", (JSON_SCHEMA, TOOL, JSON_OBJECT, PROMPT)),
    # Its reasoning model refuses a forced tool call, and its JSON mode can be cut off.
    Quirks("deepseek", "https://api.deepseek.com/v1/chat/completions", "openai", (TOOL, JSON_OBJECT, PROMPT)),
    Quirks(
        "qwen",
        "https://dashscope.aliyuncs.com/compatible-mode/v1/chat/completions",
        "openai",
        (TOOL, JSON_OBJECT, PROMPT),
    ),
    Quirks("glm", "https://open.bigmodel.cn/api/paas/v4/chat/completions", "openai", (TOOL, JSON_OBJECT, PROMPT)),
    # It silently ignores any response format, and takes the system prompt as one string.
    Quirks("minimax", "https://api.minimax.io/anthropic/v1/messages", "anthropic", (TOOL, PROMPT)),
    # It cannot force a tool call.
    Quirks("ollama", "http://localhost:11434/v1/chat/completions", "openai", (JSON_SCHEMA, JSON_OBJECT, PROMPT)),
)
PROVIDERS: Final = {quirks.name: quirks for quirks in _QUIRKS}
"""The providers that `HttpProvider` knows, by name: anthropic, openai, deepseek, qwen, glm, minimax and ollama."""


class Usage(Struct, frozen=True):
    """The tokens of a call, as the provider counted them."""

    input_tokens: int = 0
    output_tokens: int = 0


class _JsonRequest(NamedTuple):
    system: tuple[str, ...]
    messages: tuple[dict[str, Any], ...]
    schema: Mapping[str, Any]
    limits: dict[str, Any]  # The model, temperature and max_tokens, under the same names in both wire formats.

    def system_texts(self, channel: str) -> list[str]:
        if channel in (JSON_SCHEMA, TOOL):
            return [*self.system]
        return [*self.system, _JSON_REMINDER + msgspec.json.encode(self.schema).decode()]


def _openai_body(_: Quirks, channel: str, question: _JsonRequest) -> dict[str, Any]:
    system, schema = "\n\n".join(question.system_texts(channel)), dict(question.schema)
    forms: dict[str, dict[str, Any]] = {
        JSON_SCHEMA: {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": TOOL_NAME, "schema": schema, "strict": True},
            }
        },
        TOOL: {
            "tools": [{"type": "function", "function": {"name": TOOL_NAME, "parameters": schema}}],
            "tool_choice": "required",
        },
        JSON_OBJECT: {"response_format": {"type": "json_object"}},
        PROMPT: {},
    }
    first = [{"role": "system", "content": system}] if system else []
    return {"messages": [*first, *question.messages]} | forms[channel]


def _anthropic_body(quirks: Quirks, channel: str, question: _JsonRequest) -> dict[str, Any]:
    texts = [text for text in question.system_texts(channel) if text]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts]
    if blocks:
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
    schema = dict(question.schema)
    forms: dict[str, dict[str, Any]] = {
        JSON_SCHEMA: {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
        TOOL: {
            "tools": [{"name": TOOL_NAME, "input_schema": schema}],
            "tool_choice": {"type": "tool", "name": TOOL_NAME} if quirks.caches else {"type": "any"},
        },
        PROMPT: {},
    }
    system = blocks if quirks.caches else "\n\n".join(texts)
    return ({"system": system} if texts else {}) | {"messages": list(question.messages)} | forms[channel]


def _openai_text(reply: dict[str, Any]) -> str:
    message = reply["choices"][0]["message"]
    for call in message.get("tool_calls") or ():
        return _text(call["function"]["arguments"])
    return _text(message.get("content") or "")


def _anthropic_text(reply: dict[str, Any]) -> str:
    blocks: Sequence[dict[str, Any]] = reply["content"]
    for block in blocks:
        if block["type"] == "tool_use":
            return _text(block["input"])
    return "".join(_text(block["text"]) for block in blocks if block["type"] == "text")


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_BODIES: Final = {"openai": _openai_body, "anthropic": _anthropic_body}
_TEXTS: Final = {"openai": _openai_text, "anthropic": _anthropic_text}


def _headers(wire: str, api_key: str | None) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if wire == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    if api_key is not None:
        headers |= {"x-api-key": api_key} if wire == "anthropic" else {"Authorization": f"Bearer {api_key}"}
    return headers


def _usage(value: object) -> Usage:
    counts = cast("dict[str, Any]", value) if isinstance(value, dict) else {}

    def count(*names: str) -> int:
        return next((number for name in names if isinstance(number := counts.get(name), int) and number >= 0), 0)

    return Usage(count("input_tokens", "prompt_tokens"), count("output_tokens", "completion_tokens"))


# Providers.

_READ_BYTES: Final = 65_536
# Statuses of a provider that does not support a channel; the next channel is tried.
_TRY_NEXT: Final = (400, 404, 415, 422)
_OK: Final = 200


# What to check after a status that is not 200.
_ADVICE: Final = {
    400: "check model= and the length of what was asked",
    401: "check api_key=",
    403: "check api_key=, and whether it may use this model",
    404: "check model=, and url=, the whole address of the endpoint",
    405: "check url=, the whole address of the endpoint",
    408: "try again later",
    429: "try again later, or raise the provider's limit",
}
_MOVED: Final = range(300, 400)
_SERVER_ERRORS: Final = range(500, 600)
_REASON_FIELDS: Final = ("error", "message", "detail", "msg")
_REASON_CHARS_MAX: Final = 300
_SECRET_CHARS_MIN: Final = 3  # A local server takes any key, and one of a letter or two would mask all words.


class ProviderFailed(RefoldError):
    """A model gave no usable answer; `status` is the HTTP status, or 0 without one."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class JsonResult(Struct, frozen=True):
    """A model's answer: the JSON value, whether it was cut off, the token usage, the raw text, and the channel."""

    value: Any
    is_cut_off: bool = False
    usage: Usage = Usage()
    raw: str = ""
    channel: str = PROMPT


@runtime_checkable
class JsonProvider(Protocol):
    """A model that answers in JSON."""

    @property
    def id(self) -> str:
        """The name under which the provider is recorded."""
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
        """Answer messages with JSON that follows a schema, as far as the model complies."""
        ...


class CallableProvider:
    """A provider that calls a function of (messages, system, schema), which returns the answer as text or as a value.

    >>> CallableProvider(lambda messages, system, schema: "[]").complete_json([], [], {}).value
    []
    """

    def __init__(
        self,
        function: Callable[[list[dict[str, Any]], list[str], dict[str, Any]], Any],
        *,
        id: str = "callable",  # noqa: A002 - the name in the protocol
    ) -> None:
        self.id = checks.name(id, "id")
        self._function = function

    def complete_json(
        self,
        messages: Sequence[dict[str, Any]],
        system: Sequence[str],
        schema: Mapping[str, Any],
        *,
        temperature: float = 0.0,  # noqa: ARG002 - left to the function
        max_tokens: int = REPLY_TOKENS_DEFAULT,  # noqa: ARG002
        timeout_seconds: float = PROVIDER_SECONDS_DEFAULT,  # noqa: ARG002
    ) -> JsonResult:
        """Call the function and parse its answer if it is text; exceptions of the function propagate."""
        answer = self._function(list(messages), list(system), dict(schema))
        if not isinstance(answer, str):
            return JsonResult(answer)
        value, is_cut_off = parse_json(answer)
        return JsonResult(value, is_cut_off, raw=answer)


class HttpProvider:
    """A provider over HTTP: the name of one of `PROVIDERS`, or your own `Quirks`, and one of its models.

    `url` is the whole address of the endpoint, such as `http://localhost:11434/v1/chat/completions`, not the base URL
    that other libraries extend. Nothing is sent before `complete_json`, which tries the channels of the provider's
    ladder until one works.
    """

    def __init__(
        self, provider: str | Quirks, model: str, *, api_key: str | None = None, url: str | None = None
    ) -> None:
        if not isinstance(cast("object", provider), Quirks) and provider not in tuple(PROVIDERS):
            checks.invalid(f"provider is {checks.brief(provider)}; give one of {', '.join(PROVIDERS)}, or Quirks")
        self._quirks = PROVIDERS[provider] if isinstance(provider, str) else provider
        self._model = checks.name(model, "model")
        self._api_key = None if api_key is None else checks.text(api_key, "api_key")
        if not (api_key or "").isascii() or not (api_key or "").isprintable():
            checks.invalid("api_key holds what no header can; was a newline read with it?")
        self._url = _url(checks.text(url or self._quirks.url, "url"))

    def __repr__(self) -> str:
        return f"HttpProvider({self.id!r})"  # Never shows the key.

    @property
    def id(self) -> str:
        """The name of the provider and of the model."""
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
        """Try each channel until one gives an answer, all within one timeout.

        Raises `ProviderFailed` if every channel is refused or answers without JSON, and at once on any other status, a
        timeout or a lost connection. It quotes the reason that the server gives, without the key.
        """
        seconds = cast("object", timeout_seconds)
        if (
            not isinstance(seconds, (int, float))
            or isinstance(seconds, bool)
            or not 0 < seconds <= PROVIDER_SECONDS_MAX
        ):
            advice = f"give a number over 0, at most {PROVIDER_SECONDS_MAX = }"
            checks.invalid(f"timeout_seconds is {checks.brief(seconds)}; {advice}")
        deadline = time.monotonic() + seconds
        limits = {"model": self._model, "temperature": temperature, "max_tokens": max_tokens}
        question = _JsonRequest(tuple(system), tuple(messages), schema, limits)
        problem = ProviderFailed(f"{self.id} has no channel")
        for channel in self._quirks.ladder:
            try:
                return self._ask(channel, question, deadline)
            except ProviderFailed as error:
                if error.status not in (_OK, *_TRY_NEXT):
                    raise
                problem = error
        raise problem

    def _ask(self, channel: str, question: _JsonRequest, deadline: float) -> JsonResult:
        try:
            body = msgspec.json.encode(_BODIES[self._quirks.wire](self._quirks, channel, question) | question.limits)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            checks.invalid(f"the question holds what JSON cannot: {error}")
        status, content = self._post(body, deadline)
        if status != _OK:
            reason = self._reason(content)
            raise ProviderFailed(f"{self.id} answered {status} to channel {channel}{reason}; {_advice(status)}", status)
        try:
            reply = msgspec.json.decode(content)
            if not isinstance(reply, dict):
                checks.invalid(f"the reply is {checks.brief(reply)}, not a JSON object")
            fields = cast("dict[str, Any]", reply)
            try:
                text = _TEXTS[self._quirks.wire](fields)
            except (KeyError, IndexError, TypeError, AttributeError) as error:
                checks.invalid(f"the reply holds no answer ({type(error).__name__}: {error})")
            value, is_cut_off = parse_json(text)
        except (*checks.UNDECODABLE, InvalidInput, NoJson) as error:
            raise ProviderFailed(f"{self.id} gave no usable answer through channel {channel}: {error}", _OK) from error
        return JsonResult(value, is_cut_off, _usage(fields.get("usage")), text, channel)

    def _reason(self, content: bytes) -> str:
        """Return the reason in a server's refusal, in one line, without control characters and secrets."""
        text = _error_message(content)
        for secret in _secrets_of(self._api_key, self._url):
            text = text.replace(secret, "***")
        line = " ".join("".join(each if each.isprintable() else " " for each in text[: 4 * _REASON_CHARS_MAX]).split())
        kind = secret_in(line)
        if kind is not None:
            return f" with a reason that is left out, because it seems to hold {kind}"
        if not line:
            return " without a reason"
        return f": {line if len(line) <= _REASON_CHARS_MAX else f'{line[: _REASON_CHARS_MAX - 3]}...'}"

    def _post(self, body: bytes, deadline: float) -> tuple[int, bytes]:
        import http.client  # noqa: PLC0415 - slow to load, and only needed for HTTP

        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._url.hostname or "", self._url.port, timeout=_seconds_left(deadline, self.id))
        target = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        content = bytearray()
        try:
            connection.connect()
            with _time_limit(connection.sock, deadline, self.id):
                connection.request("POST", target, body, _headers(self._quirks.wire, self._api_key))
                response = connection.getresponse()
                while piece := response.read1(_READ_BYTES):
                    content += piece
                    if len(content) > REPLY_BYTES_MAX:
                        raise ProviderFailed(f"{self.id} answered with more than {REPLY_BYTES_MAX = :,} bytes")
                return response.status, bytes(content)
        except (OSError, ValueError, http.client.HTTPException) as error:
            _seconds_left(deadline, self.id)
            address = f"{self._url.scheme}://{self._url.netloc.rpartition('@')[2]}{self._url.path}"
            why = f"{type(error).__name__}: {error}"
            raise ProviderFailed(
                f"{self.id} could not be asked at {address} ({why}); try again later, or check url="
            ) from error
        finally:
            connection.close()


def _advice(status: int) -> str:
    if status in _MOVED:
        return "check url=: the address has moved"
    return _ADVICE.get(status, "try again later" if status in _SERVER_ERRORS else "see the provider's documentation")


def _error_message(content: bytes) -> str:
    """Return the message in the body of an error, or all of its text."""
    text = content.decode("utf-8", "replace")
    try:
        value: object = msgspec.json.decode(content)
    except checks.UNDECODABLE:
        return text
    while not isinstance(value, str):
        items = cast("list[object]", value)[:1] if isinstance(value, list) else []
        fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        inner = [*items, *(fields[name] for name in _REASON_FIELDS if fields.get(name))]
        if not inner:
            return text
        value = inner[0]
    return value


def _secrets_of(api_key: str | None, url: SplitResult) -> list[str]:
    """List the key and the secrets of a URL, in each form in which a server can quote them, longest first."""
    secrets = [api_key or "", url.password or "", *(value for _, value in parse_qsl(url.query))]
    known = [secret for secret in secrets if len(secret) >= _SECRET_CHARS_MIN]
    forms = {form for secret in known for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1])}
    return sorted(forms, key=len, reverse=True)


@contextmanager
def _time_limit(connection: socket.socket, deadline: float, provider: str) -> Generator[None]:
    """Shut the connection down at the deadline, so that slowly trickling headers or body cannot outlast the timeout."""

    def hang_up() -> None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(_seconds_left(deadline, provider), hang_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    _seconds_left(deadline, provider)


def _seconds_left(deadline: float, provider: str) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise ProviderFailed(f"{provider} took too long; give it more timeout_seconds")
    return seconds


def _url(text: str) -> SplitResult:
    try:
        url = urlsplit(text)
        is_valid = url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:
        url, is_valid = SplitResult("", "", "", "", ""), False
    if not is_valid or not text.isascii() or not text.isprintable() or " " in text:
        checks.invalid(f"url is {checks.brief(text)}; give one that begins with http:// or https://")
    return url
