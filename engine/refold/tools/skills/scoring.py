"""Scores: how well a skill answers a query. The seed's formula, and the engine's own rankings. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from refold.errors import InvalidInput
from refold.rank import Columns, Query, Ranking, ranking_of, score
from refold.tools.skills.index import SkillIndex
from refold.tools.skills.limits import SKILL_WORDS_COUNT_MAX
from refold.tools.skills.skill import Skill
from refold.tools.skills.words import token_set, tokens

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

_WEIGHTS: Final = (("name", 4.0), ("description", 2.5), ("tags", 2.0), ("body", 1.0))


SEED: Final = "seed"
"""The formula of other programs: words of the query in name, description, tags and body, over the root of the body."""

Vectors: TypeAlias = Callable[[Sequence[str]], "NDArray[float32]"]
"""Vectors of texts, one row of length 1 for each."""

RANKINGS: Final = {
    "words": Ranking(name="words", bm25=1.0, bm25_saturation=1.2, bm25_length=0.75),
    "hybrid": Ranking(
        name="hybrid", cosine=0.5, coverage=0.5, stemmer="light", neighbours=(), damping=0.4, pivot_terms=20.0
    ),
}
"""The better ways, found best for skills: by words alone, and by words and meaning."""


class Scorer(Protocol):
    """What gives every skill of an index its score."""

    def scores(self, query: str) -> Sequence[float]:
        """Return the score of each skill, in the order of the index."""
        ...


class SeedScorer:
    """The seed's formula over an index: 4.0 name, 2.5 description, 2.0 tags, 1.0 body, over the root of the body.

    A word that stands twice in a query counts twice; the body counts by its different words, one at least.
    """

    def __init__(self, index: SkillIndex) -> None:
        self._held = [
            tuple((weight, _words(index, skill, field)) for field, weight in _WEIGHTS) for skill in index.skills
        ]
        self._lengths = [sqrt(max(1, len(fields[-1][1]))) for fields in self._held]
        self._weights: dict[str, list[tuple[int, float]]] = {}
        """What a word gives the skills that have it, found out when it is first asked for."""

    def scores(self, query: str) -> Sequence[float]:
        """Return the score of each skill."""
        found = [0.0] * len(self._held)
        for token, repeats in Counter(tokens(query)).items():
            for row, weight in self._weights_of(token):
                found[row] += weight * repeats
        return found

    def _weights_of(self, token: str) -> list[tuple[int, float]]:
        weights = self._weights.get(token)
        if weights is None:
            if len(self._weights) >= SKILL_WORDS_COUNT_MAX:
                self._weights.clear()
            weights = self._weights[token] = list(self._weighed(token.encode()))
        return weights

    def _weighed(self, token: bytes) -> Iterator[tuple[int, float]]:
        for row, (fields, length) in enumerate(zip(self._held, self._lengths, strict=True)):
            weight = sum(weight for weight, held in fields if token in held)
            if weight:
                yield row, weight / length


def _words(index: SkillIndex, skill: Skill, field: str) -> frozenset[bytes]:
    known = index.words.get(skill.id) if field == "body" else None
    return token_set(" ".join(skill.tags) if field == "tags" else getattr(skill, field)) if known is None else known


class RankedScorer:
    """One of the engine's rankings over name, description and tags; the cosine comes from vectors of the same texts."""

    def __init__(self, skills: Sequence[Skill], ranking: Ranking, vectors: Vectors | None) -> None:
        if ranking.cosine and vectors is None:
            message = f"the ranking {ranking.name!r} compares meanings; give an embedder, or take 'words' or 'seed'"
            raise InvalidInput(message)
        self._ranking = ranking
        self._vectors = vectors if ranking.cosine else None
        self._columns = Columns()
        texts = [text_of(skill) for skill in skills]
        for row, text in enumerate(texts):
            self._columns.add(row, text, keywords=(), importance=0.5, accessed_ns=0)
        self._rows: Any = None if self._vectors is None or not texts else self._vectors(texts)

    def scores(self, query: str) -> Sequence[float]:
        """Return the score of each skill."""
        if not self._columns.size:
            return []
        cosine = None if self._rows is None or self._vectors is None else self._rows @ self._vectors([query])[0]
        total, _ = score(self._ranking, Query(text=query, keywords=(), cosine=cosine), self._columns)
        return [float(number) for number in total]


def text_of(skill: Skill) -> str:
    """Return what of a skill is compared, and embedded: what a model sees of it before it is used."""
    tags = f" ({', '.join(skill.tags)})" if skill.tags else ""
    return f"{skill.name}. {skill.description}{tags}"


def scorer_of(ranking: object, index: SkillIndex, vectors: Vectors | None) -> Scorer:
    """Return what scores skills by a ranking: ``"seed"``, ``"words"``, ``"hybrid"``, or a ``refold.Ranking``."""
    if ranking == SEED:
        return SeedScorer(index)
    found = RANKINGS.get(ranking) if isinstance(ranking, str) else None
    return RankedScorer(index.skills, found or ranking_of(ranking), vectors)
