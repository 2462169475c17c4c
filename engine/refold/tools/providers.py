"""Models that answer in JSON: a protocol, one provider for both wires over HTTP, and one made of a function."""

import http.client
import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol, cast, runtime_checkable
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Struct

from refold import checks
from refold.errors import InvalidInput, RefoldError
from refold.tools import wires
from refold.tools.limits import PROVIDER_SECONDS_DEFAULT, PROVIDER_SECONDS_MAX, REPLY_BYTES_MAX, REPLY_TOKENS_DEFAULT
from refold.tools.parsing import NoJson, parsed
from refold.tools.wires import PROVIDERS, Question, Quirks, Usage

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
    channel: str = wires.PROMPT


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
            asked = msgspec.json.encode(wires.body(self._quirks, channel, question))
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            checks.invalid(f"the question holds what JSON cannot: {error}")
        status, content = self._sent(asked, until)
        if status != _OK:
            message = f"{self.id} answered {status} to channel {channel}; see the provider's documentation"
            raise ProviderFailed(message, status)
        try:
            text, usage = wires.answer(self._quirks, msgspec.json.decode(content))
            value, is_cut_off = parsed(text)
        except (msgspec.DecodeError, InvalidInput, NoJson, UnicodeError, RecursionError) as error:
            message = f"{self.id} gave no usable answer through channel {channel}: {error}"
            raise ProviderFailed(message, _OK) from error
        return JsonResult(value, is_cut_off, usage, text, channel)

    def _sent(self, content: bytes, until: float) -> tuple[int, bytes]:
        """Return status and content of the reply."""
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._url.hostname or "", self._url.port, timeout=_left(until, self.id))
        target = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        try:
            connection.connect()
            with _hung_up(connection.sock, until, self.id):
                connection.request("POST", target, content, wires.headers(self._quirks, self._api_key))
                response = connection.getresponse()
                return response.status, self._read(response)
        except (OSError, ValueError, http.client.HTTPException) as error:
            _left(until, self.id)
            message = f"{self.id} could not be asked ({type(error).__name__}: {error}); try again later"
            raise ProviderFailed(message) from error
        finally:
            connection.close()

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        """Return a reply's content."""
        content = bytearray()
        while piece := response.read1(_READ_BYTES):
            content += piece
            if len(content) > REPLY_BYTES_MAX:
                message = f"{self.id} answered with more than REPLY_BYTES_MAX = {REPLY_BYTES_MAX:,} bytes"
                raise ProviderFailed(message)
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
        message = f"{provider} took too long; give it more timeout_seconds"
        raise ProviderFailed(message)
    return left
