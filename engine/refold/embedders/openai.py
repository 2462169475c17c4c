"""Vectors from an endpoint that speaks OpenAI's ``/embeddings``: in batches, with a deadline, tried again if it fails.

Nothing here is used unless a caller makes an ``OpenAIEmbedder``; then the texts that are embedded go to its endpoint.
"""

import time
from collections.abc import Callable
from typing import Any, Final, cast
from urllib.parse import urlsplit

from refold.embedders.extras import loaded, visible
from refold.embedders.protocol import COMPACT_COSINE, MERGE_COSINE
from refold.errors import EmbedderFailed, InvalidInput
from refold.limits import EMBEDDING_REQUEST_TEXTS_COUNT, EMBEDDING_WAIT_SECONDS_MAX

_OK: Final = 200
_TRIED_AGAIN: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_SHOWN_CHARS: Final = 200


class OpenAIEmbedder:
    """An embedder at ``base_url`` (the extra ``openai``), such as ``https://host/v1``, for a model of ``dim`` numbers.

    ``api_key`` is sent as a bearer token and shown nowhere. ``timeout_seconds`` is for each request. ``attempts`` is
    how often one is made when the endpoint is busy, fails or cannot be reached, with waits that double from half a
    second on, or as long as the endpoint asks for, at most ``EMBEDDING_WAIT_SECONDS_MAX``. ``shorten`` asks the model
    for vectors of ``dim`` numbers, where it can give fewer. A text without any character to see is sent as a full stop.
    Redirects are not followed.

    Raises ``InvalidInput`` for arguments that cannot be, and if the package is absent.
    """

    merge_threshold = MERGE_COSINE
    compact_threshold = COMPACT_COSINE

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        dim: int,
        api_key: str | None = None,
        timeout_seconds: float = 30.0,
        attempts: int = 4,
        shorten: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        _check(base_url, model, dim, timeout_seconds, attempts)
        self.id = f"openai/{model}/{dim}"
        self.dim = dim
        self._http = loaded("httpx2", "openai")
        self._url = base_url.rstrip("/") + "/embeddings"
        self._fields: dict[str, Any] = {"model": model, "encoding_format": "float"}
        if shorten:
            self._fields["dimensions"] = dim
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._client: Any = self._http.Client(headers=headers, timeout=timeout_seconds, follow_redirects=False)
        self._attempts = attempts
        self._sleep = sleep

    def __repr__(self) -> str:
        """Return the embedder's name and endpoint, without its key."""
        return f"OpenAIEmbedder({self.id!r} at {self._url!r})"

    def embed(self, texts: list[str]) -> list[list[float]]:
        """Return one vector for each text, in order; raises ``EmbedderFailed`` if the endpoint gives none at last."""
        vectors: list[list[float]] = []
        for start in range(0, len(texts), EMBEDDING_REQUEST_TEXTS_COUNT):
            vectors += self._batch(visible(texts[start : start + EMBEDDING_REQUEST_TEXTS_COUNT]))
        return vectors

    def close(self) -> None:
        """Close the connections; ``embed`` cannot be called afterwards."""
        self._client.close()

    def _batch(self, texts: list[str]) -> list[list[float]]:
        attempt = 0
        while True:
            attempt += 1
            answer, failure = self._asked(texts)
            if answer is not None and answer.status_code == _OK:
                return self._vectors(answer, len(texts))
            if attempt == self._attempts or (answer is not None and answer.status_code not in _TRIED_AGAIN):
                tried = f"after {attempt} of {self._attempts} attempts"
                message = f"no vectors from {self._url} {tried}: {failure}; check the endpoint, the model and the key"
                raise EmbedderFailed(message)
            self._sleep(_wait_seconds(answer, attempt))

    def _asked(self, texts: list[str]) -> tuple[Any, str]:
        """Make one request; return what was answered, if anything was, and what is wrong with it."""
        try:
            answer = self._client.post(self._url, json={**self._fields, "input": texts})
        except self._http.TransportError as error:
            return None, f"{type(error).__name__} {error}".rstrip()
        return answer, f"status {answer.status_code}, {answer.text[:_SHOWN_CHARS]!r}"

    def _vectors(self, answer: Any, count: int) -> list[list[float]]:
        """Return the vectors of an answer in the order of the texts, whatever order they came in."""
        try:
            rows = {row["index"]: row["embedding"] for row in answer.json()["data"]}
            return [cast("list[float]", rows[place]) for place in range(count)]
        except (ValueError, KeyError, TypeError) as error:
            shown = answer.text[:_SHOWN_CHARS]
            message = (
                f"{self._url} answered without a vector for each of {count} texts ({type(error).__name__} {error}): "
                f"{shown!r}; it has to answer as OpenAI's embeddings do"
            )
            raise EmbedderFailed(message) from error


def _check(base_url: str, model: str, dim: int, timeout_seconds: float, attempts: int) -> None:
    address = urlsplit(base_url)
    wrong = (
        ("base_url", base_url, address.scheme not in {"http", "https"} or not address.hostname, "an http or https URL"),
        ("model", model, not model, "the name of a model"),
        ("dim", dim, dim < 1, "how many numbers the model's vectors have"),
        ("timeout_seconds", timeout_seconds, not timeout_seconds > 0, "a number of seconds above 0"),
        ("attempts", attempts, attempts < 1, "a number from 1"),
    )
    for name, value, is_wrong, advice in wrong:
        if is_wrong:
            message = f"{name} is {value!r}; give {advice}"
            raise InvalidInput(message)


def _wait_seconds(answer: Any, attempt: int) -> float:
    """Return how long to wait before the next attempt: what the endpoint asks for, else twice as long each time."""
    asked = "" if answer is None else answer.headers.get("retry-after", "")
    wait = float(asked) if asked.isascii() and asked.isdecimal() else 0.5 * 2 ** (attempt - 1)
    return min(wait, EMBEDDING_WAIT_SECONDS_MAX)
