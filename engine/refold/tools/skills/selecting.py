"""Selection: which skills are put before a model, for a query and a phase. Pure."""

from collections.abc import Callable, Iterable, Sequence
from math import isnan
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from refold import checks
from refold.errors import InvalidInput, NotFound
from refold.tools.skills.index import SkillIndex
from refold.tools.skills.limits import SKILL_SCORERS_COUNT_MAX
from refold.tools.skills.scoring import SEED, Scorer, Vectors, scorer_of
from refold.tools.skills.skill import ALWAYS, PHASES, Skill, SkillSummary, summary_of
from refold.tools.skills.writing import listed

DETECTED_SCORE: Final = 100.0
"""The score of what was detected or forced: above all that a query may give."""

AUTO_DETECTED: Final = "auto_detected"
LEXICAL: Final = "lexical"
USER_FORCED: Final = "user_forced"
_DECIMALS: Final = 6


class SelectionPolicy(Struct, frozen=True, kw_only=True):
    """How many skills are selected, and which.

    ``min_score`` belongs to the ranking: that of ``"seed"`` by default, and 0 for the others unless it is given. A
    skill needs one of ``include_tags``, if there are any, and none of ``exclude_tags``, in whatever case.
    ``max_content_lines`` and ``max_chars`` bound what is injected of each skill. ``ranking`` is ``"seed"``,
    ``"words"``, ``"hybrid"`` or a ``refold.Ranking``.
    """

    top_k: int = 3
    min_score: float | None = None
    include_tags: tuple[str, ...] = ()
    exclude_tags: tuple[str, ...] = ()
    max_content_lines: int = 200
    max_chars: int = 4_000
    ranking: object = SEED

    def __post_init__(self) -> None:
        """Refuse counts below 0, a score that is no number, and one tag in the place of several."""
        for field in ("top_k", "max_content_lines", "max_chars"):
            checks.count(getattr(self, field), field)
        for field in ("include_tags", "exclude_tags"):
            listed(getattr(self, field), field)
        if self.min_score is not None and not _is_number(self.min_score):
            message = f"min_score is {checks.shown(self.min_score)}; give a number, or None for that of the ranking"
            raise InvalidInput(message)

    @property
    def least(self) -> float:
        """The score that a skill needs."""
        if self.min_score is not None:
            return self.min_score
        return 1.0 if self.ranking == SEED else 0.0


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not isnan(value)


class SkillMatch(Struct, frozen=True):
    """A selected skill: its score, why it was selected (``auto_detected``, ``lexical``, ``user_forced``), and itself.

    ``query`` is what it was found by, empty where it was not.
    """

    score: float
    match_reason: str
    query: str
    skill: SkillSummary
    body: str


class Selector:
    """Selects from an index; what a ranking computes of the index is kept for the next query.

    >>> Selector(SkillIndex(())).select("anything")
    ()
    """

    def __init__(self, index: SkillIndex, *, vectors: Vectors | None = None) -> None:
        self.index = index
        self._vectors = vectors
        self._scorers: dict[str, Scorer] = {}

    def select(
        self,
        query: str,
        *,
        policy: SelectionPolicy | None = None,
        phase: str | None = None,
        detected: Iterable[str] = (),
        forced: Iterable[str] = (),
        is_enabled: Callable[[Skill], bool] | None = None,
    ) -> tuple[SkillMatch, ...]:
        """Return the skills to put before a model: forced ones, then detected ones, then those that answer the query.

        ``detected`` and ``forced`` are names. What was forced is taken whatever its tags, its phase and the count, and
        raises ``NotFound`` where there is no such skill; detected ones come before others within ``top_k``. Ties stand
        by priority, the higher first, then by name. An empty query finds nothing unless tags are asked for.
        """
        chosen = SelectionPolicy() if policy is None else policy
        at_phase = checked_phase(phase)
        wanted = {skill.name: skill for skill in map(self._known, forced)}
        allowed = [
            skill
            for skill in self.index.skills
            if skill.name not in wanted and _passes(skill, chosen, at_phase) and (not is_enabled or is_enabled(skill))
        ]
        named = set(detected)
        found = [match_of(skill, DETECTED_SCORE, AUTO_DETECTED) for skill in allowed if skill.name in named]
        rest = [skill for skill in allowed if skill.name not in named]
        found += self._answering(checks.text(query, "query"), rest, chosen)
        return (*(match_of(skill, DETECTED_SCORE, USER_FORCED) for skill in wanted.values()), *found[: chosen.top_k])

    def _known(self, name: str) -> Skill:
        skill = self.index.get(name)
        if skill is None:
            message = f"there is no skill {checks.shown(name)}; `refold skills list` shows those that there are"
            raise NotFound(message)
        return skill

    def _answering(self, query: str, skills: Sequence[Skill], policy: SelectionPolicy) -> list[SkillMatch]:
        if not query.strip():
            return [match_of(skill, 0.0, LEXICAL) for skill in skills] if policy.include_tags else []
        scores = self._scorer(policy.ranking).scores(query)
        by_name = {
            skill.name: round(number, _DECIMALS) for skill, number in zip(self.index.skills, scores, strict=True)
        }
        good = [skill for skill in skills if (number := by_name[skill.name]) > 0 and number >= policy.least]
        good.sort(key=lambda skill: (-by_name[skill.name], -skill.priority, skill.name))
        return [match_of(skill, by_name[skill.name], LEXICAL, query) for skill in good[: policy.top_k]]

    def _scorer(self, ranking: object) -> Scorer:
        key = ranking if isinstance(ranking, str) else repr(ranking)
        if key not in self._scorers:
            if len(self._scorers) >= SKILL_SCORERS_COUNT_MAX:
                self._scorers.clear()
            self._scorers[key] = scorer_of(ranking, self.index, self._vectors)
        return self._scorers[key]


def match_of(skill: Skill, score: float, reason: str, query: str = "") -> SkillMatch:
    """Return a selected skill."""
    summary = summary_of(skill, detected=reason == AUTO_DETECTED)
    return SkillMatch(score, reason, query, summary, skill.body)


def with_settings(policy: SelectionPolicy, index: SkillIndex) -> SelectionPolicy:
    """Return a policy with the counts that the configuration of an index sets."""
    settings = index.settings
    return replace(policy, top_k=settings.max_skills, max_content_lines=settings.max_content_lines)


def checked_phase(phase: str | None) -> str | None:
    """Return a phase that there is; raises ``InvalidInput`` for any other."""
    if phase is not None and phase not in PHASES:
        message = f"phase is {checks.shown(phase)}; give one of {', '.join(PHASES)}, or None for any"
        raise InvalidInput(message)
    return phase


def _passes(skill: Skill, policy: SelectionPolicy, phase: str | None) -> bool:
    if phase is not None and phase not in skill.inject_into and ALWAYS not in skill.inject_into:
        return False
    tags = {tag.lower() for tag in skill.tags}
    if any(tag.lower() in tags for tag in policy.exclude_tags):
        return False
    return not policy.include_tags or any(tag.lower() in tags for tag in policy.include_tags)
