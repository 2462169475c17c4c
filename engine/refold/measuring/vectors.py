"""Vectors of what is searched and of what is asked: made by an embedder, or lying beside the data."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zipfile import BadZipFile

from msgspec import Struct

from refold.embedders import Embedder, HashedEmbedder
from refold.errors import InvalidInput, NotFound
from refold.measuring.cases import Case

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Vectors = NDArray[float32]

_KINDS: Final = "fiu"
"""Floating-point numbers and integers, as NumPy calls them."""

_NUMBER_MAX: Final = 1e15
"""A product of larger numbers might not be finite, and what is no number has no place in an order."""

_PARTS: Final = (("turns", "messages", "items"), ("questions", "queries"))


class Embedded(Struct, frozen=True):
    """A case with a vector for each of its items and for each of its questions."""

    case: Case
    items: "Vectors"
    questions: "Vectors"


def _minilm() -> Embedder:
    from refold.embedders.minilm import MiniLmEmbedder  # noqa: PLC0415 - an extra, which may be absent

    return MiniLmEmbedder()


def _wordllama() -> Embedder:
    from refold.embedders.wordllama import WordLlamaEmbedder  # noqa: PLC0415 - an extra, which may be absent

    return WordLlamaEmbedder()


EMBEDDERS: Final[dict[str, Callable[[], Embedder]]] = {
    "hash": HashedEmbedder,
    "minilm": _minilm,
    "wordllama": _wordllama,
}
"""Embedders by the name that the command line has for them."""


def embedded(
    cases: Sequence[Case], embedder: Embedder, progress: Callable[[int, int], None] | None = None
) -> list[Embedded]:
    """Return the cases with vectors by an embedder; ``progress`` is told how many cases of how many are done."""
    import numpy  # noqa: PLC0415 - loads when vectors are needed

    def made(texts: list[str]) -> Any:
        return numpy.asarray(embedder.embed(texts), dtype=numpy.float32).reshape(len(texts), embedder.dim)

    found: list[Embedded] = []
    for case in cases:
        asked = made([question.text for question in case.questions])
        found.append(Embedded(case, made([item.text for item in case.items]), asked))
        if progress:
            progress(len(found), len(cases))
    return found


def stored(cases: Sequence[Case], folder: Path) -> list[Embedded]:
    """Return the cases with the vectors of a folder: one ``.npy`` of items and one of questions, in the cases' order.

    Raises ``NotFound`` if the folder has not exactly one of each, ``InvalidInput`` if they are no numbers, and if their
    rows are of other cases or not as long as each other.
    """
    sizes = [[len(case.items) for case in cases], [len(case.questions) for case in cases]]
    items, questions = (
        _parted(_only(folder, names), parts, folder) for names, parts in zip(_PARTS, sizes, strict=True)
    )
    lengths = {rows.shape[1] for rows in (*items, *questions)}
    if len(lengths) > 1:
        message = f"{folder} has vectors of {min(lengths)} and of {max(lengths)} numbers; give those of one embedder"
        raise InvalidInput(message)
    return [Embedded(*each) for each in zip(cases, items, questions, strict=True)]


def _only(folder: Path, names: tuple[str, ...]) -> Path:
    paths = [path for path in sorted(folder.glob("*.npy")) if any(name in path.stem for name in names)]
    if len(paths) != 1:
        message = f"{folder} has {len(paths)} files *.npy of {' or '.join(names)}; give a folder with exactly one"
        raise NotFound(message)
    return paths[0]


def _parted(path: Path, sizes: list[int], folder: Path) -> "list[Vectors]":
    import numpy  # noqa: PLC0415 - loads when vectors are needed

    rows = _loaded(path, folder)
    if rows.ndim != 2 or len(rows) != sum(sizes):  # noqa: PLR2004 - a matrix has two
        message = f"{path.name} in {folder} has shape {rows.shape}; give one row for each of {sum(sizes)} texts"
        raise InvalidInput(message)
    if not numpy.isfinite(rows).all() or numpy.abs(rows).max(initial=0) > _NUMBER_MAX:
        message = f"{path.name} in {folder} has numbers that are none or above {_NUMBER_MAX:g}; give finite vectors"
        raise InvalidInput(message)
    return numpy.split(rows, numpy.cumsum(sizes)[:-1])


def _loaded(path: Path, folder: Path) -> "Vectors":
    import numpy  # noqa: PLC0415 - loads when vectors are needed

    try:
        with path.open("rb") as file:
            found: Any = numpy.load(file)
    except (ValueError, EOFError, MemoryError, BadZipFile) as error:
        message = f"{path.name} in {folder} is no array ({error}); give what numpy.save wrote of numbers"
        raise InvalidInput(message) from error
    kind: Any = getattr(found, "dtype", None)
    if kind is None or kind.kind not in _KINDS:
        message = f"{path.name} in {folder} holds {kind or 'several arrays'}; give one array of real numbers"
        raise InvalidInput(message)
    with numpy.errstate(over="ignore"):
        rows: Vectors = found.astype(numpy.float32)
    return rows
