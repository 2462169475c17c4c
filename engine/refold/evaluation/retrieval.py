"""Evaluation of retrieval: the ranks of the evidence under a ranking, with confidence intervals."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from zipfile import BadZipFile

from msgspec import Struct
from msgspec.structs import replace

from refold.embedders import Embedder, HashedEmbedder, MiniLmEmbedder, WordLlamaEmbedder, floor_rate
from refold.errors import InvalidInput, NotFound
from refold.evaluation.cases import MEMORIES, Case, CaseQuestion
from refold.index import messages
from refold.index.ranking import RANKINGS, SIGNALS, Query, Ranking
from refold.index.signals import RowText, TextIndex, weigh_signals
from refold.index.terms import terms_of
from refold.text import keywords

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Vectors = NDArray[float32]


# Confidence intervals: the bootstrap, with a fixed seed.

SEED: Final = 20_240_501
RESAMPLES: Final = 2_000


_DRAWN_AT_ONCE: Final = 2_000_000
"""The number of values drawn at once, so that a long list takes no more RAM than a short one."""


class Interval(Struct, frozen=True):
    """The bounds between which 95 of 100 means lie."""

    low: float
    high: float


def interval(values: Sequence[float], seed: int = SEED) -> Interval:
    """Return the middle 95 % of the means of values resampled with replacement; without values, the whole range.

    The same values and seed give the same interval.

    >>> interval([1.0, 1.0, 1.0])
    Interval(low=1.0, high=1.0)
    """
    import numpy  # noqa: PLC0415 - loaded on first use

    if not values:
        return Interval(0.0, 1.0)
    sample = numpy.asarray(values, dtype=numpy.float64)
    random = numpy.random.default_rng(seed)
    step = max(1, _DRAWN_AT_ONCE // len(sample))
    sizes = (min(step, RESAMPLES - begin) for begin in range(0, RESAMPLES, step))
    means = numpy.concatenate(
        [sample[random.integers(0, len(sample), (rows, len(sample)))].mean(axis=1) for rows in sizes]
    )
    low, high = numpy.percentile(means, [2.5, 97.5])
    return Interval(float(low), float(high))


# Vectors of items and questions: computed by an embedder, or read from files.

_KINDS: Final = "fiu"  # NumPy's codes for floating-point numbers and integers.

_NUMBER_MAX: Final = 1e15
"""A product of larger numbers might not be finite, and NaN cannot be ordered."""

_PARTS: Final = (("turns", "messages", "items"), ("questions", "queries"))


class EmbeddedCase(Struct, frozen=True):
    """A case with a vector for each item and each question, and the ``floor_rate`` of their embedder, if known."""

    case: Case
    items: "Vectors"
    questions: "Vectors"
    floor_rate: float = 0.0


EMBEDDERS: Final[dict[str, Callable[[], Embedder]]] = {
    "hashed": HashedEmbedder,
    "minilm": MiniLmEmbedder,
    "wordllama": WordLlamaEmbedder,
}
"""Embedders by their names on the command line."""


def embed_cases(
    cases: Sequence[Case], embedder: Embedder, progress: Callable[[int, int], None] | None = None
) -> list[EmbeddedCase]:
    """Embed the items and questions of cases; ``progress(done, all)`` counts cases."""
    import numpy  # noqa: PLC0415 - loaded only for vectors

    def vectors(texts: list[str]) -> Any:
        return numpy.asarray(embedder.embed(texts), dtype=numpy.float32).reshape(len(texts), embedder.dim)

    all_embedded: list[EmbeddedCase] = []
    for case in cases:
        questions = vectors([question.text for question in case.questions])
        items = vectors([item.text for item in case.items])
        all_embedded.append(EmbeddedCase(case, items, questions, floor_rate(embedder)))
        if progress:
            progress(len(all_embedded), len(cases))
    return all_embedded


def load_vectors(cases: Sequence[Case], folder: Path) -> list[EmbeddedCase]:
    """Return cases with the vectors of a folder: one ``.npy`` of items and one of questions, in the order of the cases.

    Raises ``NotFound`` unless the folder has exactly one of each, and ``InvalidInput`` if they are not numbers, if
    their rows do not match the cases, or if their vectors differ in length.
    """
    sizes = [[len(case.items) for case in cases], [len(case.questions) for case in cases]]
    items, questions = (
        _load_parts(_find_file(folder, names), parts, folder) for names, parts in zip(_PARTS, sizes, strict=True)
    )
    lengths = {rows.shape[1] for rows in (*items, *questions)}
    if len(lengths) > 1:
        raise InvalidInput(
            f"{folder} has vectors of {min(lengths)} and of {max(lengths)} numbers; give those of one embedder"
        )
    return [EmbeddedCase(*each) for each in zip(cases, items, questions, strict=True)]


def _find_file(folder: Path, names: tuple[str, ...]) -> Path:
    paths = [path for path in sorted(folder.glob("*.npy")) if any(name in path.stem for name in names)]
    if len(paths) != 1:
        raise NotFound(f"{folder} has {len(paths)} files *.npy of {' or '.join(names)}; give a folder with exactly one")
    return paths[0]


def _load_parts(path: Path, sizes: list[int], folder: Path) -> "list[Vectors]":
    import numpy  # noqa: PLC0415 - loaded only for vectors

    rows = _load_array(path, folder)
    if rows.ndim != 2 or len(rows) != sum(sizes):  # noqa: PLR2004 - a matrix has two
        raise InvalidInput(
            f"{path.name} in {folder} has shape {rows.shape}; give one row for each of {sum(sizes)} texts"
        )
    if not numpy.isfinite(rows).all() or numpy.abs(rows).max(initial=0) > _NUMBER_MAX:
        raise InvalidInput(
            f"{path.name} in {folder} has numbers that are none or above {_NUMBER_MAX:g}; give finite vectors"
        )
    return numpy.split(rows, numpy.cumsum(sizes)[:-1])


def _load_array(path: Path, folder: Path) -> "Vectors":
    import numpy  # noqa: PLC0415 - loaded only for vectors

    try:
        with path.open("rb") as file:
            array: Any = numpy.load(file)
    except (ValueError, EOFError, MemoryError, BadZipFile) as error:
        raise InvalidInput(
            f"{path.name} in {folder} is no array ({error}); give what numpy.save wrote of numbers"
        ) from error
    kind: Any = getattr(array, "dtype", None)
    if kind is None or kind.kind not in _KINDS:
        raise InvalidInput(f"{path.name} in {folder} holds {kind or 'several arrays'}; give one array of real numbers")
    with numpy.errstate(over="ignore"):
        rows: Vectors = array.astype(numpy.float32)
    return rows


DEPTHS: Final = (1, 5, 10, 20)
ALL: Final = "all"

COMBINATIONS_MAX: Final = 10_000
"""The most combinations that one pass can sweep: for each, it keeps the ranks of all evidence."""

_LAST_RANK: Final = 1_000_000
"""The rank of evidence that a search of messages does not find."""

_DECIMALS: Final = 6
"""Scores that are equal to this many decimals are ordered by row, as in ``TextIndex.best``."""


class System(Struct, frozen=True, kw_only=True):
    """A ranking with its name, whether keywords are stemmed, and whether months count as words of a text.

    ``searches_messages`` is how a system searches messages, as conversations do, instead of ranking memories.
    """

    name: str
    ranking: Ranking
    is_stemmed: bool = False
    is_dated: bool = True
    searches_messages: Literal["", "by words", "by words and vectors"] = ""

    def keywords(self, text: str) -> tuple[str, ...]:
        """Return the keywords of a text; if stemmed, without the most common words, as in studies of the formula."""
        words = keywords(text)
        return tuple(dict.fromkeys(terms_of(" ".join(words), "light")[0])) if self.is_stemmed else words


BASELINES: Final = {
    ranking.name: ranking
    for ranking in (
        replace(RANKINGS["seed"], name="seed-without-recency", recency=0.0),
        replace(RANKINGS["seed"], name="seed-exponential", recency_curve="exponential"),
        Ranking(name="bm25", bm25=1.0, stemmer="light"),
        Ranking(name="idf-cosine", cosine=0.40, idf_cosine=0.25, stemmer="light"),
        Ranking(name="idf-coverage", cosine=0.40, coverage=0.25, stemmer="light", neighbours=(), damping=0.0),
        Ranking(name="cosine", cosine=1.0),
    )
}
"""The rankings of earlier studies by name, for comparison with those that a search accepts by name."""

_NAMED: Final = {**RANKINGS, **BASELINES}
_STEMMED: Final = ("seed", "seed-without-recency", "seed-exponential")

SYSTEMS: Final = (
    *(System(name=name, ranking=ranking) for name, ranking in _NAMED.items()),
    *(System(name=f"{name}, stemmed", ranking=_NAMED[name], is_stemmed=True) for name in _STEMMED),
    System(name="bm25, no dates", ranking=BASELINES["bm25"], is_dated=False),
    System(name="messages", ranking=messages.RANKING, searches_messages="by words"),
    System(name="messages, embedded", ranking=messages.RANKING, searches_messages="by words and vectors"),
)
"""The systems compared unless rankings are named: the presets, the baselines, and the search of messages."""

_PLAIN: Final = System(name="plain", ranking=RANKINGS["hybrid"])


class Answer(Struct, frozen=True):
    """The answer to one question: the rank of each unit of its evidence, starting at 1."""

    category: str
    ranks: tuple[int, ...]

    def recall(self, depth: int) -> float:
        """Return the share of the evidence within the first ``depth`` ranks."""
        return sum(rank <= depth for rank in self.ranks) / len(self.ranks)


class Figures(Struct, frozen=True):
    """The figures of a system for a category of questions: means over the questions, and the interval of the recall."""

    system: str
    category: str
    questions: int
    recall: dict[int, float]
    full: dict[int, float]
    reciprocal_rank: float
    recall_interval: Interval


def answers(embedded: Sequence[EmbeddedCase], system: System) -> list[Answer]:
    """Return a system's answer to every question that has evidence, asked once the question's items have arrived.

    A search of messages answers no questions about memories.
    """
    if system.searches_messages:
        own = [each for each in embedded if each.case.origin != MEMORIES]
        is_embedded = system.searches_messages == "by words and vectors"
        return [answer for each in own for answer in _message_answers(each, is_embedded=is_embedded)]
    return [
        Answer(question.category, ranks(texts.score(query, cosine)[0], texts, each, question))
        for each in embedded
        for question, query, cosine, texts in questions_of(each, system)
    ]


def _grow(texts: TextIndex, embedded: EmbeddedCase, system: System, arrived: int) -> None:
    for row in range(len(texts), arrived):
        item = embedded.case.items[row]
        texts.add(
            row,
            RowText(item.text, item.session, item.occurred_ns if system.is_dated else None),
            keywords=system.keywords(item.text) if item.words is None else item.words,
            importance=item.importance,
            accessed_ns=item.accessed_ns,
        )


def questions_of(
    embedded: EmbeddedCase, system: System
) -> Iterator[tuple[CaseQuestion, Query, "NDArray[float32]", TextIndex]]:
    """Yield every question that has evidence, in order, with its cosines and the rows present at that time.

    Its time is that of the last row: later items neither compete nor count for the rarity of words, and are not
    neighbours yet.
    """
    texts = TextIndex()
    pairs = zip(embedded.case.questions, embedded.questions, strict=True)
    for question, vector in sorted(pairs, key=lambda pair: pair[0].arrived):
        if question.evidence:
            _grow(texts, embedded, system, question.arrived)
            cosine = embedded.items[: len(texts)] @ vector
            now_ns = int(texts.accessed_ns.values.max(initial=0))
            words = system.keywords(question.text)
            query = Query(text=question.text, ranking=system.ranking, now_ns=now_ns, words=words)
            yield question, query, cosine, texts


def ranks(
    total: "NDArray[float32]", texts: TextIndex, embedded: EmbeddedCase, question: CaseQuestion
) -> tuple[int, ...]:
    """Return the ranks of the evidence, unordered; a unit has the rank of its best item.

    Later items are not known yet: an agent's own call is answered from the messages before it.
    """
    units = embedded.case.units
    if units is None:
        return _count_ranks(total, texts, question)
    rows = (row for row, _ in texts.best(total, len(texts)))
    order = dict.fromkeys(units[row] for row in rows if row < question.arrived)
    return tuple(rank for rank, unit in enumerate(order, 1) if unit in question.evidence)


def _count_ranks(total: "NDArray[float32]", texts: TextIndex, question: CaseQuestion) -> tuple[int, ...]:
    """Return the rank of each item by counting the items before it, in the order of ``best``."""
    import numpy  # noqa: PLC0415 - loaded with the first query

    points = numpy.round(total[: question.arrived].astype(numpy.float64), _DECIMALS)
    importance = texts.importance.values[: question.arrived]
    points[list(question.own_places)] = -numpy.inf
    places: list[int] = []
    for row in question.evidence:
        equal = points == points[row]
        more = (points > points[row]) | (equal & (importance > importance[row]))
        places.append(1 + int(more.sum()) + int((equal & (importance == importance[row]))[:row].sum()))
    return tuple(places)


def _message_answers(embedded: EmbeddedCase, *, is_embedded: bool) -> Iterator[Answer]:
    """Yield the answers of ``Conversation.search`` to the questions that have evidence."""
    import numpy  # noqa: PLC0415 - as above

    case, index = embedded.case, messages.MessageIndex()
    index.extend([messages.MessageRow(row, 0, case.name, 0, item.text) for row, item in enumerate(case.items, 1)])
    if is_embedded and len(case.items):
        rows = numpy.flatnonzero(embedded.items.any(axis=1))
        packed = messages.pack_vectors(embedded.items[rows], embedded.items.shape[1])
        index.begin_vectors(embedded.items.shape[1])
        index.add_vectors({(row + 1, 0): vector for row, vector in zip(rows.tolist(), packed, strict=True)})
    for question, vector in zip(case.questions, embedded.questions, strict=True):
        if question.evidence:
            view, length = index.view(question.arrived), float(numpy.linalg.norm(vector))
            among = numpy.ones(question.arrived, numpy.bool_)
            among[list(question.own_places)] = False
            matches = messages.search(
                [view],
                question.text,
                None,
                question.arrived,
                among=[among],
                vector=vector / length if is_embedded and length else None,
                floor_rate=embedded.floor_rate,
            )
            units = case.units
            order = dict.fromkeys(match.seq - 1 if units is None else units[match.seq - 1] for match in matches)
            places = {unit: rank for rank, unit in enumerate(order, 1)}
            yield Answer(question.category, tuple(places.get(unit, _LAST_RANK) for unit in question.evidence))


def figures(system: str, results: Sequence[Answer], depth: int = 10) -> list[Figures]:
    """Return the figures over all questions, then those of each category."""
    kinds = sorted({answer.category for answer in results} - {ALL})
    groups = [(ALL, list(results))] + [(kind, [each for each in results if each.category == kind]) for kind in kinds]
    shown = groups if len({answer.category for answer in results}) > 1 else groups[:1]
    return [_figures(system, kind, group, depth) for kind, group in shown if group]


def _figures(system: str, category: str, group: list[Answer], depth: int) -> Figures:
    depths = sorted({*DEPTHS, depth})
    recalls = {each: [answer.recall(each) for answer in group] for each in depths}
    return Figures(
        system,
        category,
        len(group),
        {each: _mean(recalls[each]) for each in depths},
        {each: _mean([float(part == 1) for part in recalls[each]]) for each in depths},
        _mean([1 / min(answer.ranks) for answer in group]),
        interval(recalls[depth]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def grid_of(base: Ranking, sweep: dict[str, tuple[Any, ...]]) -> list[Ranking]:
    """Return a ranking for every combination of the swept values.

    Raises ``InvalidInput`` for a name that is not a field of a ranking, for a value that the field cannot have, and for
    more than ``COMBINATIONS_MAX`` combinations.

    >>> [ranking.cosine for ranking in grid_of(RANKINGS["hybrid"], {"cosine": (0.4, 0.5)})]
    [0.4, 0.5]
    """
    unknown = sorted(set(sweep) - set(Ranking.__struct_fields__) | ({"name"} & set(sweep)))
    if unknown:
        fields = ", ".join(field for field in Ranking.__struct_fields__ if field != "name")
        raise InvalidInput(f"{unknown[0]!r} is no field of a ranking that can be swept; give one of {fields}")
    columns = [tuple(dict.fromkeys(values)) for values in sweep.values()]
    count = prod(map(len, columns))
    if count > COMBINATIONS_MAX:
        raise InvalidInput(f"the values that are swept have {count:,} combinations; give at most {COMBINATIONS_MAX:,}")
    combinations = (dict(zip(sweep, values, strict=True)) for values in product(*columns))
    labels = ((", ".join(f"{name}={value}" for name, value in values.items()), values) for values in combinations)
    return [replace(base, name=label, **values) for label, values in labels]


def sweep_rankings(
    embedded: Sequence[EmbeddedCase],
    rankings: Sequence[Ranking],
    depth: int = 10,
    progress: Callable[[int, int], None] | None = None,
    *,
    system: System = _PLAIN,
) -> list[Figures]:
    """Return the figures of every ranking over all questions, best first, from one pass over the cases.

    Signals are computed once for each shape; rankings that differ only in their weights share them. ``system``
    determines how texts are read, regardless of its own ranking.
    """
    shapes = _shapes(rankings)
    results: dict[str, list[Answer]] = {ranking.name: [] for ranking in rankings}
    for done, each in enumerate(embedded, 1):
        for question, query, cosine, texts in questions_of(each, system):
            for shape, sharing in shapes.items():
                _, parts = texts.score(replace(query, ranking=shape), cosine)
                for ranking in sharing:
                    answer = ranks(weigh_signals(ranking, parts, texts.size), texts, each, question)
                    results[ranking.name].append(Answer(question.category, answer))
        if progress:
            progress(done, len(embedded))
    summed = [figures(name, group, depth)[0] for name, group in results.items() if group]
    return sorted(summed, key=lambda one: -one.recall[depth])


def _shapes(rankings: Sequence[Ranking]) -> dict[Ranking, list[Ranking]]:
    """Group rankings by shape, each shape with a weight for every signal that any of the rankings uses."""
    signals = {signal for ranking in rankings for signal in ranking.weights()}
    ones = {signal: float(signal in signals) for signal in SIGNALS}
    shapes: dict[Ranking, list[Ranking]] = {}
    for ranking in rankings:
        shapes.setdefault(replace(ranking, name="shape", **ones), []).append(ranking)
    return shapes
