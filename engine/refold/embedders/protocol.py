"""What an embedder is: a name, a dimension, and vectors for texts."""

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

from refold.errors import InvalidInput

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Vectors: TypeAlias = NDArray[float32]
    """Vectors as rows of float32."""

MERGE_COSINE: Final = 0.85
"""Two memories that are more alike than this are merged when one is upserted, unless the embedder says otherwise."""

COMPACT_COSINE: Final = 0.90
"""Two memories that are more alike than this are merged when a project is compacted."""


@runtime_checkable
class Embedder(Protocol):
    """What an embedder offers: the name under which its vectors are recorded, their dimension, and the vectors.

    An embedder may also have ``merge_threshold`` and ``compact_threshold``, the cosines above which two of its texts
    say the same: they differ between models. Without them ``MERGE_COSINE`` and ``COMPACT_COSINE`` hold.
    """

    @property
    def id(self) -> str:
        """The name of the model, another one whenever its vectors would be others."""
        ...

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""
        ...

    def embed(self, texts: list[str]) -> "Sequence[Sequence[float]] | NDArray[Any]":
        """Return one vector for each text, in order: lists of floats or the rows of an array."""
        ...


def thresholds(embedder: Embedder) -> tuple[float, float]:
    """Return the cosines above which texts are merged by an upsert and by compaction.

    Raises ``InvalidInput`` if the embedder has one that is no number from -1 to 1.
    """
    return (
        _threshold(embedder, "merge_threshold", MERGE_COSINE),
        _threshold(embedder, "compact_threshold", COMPACT_COSINE),
    )


def _threshold(embedder: Embedder, name: str, default: float) -> float:
    value: object = getattr(embedder, name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value) or not -1 <= value <= 1:
        message = f"{name} of the embedder is {value!r}; give a number from -1 to 1, such as {default}"
        raise InvalidInput(message)
    return float(value)
