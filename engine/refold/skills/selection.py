"""Selection of skills: which apply to a project and a query, their scores, and their text in a prompt."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from math import isnan, sqrt
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from xml.sax.saxutils import escape, quoteattr

from msgspec import Struct
from msgspec.structs import replace

from refold import checks
from refold.agent.tools import disarm, skill_block
from refold.errors import InvalidInput, NotFound
from refold.index.ranking import Query, Ranking, ranking_of
from refold.index.text import Text, TextIndex
from refold.limits import SKILL_FILE_BYTES_MAX, SKILL_SCORERS_COUNT_MAX, SKILL_WORDS_COUNT_MAX
from refold.skills import files
from refold.skills.format import listed
from refold.skills.skill import ALWAYS, PHASES, Detection, Skill, SkillSummary, summary_of, token_set, tokens
from refold.skills.sources import SkillIndex

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


# Scores: how well a skill answers a query. The seed's formula, and the engine's own rankings. Pure.

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
            raise InvalidInput(
                f"the ranking {ranking.name!r} compares meanings; give an embedder, or take 'words' or 'seed'"
            )
        self._ranking = ranking
        self._vectors = vectors if ranking.cosine else None
        self._texts = TextIndex()
        texts = [text_of(skill) for skill in skills]
        for row, text in enumerate(texts):
            self._texts.add(row, Text(text), importance=0.5)
        self._rows: Any = None if self._vectors is None or not texts else self._vectors(texts)

    def scores(self, query: str) -> Sequence[float]:
        """Return the score of each skill."""
        if not self._texts.size:
            return []
        cosine = None if self._rows is None or self._vectors is None else self._rows @ self._vectors([query])[0]
        total, _ = self._texts.score(Query(text=query, ranking=self._ranking, words=()), cosine)
        return [float(number) for number in total]


def text_of(skill: Skill) -> str:
    """Return what of a skill is compared, and embedded: what a model sees of it before it is used."""
    tags = f" ({', '.join(skill.tags)})" if skill.tags else ""
    return f"{skill.name}. {skill.description}{tags}"


def scorer_of(ranking: object, index: SkillIndex, vectors: Vectors | None) -> Scorer:
    """Return what scores skills by a ranking: ``"seed"``, ``"words"``, ``"hybrid"``, or a ``Ranking``."""
    if ranking == SEED:
        return SeedScorer(index)
    found = RANKINGS.get(ranking) if isinstance(ranking, str) else None
    return RankedScorer(index.skills, found or ranking_of(ranking), vectors)


# Detection: which skills apply to a project, by the files that are there and what stands in them.


class DetectedSkill(Struct, frozen=True):
    """A skill that applies to a project, and what gave it away."""

    skill_id: str
    name: str
    source: str
    priority: int
    matched_files: tuple[str, ...]
    matched_patterns: tuple[str, ...]
    inject_into: tuple[str, ...]


def detect_skills(skills: Iterable[Skill], project: str) -> tuple[DetectedSkill, ...]:
    """Return the skills that apply to a project, the highest priority first, then by name.

    A skill applies if one of its files is in the root of the project and, where it has patterns, one of them stands in
    such a file, as it is written. A file over ``SKILL_FILE_BYTES_MAX`` is looked into up to there.

    >>> detect_skills((), ".")
    ()
    """
    looks: dict[str, bytes | None] = {}
    found = [detected for skill in skills if (detected := _detected(skill, project, looks)) is not None]
    return tuple(sorted(found, key=lambda detected: (-detected.priority, detected.name)))


def _detected(skill: Skill, project: str, looks: dict[str, bytes | None]) -> DetectedSkill | None:
    rules = skill.detect
    if rules is None:
        return None
    files = {name: content for name in rules.files if (content := _file_content(project, name, looks)) is not None}
    patterns = tuple(pattern for pattern in rules.patterns if _stands(pattern, files.values()))
    if not files or (rules.patterns and not patterns):
        return None
    matched = tuple(name for name in files if not rules.patterns or _stands_any(rules, files[name]))
    return DetectedSkill(skill.id, skill.name, skill.source, skill.priority, matched, patterns, skill.inject_into)


def _stands(pattern: str, contents: Iterable[bytes]) -> bool:
    return any(pattern.encode(errors="replace") in content for content in contents)


def _stands_any(rules: Detection, content: bytes) -> bool:
    return any(_stands(pattern, (content,)) for pattern in rules.patterns)


def _file_content(project: str, name: str, looks: dict[str, bytes | None]) -> bytes | None:
    """Return what stands in a file of the project, ``None`` where there is none; each is read once."""
    if name not in looks:
        try:
            path = files.inside(project, name)
            looks[name] = files.read(path)[:SKILL_FILE_BYTES_MAX] if files.looked_at(path) else None
        except (InvalidInput, OSError):
            looks[name] = None
    return looks[name]


# Selection: which skills are put before a model, for a query and a phase. Pure.

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
    ``"words"``, ``"hybrid"`` or a ``Ranking``.
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
            raise InvalidInput(
                f"min_score is {checks.shown(self.min_score)}; give a number, or None for that of the ranking"
            )

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
            raise NotFound(f"there is no skill {checks.shown(name)}; `refold skills list` shows those that there are")
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
        raise InvalidInput(f"phase is {checks.shown(phase)}; give one of {', '.join(PHASES)}, or None for any")
    return phase


def _passes(skill: Skill, policy: SelectionPolicy, phase: str | None) -> bool:
    if phase is not None and phase not in skill.inject_into and ALWAYS not in skill.inject_into:
        return False
    tags = {tag.lower() for tag in skill.tags}
    if any(tag.lower() in tags for tag in policy.exclude_tags):
        return False
    return not policy.include_tags or any(tag.lower() in tags for tag in policy.include_tags)


_HEAD: Final = "## Framework-Specific Best Practices"
_LEAD: Final = "The following guidelines apply based on detected frameworks:"
_RULE: Final = re.compile(r"^[ \t]{0,3}(?:(?:-[ \t]*+){3,}+|(?:=[ \t]*+){3,}+)$")
_HEADING: Final = re.compile(r"^([ \t]{0,3})(#{1,3})(?=[ \t]|$)")
_SOURCE: Final = re.compile(r"^([ \t]{0,3})\*(?=Source:)")
_TAG: Final = re.compile(r"<(?=\s*(?:/\s*)?(?:skill|available_skills))", re.IGNORECASE)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def inject_skills(matches: Sequence[SkillMatch], policy: SelectionPolicy | None = None) -> str:
    """Return skills as a section of a prompt, each cut to so many lines and characters; nothing for none.

    A line that would end a skill, or begin another one, is written so that it is text: rules as ``* * *``, headings
    one to three levels lower.
    """
    if not matches:
        return ""
    bounds = SelectionPolicy() if policy is None else policy
    parts = [_section(match.skill, match.body, bounds) for match in matches]
    return "\n".join((_HEAD, "", _LEAD, "", *parts))


def _section(skill: SkillSummary, body: str, bounds: SelectionPolicy) -> str:
    source = f"{skill.source_name} ({skill.source})" if skill.source_name else skill.source
    about = f"*Source: {_line(source)} | Priority: {skill.priority}*"
    shown = truncated(_as_text(body), bounds.max_content_lines, bounds.max_chars)
    return f"### {_line(skill.name)}\n{about}\n\n{shown}\n\n---\n"


def _line(text: str) -> str:
    """Return a text on one line, as a title."""
    return " ".join(_CONTROLS.sub(" ", text).split())


def _as_text(body: str) -> str:
    """Return a body whose lines are neither rules nor headings of the section around it."""
    lines: list[str] = []
    for line in _CONTROLS.sub("", body).strip().splitlines():
        if _RULE.match(line):
            lines.append("* * *")
            continue
        lowered = _HEADING.sub(lambda found: f"{found[1]}###{found[2]}", line)
        lines.append(_SOURCE.sub(r"\1\\*", lowered))
    return "\n".join(lines)


def truncated(text: str, lines_max: int, chars_max: int) -> str:
    r"""Return a text cut to so many lines and characters, with a note that says how much is missing.

    >>> truncated("a\nb\nc", 2, 100)
    'a\nb\n\n*... (truncated, 1 more lines)*'
    """
    lines = text.splitlines()
    ends = accumulate(len(line) + 1 for line in lines[:lines_max])
    kept = [line for line, end in zip(lines, ends, strict=False) if end - 1 <= chars_max]
    if len(kept) == len(lines):
        return text
    if not kept and lines_max and chars_max:
        kept = [lines[0][:chars_max]]
    return "\n".join((*kept, "", f"*... (truncated, {len(lines) - len(kept)} more lines)*")).lstrip("\n")


def inject_message(text: str, matches: Sequence[SkillMatch], policy: SelectionPolicy | None = None) -> str:
    """Return a user's message with skills before it, each between ``[skill:NAME]`` and ``[/skill]``.

    Each body is cut to ``max_chars``; a bracket in it that would open or close a skill becomes a parenthesis.
    """
    bounds = SelectionPolicy() if policy is None else policy
    parts = [f"{skill_block(match.skill.name, disarm(match.body)[: bounds.max_chars])}\n\n" for match in matches]
    return "".join((*parts, checks.text(text, "text")))


def inject_into_messages(
    messages: Sequence[dict[str, Any]], matches: Sequence[SkillMatch], policy: SelectionPolicy | None = None
) -> list[dict[str, Any]]:
    """Return messages, as providers take them, with skills before the text of the last one of the user.

    Nothing of what was given is changed; without skills, or without a user's text, the messages are returned as a list.
    """
    changed = list(messages)
    for place in range(len(changed) - 1, -1, -1):
        if changed[place].get("role") == "user" and matches:
            changed[place] = changed[place] | {
                "content": _content_with_skills(changed[place].get("content"), matches, policy)
            }
            break
    return changed


def _content_with_skills(content: Any, matches: Sequence[SkillMatch], policy: SelectionPolicy | None) -> Any:
    if isinstance(content, str):
        return inject_message(content, matches, policy)
    if not isinstance(content, list):
        return content
    parts: list[Any] = list(content)  # pyright: ignore[reportUnknownArgumentType] - what others wrote may be anything
    for place, part in enumerate(parts):
        if isinstance(part, dict) and part.get("type") == "text":  # pyright: ignore[reportUnknownMemberType]
            given: dict[str, Any] = part  # pyright: ignore[reportUnknownVariableType]
            parts[place] = given | {"text": inject_message(str(given.get("text", "")), matches, policy)}
            break
    return parts


# For models that choose skills themselves.


def catalog(skills: Iterable[SkillSummary | Skill]) -> str:
    """Return the skills that a model may call for, with names, descriptions and places, as XML; nothing for none."""
    entries = [
        f"<skill><name>{_xml(skill.name)}</name><description>{_xml(skill.description)}</description>"
        f"<location>{_xml(skill.path)}</location></skill>"
        for skill in skills
        if skill.model_invocable and skill.enabled
    ]
    return "\n".join(("<available_skills>", *entries, "</available_skills>")) if entries else ""


def activation(skill: Skill, resources: Sequence[str] = ()) -> str:
    """Return a skill that a model called for: its body and the names of the files beside it, wrapped."""
    body = _TAG.sub("&lt;", _CONTROLS.sub("", skill.body).strip())
    files = "".join(f"<file>{_xml(name)}</file>\n" for name in resources)
    listed = f"<skill_resources>\n{files}</skill_resources>\n" if files else ""
    return f"<skill_content name={quoteattr(_line(skill.name))}>\n{body}\n{listed}</skill_content>"


def _xml(text: str) -> str:
    return escape(_line(text))
