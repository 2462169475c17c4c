"""Vectors for memories: given by the caller or made by the embedder, and held against those that a project has."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from refold import checks
from refold.embedders import COMPACT_COSINE, MERGE_COSINE, CachedEmbedder, Embedder, HashedEmbedder, check_vectors
from refold.errors import EmbeddingMismatch, LimitExceeded
from refold.limits import VECTOR_DIMENSIONS_MAX

if TYPE_CHECKING:
    from numpy.typing import NDArray


GIVEN: Final = "given"
"""What the model of vectors is called that a caller gave without saying which embedder made them."""


class Vector(NamedTuple):
    """A vector as events hold it, and its model: ``None`` if the caller gave it and no embedder was chosen."""

    packed: bytes
    model: str | None


class Embedding:
    """The embedder of one memory: the one that was chosen, or the built-in one."""

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
        """Two memories that are more alike than this are one."""
        return MERGE_COSINE if self.chosen is None else self.embedder.merge_threshold

    @property
    def compact_cosine(self) -> float:
        """Two memories that are more alike than this become one when a project is compacted."""
        return COMPACT_COSINE if self.chosen is None else self.embedder.compact_threshold

    def of(self, text: str) -> Vector:
        """Return the vector of a text."""
        return self.of_all([text])[0]

    def of_all(self, texts: list[str]) -> list[Vector]:
        """Return the vectors of texts."""
        embedder = self.embedder
        return [Vector(_packed(row), embedder.id) for row in embedder.embed(texts)] if texts else []

    def given(self, vector: object) -> Vector:
        """Return a vector that the caller gave, as one of the embedder that was chosen, if one was."""
        if not isinstance(vector, Sequence) and not hasattr(vector, "__array__"):
            checks.invalid(f"vector must be a list of numbers or an array, not {type(vector).__name__}")
        if isinstance(vector, (str, bytes)):
            checks.invalid(f"vector must be a list of numbers or an array, not {checks.shown(vector)}")
        numbers = cast("Sequence[float]", vector)
        dim = len(numbers) if self.chosen is None else self.chosen.dim
        if dim > VECTOR_DIMENSIONS_MAX:
            raise LimitExceeded(
                f"vector has {dim} numbers, over VECTOR_DIMENSIONS_MAX = {VECTOR_DIMENSIONS_MAX}; give a smaller one"
            )
        (row,) = check_vectors([numbers], dim=dim, count=1, what="vector")
        return Vector(_packed(row), None if self.chosen is None else self.chosen.id)

    def joined(self, text: str, model: str, vectors: tuple[bytes, bytes]) -> Vector:
        """Return the vector of a merged text: embedded if the model is at hand, else the direction between the two."""
        return self.all_joined([text], model, [vectors])[0]

    def all_joined(self, texts: list[str], model: str, pairs: Sequence[tuple[bytes, bytes]]) -> list[Vector]:
        """Return the vectors of merged texts."""
        if self.embedder.id == model:
            return self.of_all(texts)
        return [Vector(_between(*pair), model) for pair in pairs]


def _packed(row: "NDArray[Any]") -> bytes:
    return bytes(row.astype("<f4").tobytes())


def _between(one: bytes, other: bytes) -> bytes:
    from refold.index.project import unit  # noqa: PLC0415 - loads numpy's neighbours only for those who need them

    between = unit(one) + unit(other)
    return _packed(between) if between.any() else one


def fitting(own: tuple[str, int], vector: Vector, *, is_empty: bool) -> str:
    """Return the model under which a vector joins those of a project, of the given model and dimension.

    Raises ``EmbeddingMismatch`` if it is of another one.
    """
    model, dim = own
    if is_empty:
        return vector.model or GIVEN
    size = len(vector.packed) // 4
    if size != dim or (vector.model is not None and vector.model != model):
        made = "the caller" if vector.model is None else repr(vector.model)
        raise EmbeddingMismatch(
            f"the vector is of {made} with {size} numbers, and this project's are of {model!r} with {dim}; open the "
            f"memory with that embedder, give vector= of that model, or reembed"
        )
    return model
