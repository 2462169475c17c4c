"""Embedders: the built-in one on every machine and seed, the checks of what comes in, and the cache."""

import hashlib
import os
import subprocess
import sys
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.embedders import (
    CachedEmbedder,
    Embedder,
    HashedEmbedder,
    MiniLmEmbedder,
    check_vectors,
    floor_rate,
    thresholds,
)
from refold.errors import EmbeddingMismatch, InvalidInput
from refold.index.project import unit

TEXTS = [
    "I prefer pnpm over npm",
    "",
    " \n",
    "!!!",
    "\U0001f600",
    "\u6771\u4eac\u3067\u4f1a\u8b70",
    "\u0645\u0631\u062d\u0628\u0627",
    "the the the",
    "word " * 10_000,
]
DIGEST = "8a712c6ee4d4fd1948592ec171ef8d5400a657f4653d0868d0d2d8ded7958df1"


def test_the_vectors_of_fixed_texts_never_change() -> None:
    vectors: Any = HashedEmbedder().embed(TEXTS)
    assert vectors.dtype == numpy.float32
    assert vectors.shape == (len(TEXTS), HashedEmbedder.dim)
    assert HashedEmbedder.id == "refold-hash-1"
    assert hashlib.sha256(vectors.tobytes()).hexdigest() == DIGEST


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_the_vectors_do_not_depend_on_the_hash_seed(seed: str) -> None:
    program = "import hashlib; from refold.embedders import HashedEmbedder as H"
    program += "; from tests.index import test_embedders as t"
    program += "; print(hashlib.sha256(H().embed(t.TEXTS).tobytes()).hexdigest())"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == DIGEST


@given(st.lists(st.text(max_size=40), max_size=5))
def test_every_text_has_a_vector_of_length_one(texts: list[str]) -> None:
    embedder = HashedEmbedder()
    rows = check_vectors(embedder.embed(texts), dim=embedder.dim, count=len(texts))
    assert numpy.allclose(numpy.linalg.norm(rows, axis=1), 1, atol=1e-6)


def test_a_text_is_nearest_to_the_one_that_shares_its_words_in_any_script() -> None:
    rows = [
        "We decided to use PostgreSQL for the billing database",
        "The cat sleeps on the warm window sill",
        "\u6628\u65e5\u6771\u4eac\u3067\u4f1a\u8b70\u304c\u3042\u308a\u307e\u3057\u305f",
        "\u041c\u043e\u0441\u043a\u0432\u0430 \u2014 \u0441\u0442\u043e\u043b\u0438\u0446\u0430",
        "\uc11c\uc6b8\uc5d0\uc11c \ub9cc\ub098\uc694",
    ]
    queries = [
        "which databases for billing?",
        "cats sleeping",
        "\u6771\u4eac",
        "\u043c\u043e\u0441\u043a\u0432\u0435",
        "\uc11c\uc6b8",
    ]
    embed = HashedEmbedder().embed
    assert (embed(queries) @ embed(rows).T).argmax(axis=1).tolist() == [0, 1, 2, 3, 4]


def test_the_built_in_embedder_is_an_embedder_with_the_thresholds_of_the_seed() -> None:
    assert isinstance(HashedEmbedder(), Embedder)
    assert thresholds(HashedEmbedder()) == (0.85, 0.90)


class Fixed:
    """An embedder that returns what it was told to."""

    id = "fixed"
    dim = 2

    def __init__(self, vectors: Any = None, **profile: Any) -> None:
        self.vectors = vectors
        self.asked: list[list[str]] = []
        self.__dict__.update(profile)

    def embed(self, texts: list[str]) -> Any:
        self.asked.append(texts)
        return [[1.0, float(len(text))] for text in texts] if self.vectors is None else self.vectors


def test_an_embedder_has_thresholds_of_its_own() -> None:
    assert thresholds(Fixed()) == (0.85, 0.90)
    assert thresholds(Fixed(merge_threshold=0.5)) == (0.5, 0.90)


@pytest.mark.parametrize("threshold", [2, -1.5, float("nan"), "0.5", None, True])
def test_a_threshold_that_is_no_cosine_is_refused(threshold: Any) -> None:
    with pytest.raises(InvalidInput, match="merge_threshold"):
        thresholds(Fixed(merge_threshold=threshold))


def test_an_embedder_without_a_floor_rate_has_no_floor() -> None:
    assert floor_rate(Fixed()) == 0.0
    assert CachedEmbedder(Fixed(floor_rate=0.5)).floor_rate == 0.5
    assert (HashedEmbedder.floor_rate, MiniLmEmbedder.floor_rate) == (0.0295, 0.045)


@pytest.mark.parametrize("rate", [2, -0.1, float("nan"), "0.5", None, True])
def test_a_floor_rate_that_is_none_is_refused(rate: Any) -> None:
    with pytest.raises(InvalidInput, match="floor_rate"):
        floor_rate(Fixed(floor_rate=rate))


GOOD = [[[1, 2]], [[1.0, 2.0]], ((1, 2),), numpy.array([[1, 2]]), numpy.array([[1, 2]], dtype=">f8")]


@pytest.mark.parametrize("vectors", GOOD, ids=range(len(GOOD)))
def test_vectors_become_rows_of_float32(vectors: Any) -> None:
    rows: Any = check_vectors(vectors, dim=2, count=1)
    assert rows.dtype == numpy.float32
    assert rows.dtype.isnative
    assert rows.flags.c_contiguous
    assert rows.tolist() == [[1, 2]]


def test_no_vectors_are_no_rows() -> None:
    assert check_vectors([], dim=3, count=0).shape == (0, 3)


BAD = {
    "another dimension": ([[1, 2, 3]], EmbeddingMismatch, "3 numbers where 2 are expected"),
    "no dimension": ([[]], EmbeddingMismatch, "0 numbers where 2 are expected"),
    "too many": ([[1, 2], [3, 4]], InvalidInput, "2 came for 1"),
    "too few": ([], InvalidInput, "0 came for 1"),
    "not a number": ([[float("nan"), 1]], InvalidInput, "infinite or NaN"),
    "infinite": ([[float("inf"), 1]], InvalidInput, "infinite or NaN"),
    "beyond float32": ([[1e39, 1]], InvalidInput, "infinite or NaN"),
    "zero": ([[0, 0]], InvalidInput, "nothing but zeros"),
    "zero in float32": ([[1e-60, 0]], InvalidInput, "nothing but zeros"),
    "one vector alone": ([1, 2], InvalidInput, "one list of floats for each text"),
    "texts": ([["a", "b"]], InvalidInput, "one list of floats for each text"),
    "truths": ([[True, False]], InvalidInput, "one list of floats for each text"),
    "complex": ([[1j, 2]], InvalidInput, "one list of floats for each text"),
    "ragged": ([[1, 2], [3]], InvalidInput, "equally many"),
    "nothing": (None, InvalidInput, "one list of floats for each text"),
    "three dimensions": ([[[1, 2]]], InvalidInput, "3 dimensions"),
}


@pytest.mark.parametrize("name", BAD)
def test_vectors_that_cannot_be_searched_are_refused(name: str) -> None:
    vectors: Any
    vectors, error, message = BAD[name]
    with pytest.raises(error, match=message):
        check_vectors(vectors, dim=2, count=1)


def test_a_vector_gets_the_length_one_however_long_it_was() -> None:
    rows = check_vectors([[3, 4], [3e30, 4e30], [3e-30, 4e-30]], dim=2, count=3)
    assert numpy.allclose([unit(row.tobytes()) for row in rows], [[0.6, 0.8]] * 3, rtol=1e-6)


def test_a_text_is_embedded_once() -> None:
    inner = Fixed()
    embedder = CachedEmbedder(inner)
    assert embedder.embed(["a", "bb", "a"]).tolist() == [[1, 1], [1, 2], [1, 1]]
    assert embedder.embed(["bb", "ccc"]).tolist() == [[1, 2], [1, 3]]
    assert embedder.embed([]).shape == (0, 2)
    assert inner.asked == [["a", "bb"], ["ccc"]]
    embedder.clear()
    embedder.embed(["a"])
    assert inner.asked[2:] == [["a"]]


def test_the_cache_is_bounded_and_forgets_what_was_asked_for_longest_ago() -> None:
    inner = Fixed()
    embedder = CachedEmbedder(inner, bytes_max=2 * (2 * 4 + 32))
    for text in ("a", "b", "a", "c", "a", "b"):
        embedder.embed([text])
    assert inner.asked == [["a"], ["b"], ["c"], ["b"]]


def test_a_caller_cannot_change_what_the_cache_holds() -> None:
    embedder = CachedEmbedder(Fixed())
    embedder.embed(["a"])[:] = 9
    assert embedder.embed(["a"]).tolist() == [[1, 1]]


@pytest.mark.parametrize("vectors", [[[1, 2, 3]], [[0, 0]], []])
def test_what_the_embedder_returns_is_checked_and_not_kept(vectors: Any) -> None:
    inner = Fixed(vectors)
    embedder = CachedEmbedder(inner)
    with pytest.raises((EmbeddingMismatch, InvalidInput), match="embedder 'fixed'"):
        embedder.embed(["a"])
    inner.vectors = None
    assert embedder.embed(["a"]).tolist() == [[1, 1]]


def test_the_room_loads_without_numpy() -> None:
    program = "import sys, refold.embedders; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
