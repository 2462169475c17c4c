"""What rankings find: for every question, where its evidence stands in the order in which a ranking gives items."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from refold.errors import InvalidInput
from refold.measuring.cases import Question
from refold.measuring.intervals import Interval, interval
from refold.measuring.vectors import Embedded
from refold.rank import RANKINGS, SIGNALS, Columns, Query, Ranking, best, score
from refold.rank.stemming import terms_of
from refold.text import keywords

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

DEPTHS: Final = (1, 5, 10, 20)
IMPORTANCE: Final = 0.5
"""Public sets have no importance, so everything has the same."""

ALL: Final = "all"

COMBINATIONS_MAX: Final = 10_000
"""So many settings can be swept in one pass: the places of all evidence are kept for each."""

_DECIMALS: Final = 6
"""Scores that are equal to so many decimals stand in the order of their rows, as in ``refold.rank.best``."""


def _stemmed(text: str) -> tuple[str, ...]:
    """Return the keywords of a text without the commonest words and stemmed, as studies of the formula took them."""
    return tuple(dict.fromkeys(terms_of(" ".join(keywords(text)), "light")[0]))


class System(Struct, frozen=True, kw_only=True):
    """A ranking under its name, whether keywords are stemmed, and whether months count as words of a text."""

    name: str
    ranking: Ranking
    is_stemmed: bool = False
    is_dated: bool = True

    def keywords(self, text: str) -> tuple[str, ...]:
        """Return the keywords of a text."""
        return _stemmed(text) if self.is_stemmed else keywords(text)


_STEMMED: Final = ("seed", "seed-without-recency", "seed-exponential")

SYSTEMS: Final = (
    *(System(name=name, ranking=ranking) for name, ranking in RANKINGS.items()),
    *(System(name=f"{name}, stemmed", ranking=RANKINGS[name], is_stemmed=True) for name in _STEMMED),
    System(name="bm25, no dates", ranking=RANKINGS["bm25"], is_dated=False),
    System(name="cosine", ranking=Ranking(name="cosine", cosine=1.0)),
)
"""What is compared unless rankings are named: the presets, and the baselines of earlier studies."""

_PLAIN: Final = System(name="plain", ranking=RANKINGS["hybrid"])


class Answer(Struct, frozen=True):
    """One question's answer: from 1 on, the place of each unit of its evidence in the order."""

    category: str
    ranks: tuple[int, ...]

    def recall(self, depth: int) -> float:
        """Return which part of the evidence is among the first."""
        return sum(rank <= depth for rank in self.ranks) / len(self.ranks)


class Figures(Struct, frozen=True):
    """What a system found for the questions of a category: means over questions, and the interval of the recall."""

    system: str
    category: str
    questions: int
    recall: dict[int, float]
    full: dict[int, float]
    reciprocal_rank: float
    recall_interval: Interval


def answers(embedded: Sequence[Embedded], system: System) -> list[Answer]:
    """Return the answer of a system to every question that has evidence, asked when its items have arrived."""
    found: list[Answer] = []
    for each in embedded:
        for question, query, columns in asked(each, system):
            total, _ = score(system.ranking, query, columns)
            found.append(Answer(question.category, ranks(total, columns, each, question)))
    return found


def columns_of(embedded: Embedded, system: System) -> Columns:
    """Return the items of a case as rows that rankings score."""
    columns = Columns()
    _grow(columns, embedded, system, len(embedded.case.items))
    return columns


def _grow(columns: Columns, embedded: Embedded, system: System, arrived: int) -> None:
    """Let items arrive until there are so many."""
    for row in range(len(columns), arrived):
        item = embedded.case.items[row]
        columns.add(
            row,
            item.text,
            keywords=system.keywords(item.text),
            importance=IMPORTANCE,
            accessed_ns=item.accessed_ns,
            session=item.session,
            occurred_ns=item.occurred_ns if system.is_dated else None,
        )


def asked(embedded: Embedded, system: System) -> Iterator[tuple[Question, Query, Columns]]:
    """Yield every question that has evidence, the first asked first, with the rows that are there then.

    It is asked at the moment of the last of them: what comes later neither competes nor says how rare a word is, and no
    neighbour stands there yet.
    """
    columns = Columns()
    pairs = zip(embedded.case.questions, embedded.questions, strict=True)
    for question, vector in sorted(pairs, key=lambda pair: pair[0].arrived):
        if question.evidence:
            _grow(columns, embedded, system, question.arrived)
            cosine = embedded.items[: len(columns)] @ vector
            now_ns = int(columns.accessed_ns().max(initial=0))
            words = system.keywords(question.text)
            yield question, Query(text=question.text, keywords=words, now_ns=now_ns, cosine=cosine), columns


def ranks(total: "NDArray[float32]", columns: Columns, embedded: Embedded, question: Question) -> tuple[int, ...]:
    """Return where the evidence stands, in no order; a unit stands where its best item does.

    What comes after the question is not known yet: an agent's own call is answered from what was said before it.
    """
    units = embedded.case.units
    if units is None:
        return _counted(total, question)
    rows = (row for row, _ in best(total, columns, len(columns)))
    order = dict.fromkeys(units[row] for row in rows if row < question.arrived)
    return tuple(rank for rank, unit in enumerate(order, 1) if unit in question.evidence)


def _counted(total: "NDArray[float32]", question: Question) -> tuple[int, ...]:
    """Return the ranks of items by counting who stands before each, as ``best`` orders those of one importance."""
    import numpy  # noqa: PLC0415 - loads when the first query comes

    points = numpy.round(total[: question.arrived].astype(numpy.float64), _DECIMALS)
    return tuple(
        1 + int((points > points[row]).sum()) + int((points[:row] == points[row]).sum()) for row in question.evidence
    )


def figures(system: str, found: Sequence[Answer], depth: int = 10) -> list[Figures]:
    """Return the figures over all questions, then those of each category."""
    kinds = sorted({answer.category for answer in found})
    groups = [(ALL, list(found))] + [(kind, [each for each in found if each.category == kind]) for kind in kinds]
    return [_figures(system, kind, group, depth) for kind, group in groups if group and (kind == ALL or len(kinds) > 1)]


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
    """Return a ranking for every combination of the values that are swept.

    Raises ``InvalidInput`` for a name that is no field of a ranking, for a value that the field cannot have, and for
    more than ``COMBINATIONS_MAX`` combinations.

    >>> [ranking.cosine for ranking in grid_of(RANKINGS["hybrid"], {"cosine": (0.4, 0.5)})]
    [0.4, 0.5]
    """
    unknown = sorted(set(sweep) - set(Ranking.__struct_fields__) | ({"name"} & set(sweep)))
    if unknown:
        fields = ", ".join(field for field in Ranking.__struct_fields__ if field != "name")
        message = f"{unknown[0]!r} is no field of a ranking that can be swept; give one of {fields}"
        raise InvalidInput(message)
    given = [tuple(dict.fromkeys(values)) for values in sweep.values()]
    count = prod(map(len, given))
    if count > COMBINATIONS_MAX:
        message = f"the values that are swept have {count:,} combinations; give at most {COMBINATIONS_MAX:,}"
        raise InvalidInput(message)
    combinations = (dict(zip(sweep, values, strict=True)) for values in product(*given))
    return [replace(base, name=_said(values), **values) for values in combinations]


def _said(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def swept(
    embedded: Sequence[Embedded],
    rankings: Sequence[Ranking],
    depth: int = 10,
    progress: Callable[[int, int], None] | None = None,
    *,
    system: System = _PLAIN,
) -> list[Figures]:
    """Return the figures of every ranking over all questions, the best first, from one pass over the cases.

    Signals are computed once for each shape; rankings that differ in their weights alone share them. ``system`` says
    how texts are taken, whatever its own ranking.
    """
    shapes = _shapes(rankings)
    found: dict[str, list[Answer]] = {ranking.name: [] for ranking in rankings}
    for done, each in enumerate(embedded, 1):
        for question, query, columns in asked(each, system):
            for shape, sharing in shapes.items():
                _, parts = score(shape, query, columns)
                for ranking in sharing:
                    answer = ranks(_weighed(ranking, parts), columns, each, question)
                    found[ranking.name].append(Answer(question.category, answer))
        if progress:
            progress(done, len(embedded))
    summed = [figures(name, group, depth)[0] for name, group in found.items() if group]
    return sorted(summed, key=lambda one: -one.recall[depth])


def _shapes(rankings: Sequence[Ranking]) -> dict[Ranking, list[Ranking]]:
    """Return the rankings by their shapes, each with a weight for every signal that any of them weighs."""
    signals = {signal for ranking in rankings for signal in ranking.weights()}
    ones = {signal: float(signal in signals) for signal in SIGNALS}
    shapes: dict[Ranking, list[Ranking]] = {}
    for ranking in rankings:
        shapes.setdefault(replace(ranking, name="shape", **ones), []).append(ranking)
    return shapes


def _weighed(ranking: Ranking, parts: "dict[str, NDArray[float32]]") -> "NDArray[float32]":
    import numpy  # noqa: PLC0415 - loads when the first query comes

    total = numpy.zeros_like(next(iter(parts.values())))
    for signal, weight in ranking.weights().items():
        total += numpy.float32(weight) * parts[signal]
    return total
