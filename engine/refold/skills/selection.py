"""Selection of the skills that apply to a project and a query, their scores, and their text in a prompt."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from math import isnan, sqrt
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from xml.sax.saxutils import escape, quoteattr

from msgspec import Struct
from msgspec.structs import replace

from refold import checks
from refold.agent.excerpts import excerpt
from refold.agent.parts import disarm, one_line, skill_block, strip_controls
from refold.errors import InvalidInput, NotFound
from refold.index.ranking import Query, Ranking, ranking_of
from refold.index.signals import RowText, TextIndex
from refold.limits import SKILL_FILE_BYTES_MAX, SKILL_SCORERS_COUNT_MAX, SKILL_WORDS_COUNT_MAX
from refold.skills import files
from refold.skills.format import ALWAYS, PHASES, Detection, Skill, SkillSummary, as_list, summary_of
from refold.skills.sources import SkillIndex, token_set, tokens
from refold.skills.words import WordScorer

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


# Scores: by the words of a message, by the seed formula, and by the engine's own rankings.

# The default: it finds skills that it was not tuned for, and nothing for small talk.
WORDS: Final = "words"
# The formula of other programs: query words in name, description, tags and body, over the root of the body's size.
SEED: Final = "seed"
_SEED_WEIGHTS: Final = (("name", 4.0), ("description", 2.5), ("tags", 2.0), ("body", 1.0))

Vectors: TypeAlias = Callable[[Sequence[str]], "NDArray[float32]"]  # Vectors of texts, one row of length 1 for each.

# The ranking by words and meaning that proved best for skills; it has no floor.
_HYBRID: Final = Ranking(
    name="hybrid", cosine=0.5, coverage=0.5, stemmer="light", neighbours=(), damping=0.4, pivot_terms=20.0
)


class SeedScorer:
    """The seed formula over an index: 4.0 name, 2.5 description, 2.0 tags, 1.0 body, over the root of the body's size.

    A word that occurs twice in a query counts twice. The size of a body is the number of its distinct words, at least
    one.
    """

    def __init__(self, index: SkillIndex) -> None:
        self._fields = [
            tuple((weight, _words(skill, field)) for field, weight in _SEED_WEIGHTS) for skill in index.skills
        ]
        self._lengths = [sqrt(max(1, len(fields[-1][1]))) for fields in self._fields]
        self._weights: dict[str, list[tuple[int, float]]] = {}
        """For each word, its weights for the skills that have it, by row; filled by queries."""

    def scores(self, query: str) -> Sequence[float]:
        """Score each skill, in the order of the index."""
        totals = [0.0] * len(self._fields)
        for token, repeats in Counter(tokens(query)).items():
            weights = self._weights.get(token)
            if weights is None:
                if len(self._weights) >= SKILL_WORDS_COUNT_MAX:
                    self._weights.clear()
                word = token.encode()
                sums = (sum(weight for weight, words in fields if word in words) for fields in self._fields)
                pairs = zip(sums, self._lengths, strict=True)
                weights = [(row, weight / length) for row, (weight, length) in enumerate(pairs) if weight]
                self._weights[token] = weights
            for row, weight in weights:
                totals[row] += weight * repeats
        return totals

    def parts(self, query: str, row: int) -> dict[str, float]:
        """Compute the contribution of each word of a query to the score of a skill."""
        self.scores(query)
        weights = {token: dict(self._weights.get(token, ())).get(row, 0.0) for token in tokens(query)}
        return {token: weight * tokens(query).count(token) for token, weight in weights.items() if weight}


def _words(skill: Skill, field: str) -> frozenset[bytes]:
    return token_set(" ".join(skill.tags) if field == "tags" else getattr(skill, field))


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
            self._texts.add(row, RowText(text), importance=0.5)
        self._rows: Any = None if self._vectors is None or not texts else self._vectors(texts)

    def scores(self, query: str) -> Sequence[float]:
        """Score each skill, in the order of the index."""
        return [float(number) for number in self._score_rows(query)[0]] if self._texts.size else []

    def parts(self, query: str, row: int) -> dict[str, float]:
        """Compute the contribution of each signal to the score of a skill."""
        signals, weights = self._score_rows(query)[1], self._ranking.weights()
        return {name: weights.get(name, 0.0) * float(numbers[row]) for name, numbers in signals.items()}

    def _score_rows(self, query: str) -> "tuple[Any, Any]":
        cosine = None if self._rows is None or self._vectors is None else self._rows @ self._vectors([query])[0]
        return self._texts.score(Query(text=query, ranking=self._ranking, words=()), cosine)


def text_of(skill: Skill) -> str:
    """Join the fields of a skill that are compared and embedded: those that a model sees before it uses the skill."""
    tags = f" ({', '.join(skill.tags)})" if skill.tags else ""
    return f"{skill.name}. {skill.description}{tags}"


# Detection: the skills that apply to a project, by its files and their content.


class DetectedSkill(Struct, frozen=True):
    """A skill that applies to a project, and the evidence: files, patterns, and which pattern is in which file."""

    skill_id: str
    name: str
    source: str
    priority: int
    matched_files: tuple[str, ...]
    matched_patterns: tuple[str, ...]
    inject_into: tuple[str, ...]
    matches: tuple[tuple[str, str], ...] = ()  # Pairs of a file and a pattern in it.


def detect_skills(skills: Iterable[Skill], project: str) -> tuple[DetectedSkill, ...]:
    """Find the skills that apply to a project, the highest priority first, then by name.

    A skill applies if one of its files is in the root of the project and, if it has patterns, one of them occurs
    literally in such a file. Only the first `SKILL_FILE_BYTES_MAX` bytes of a file are searched.

    >>> detect_skills((), ".")
    ()
    """
    contents: dict[str, bytes | None] = {}
    detected: list[DetectedSkill] = []
    for skill in skills:
        rules = skill.detect or Detection()
        files = {name: content for name in rules.files if (content := _content(project, name, contents)) is not None}
        patterns = {pattern: pattern.encode(errors="replace") for pattern in rules.patterns}
        matches = [(name, text) for name, content in files.items() for text in patterns if patterns[text] in content]
        matched_files = tuple(dict.fromkeys(name for name, _ in matches)) if patterns else tuple(files)
        matched_patterns = tuple(pattern for pattern in rules.patterns if any(text == pattern for _, text in matches))
        if matched_files:
            about = (skill.id, skill.name, skill.source, skill.priority)
            detected.append(DetectedSkill(*about, matched_files, matched_patterns, skill.inject_into, tuple(matches)))
    return tuple(sorted(detected, key=lambda skill: (-skill.priority, skill.name)))


def _content(project: str, name: str, contents: dict[str, bytes | None]) -> bytes | None:
    if name not in contents:
        try:
            path = files.resolve_path(project, name)
            contents[name] = files.read(path)[:SKILL_FILE_BYTES_MAX] if files.stat_file(path) else None
        except (InvalidInput, OSError):
            contents[name] = None
    return contents[name]


# Selection: the skills to show to a model, for a query and a phase.

DETECTED_SCORE: Final = 100.0  # The score of detected and forced skills, above any that a query can give.
AUTO_DETECTED: Final = "auto_detected"
LEXICAL: Final = "lexical"
USER_FORCED: Final = "user_forced"
_COMPANION: Final = 0.5  # The share of the minimum score that suffices by words if another skill reaches the minimum.
_DECIMALS: Final = 6
_PARTS_COUNT: Final = 5  # The number of words, or signals, that the text of a verdict names.
_QUERY_CHARS: Final = 60


class SelectionPolicy(Struct, frozen=True, kw_only=True):
    """The number of skills to select, and their conditions.

    `min_score` is the score that a skill needs, by default 1 for `"words"` and `"seed"` and 0 for other rankings; with
    `"words"`, the best skill needs it, and the others then need half of it. A skill must have one of `include_tags`, if
    any are given, and none of `exclude_tags`, regardless of case. `max_content_lines` and `max_chars` bound the
    injected text of each skill. `ranking` is `"words"`, `"seed"`, `"hybrid"` or a `Ranking`.
    """

    top_k: int = 3
    min_score: float | None = None
    include_tags: tuple[str, ...] = ()
    exclude_tags: tuple[str, ...] = ()
    max_content_lines: int = 200
    max_chars: int = 4_000
    ranking: object = WORDS

    def __post_init__(self) -> None:
        for field in ("top_k", "max_content_lines", "max_chars"):
            checks.count(getattr(self, field), field)
        for field in ("include_tags", "exclude_tags"):
            as_list(getattr(self, field), field)
        least = cast("object", self.min_score)
        if least is None or (isinstance(least, (int, float)) and not isinstance(least, bool) and not isnan(least)):
            return
        raise InvalidInput(f"min_score is {checks.brief(least)}; give a number, or None for that of the ranking")

    @property
    def least(self) -> float:
        """The score that the best skill needs."""
        if self.min_score is not None:
            return self.min_score
        return 1.0 if self.ranking in (WORDS, SEED) else 0.0

    def admits(self, skill: Skill, phase: str | None) -> bool:
        """Return whether a skill is for a phase and has the right tags."""
        if phase is not None and phase not in skill.inject_into and ALWAYS not in skill.inject_into:
            return False
        tags = {tag.lower() for tag in skill.tags}
        if any(tag.lower() in tags for tag in self.exclude_tags):
            return False
        return not self.include_tags or any(tag.lower() in tags for tag in self.include_tags)


class SkillMatch(Struct, frozen=True):
    """A selected skill with its score and the reason, one of `auto_detected`, `lexical` and `user_forced`.

    `query` is the query that the skill answers; it is empty for the other reasons.
    """

    score: float
    match_reason: str
    query: str
    skill: SkillSummary
    body: str


class SkillVerdict(Struct, frozen=True):
    """The reason why a skill is selected for a query or not: its score, the score that it needed, and its parts.

    `place` is its rank among the skills that reach the needed score, or 0 if it does not. `parts` are the contributions
    of words, or signals, to its score.
    """

    name: str
    query: str
    is_selected: bool
    score: float
    least: float
    place: int
    parts: dict[str, float]
    text: str

    def __str__(self) -> str:
        return self.text


class Selector:
    """Selects skills from an index, and caches the data that each ranking computes for it.

    >>> Selector(SkillIndex(())).select("anything")
    ()
    """

    def __init__(self, index: SkillIndex, *, vectors: Vectors | None = None) -> None:
        self.index = index
        self._vectors = vectors
        self._scorers: dict[str, WordScorer | SeedScorer | RankedScorer] = {}

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
        """Select the skills to show to a model: forced ones, then detected ones, then those that answer the query.

        `detected` and `forced` are names. A forced skill is selected regardless of its tags, its phase and `top_k`;
        raises `NotFound` if it does not exist. Detected skills come before others within `top_k`. Ties are ordered by
        priority, the higher first, then by name. An empty query finds nothing unless `include_tags` are given.
        """
        policy = SelectionPolicy() if policy is None else policy
        check_phase(phase)
        by_name: dict[str, Skill] = {}
        for name in forced:
            skill = self.index.get(name)
            if skill is None:
                raise NotFound(
                    f"there is no skill {checks.brief(name)}; `refold skills list` shows those that there are"
                )
            by_name[skill.name] = skill
        allowed = [
            skill
            for skill in self.index.skills
            if skill.name not in by_name and policy.admits(skill, phase) and (not is_enabled or is_enabled(skill))
        ]
        detected = set(detected)
        matches = [match_of(skill, DETECTED_SCORE, AUTO_DETECTED) for skill in allowed if skill.name in detected]
        others = [skill for skill in allowed if skill.name not in detected]
        matches += self._match_query(checks.text(query, "query"), others, policy)
        first = (match_of(skill, DETECTED_SCORE, USER_FORCED) for skill in by_name.values())
        return (*first, *matches[: policy.top_k])

    def explain(
        self,
        skill: Skill,
        query: str,
        *,
        policy: SelectionPolicy,
        phase: str | None = None,
        detected: Iterable[str] = (),
        refusal: Callable[[Skill], str],
    ) -> SkillVerdict:
        """Explain why `select` takes a skill or not for a query; `refusal` returns why a skill is not offered."""

        def is_enabled(each: Skill) -> bool:
            return not refusal(each)

        detected = frozenset(detected)
        every = replace(policy, top_k=len(self.index))
        matches = self.select(query, policy=every, phase=phase, detected=detected, is_enabled=is_enabled)
        names = [match.skill.name for match in matches]
        place = names.index(skill.name) + 1 if skill.name in names else 0
        scores = self._scores(query, policy)
        others = [each for each in self.index.skills if is_enabled(each) and policy.admits(each, phase)]
        least = _least([scores[each.name] for each in others if each.name not in detected], policy)
        score, row = scores[skill.name], self.index.skills.index(skill)
        parts = self._scorer(policy.ranking).parts(query, row) if score else {}
        best = sorted(parts.items(), key=lambda part: -part[1])[:_PARTS_COUNT]
        detail = f" ({', '.join(f'{name} {number:.2g}' for name, number in best)})" if best else ""
        quote = one_line(query)[:_QUERY_CHARS]
        if reason := refusal(skill):
            text = reason
        elif not policy.admits(skill, phase):
            phases, tags = ", ".join(skill.inject_into), ", ".join(skill.tags) or "none"
            text = f"the policy leaves it out: its phases are {phases}, its tags {tags}"
        elif skill.name in detected:
            text = "it applies to the project, and comes before those that answer a query"
        elif not score:
            text = f"it shares nothing with {quote!r}"
        elif not place:
            beside = "" if least == policy.least else " beside a better one"
            text = f"its score of {score:.2f} for {quote!r} is under the {least:.2f} that it needs{beside}{detail}"
        else:
            text = f"its score for {quote!r} is {score:.2f}{detail}"
        rank = f"; it is ranked {place}, and {policy.top_k} are selected" if place else ""
        return SkillVerdict(skill.name, query, 0 < place <= policy.top_k, score, least, place, parts, f"{text}{rank}")

    def word_scores(self, query: str) -> Sequence[float]:
        """Score each skill by words, in the order of the index."""
        return self._scorer(WORDS).scores(query)

    def _scores(self, query: str, policy: SelectionPolicy) -> dict[str, float]:
        scores = self._scorer(policy.ranking).scores(query)
        return {skill.name: round(number, _DECIMALS) for skill, number in zip(self.index.skills, scores, strict=True)}

    def _match_query(self, query: str, skills: Sequence[Skill], policy: SelectionPolicy) -> list[SkillMatch]:
        if not query.strip():
            return [match_of(skill, 0.0, LEXICAL) for skill in skills] if policy.include_tags else []
        by_name = self._scores(query, policy)
        least = _least([by_name[skill.name] for skill in skills], policy)
        good = [skill for skill in skills if (number := by_name[skill.name]) > 0 and number >= least]
        good.sort(key=lambda skill: (-by_name[skill.name], -skill.priority, skill.name))
        return [match_of(skill, by_name[skill.name], LEXICAL, query) for skill in good[: policy.top_k]]

    def _scorer(self, ranking: object) -> WordScorer | SeedScorer | RankedScorer:
        key = ranking if isinstance(ranking, str) else repr(ranking)
        if key not in self._scorers:
            if len(self._scorers) >= SKILL_SCORERS_COUNT_MAX:
                self._scorers.clear()
            if ranking == WORDS:
                self._scorers[key] = WordScorer(self.index.skills)
            elif ranking == SEED:
                self._scorers[key] = SeedScorer(self.index)
            else:
                resolved = _HYBRID if ranking == _HYBRID.name else ranking_of(ranking)
                self._scorers[key] = RankedScorer(self.index.skills, resolved, self._vectors)
        return self._scorers[key]


def _least(scores: Sequence[float], policy: SelectionPolicy) -> float:
    """Return the score that a skill needs; by words, it is lower if another skill reaches the policy's minimum."""
    is_reached = policy.ranking == WORDS and max(scores, default=0.0) >= policy.least
    return policy.least * _COMPANION if is_reached else policy.least


def match_of(skill: Skill, score: float, reason: str, query: str = "") -> SkillMatch:
    """Make the match of a selected skill."""
    return SkillMatch(score, reason, query, summary_of(skill, detected=reason == AUTO_DETECTED), skill.text)


def with_settings(policy: SelectionPolicy, index: SkillIndex) -> SelectionPolicy:
    """Return a policy with the counts from the configuration of an index."""
    settings = index.settings
    return replace(policy, top_k=settings.max_skills, max_content_lines=settings.max_content_lines)


def check_phase(phase: str | None) -> str | None:
    """Check a phase; raises `InvalidInput` for an unknown one."""
    if phase is not None and phase not in PHASES:
        raise InvalidInput(f"phase is {checks.brief(phase)}; give one of {', '.join(PHASES)}, or None for any")
    return phase


# Injection: the text of skills in a prompt.

_HEAD: Final = "## Framework-Specific Best Practices"
_LEAD: Final = "The following guidelines apply based on detected frameworks:"
_RULE: Final = re.compile(r"^[ \t]{0,3}(?:(?:-[ \t]*+){3,}+|(?:=[ \t]*+){3,}+)$")
_HEADING: Final = re.compile(r"^([ \t]{0,3})(#{1,3})(?=[ \t]|$)")
_SOURCE: Final = re.compile(r"^([ \t]{0,3})\*(?=Source:)")
_TAG: Final = re.compile(r"<(?=\s*(?:/\s*)?(?:skill|available_skills))", re.IGNORECASE)


def inject_skills(matches: Sequence[SkillMatch], policy: SelectionPolicy | None = None) -> str:
    """Render skills as a section of a prompt, each cut to a number of lines and characters; empty if there are none.

    Lines of a body that would end a skill, or begin another, become harmless: rules become `* * *`, and headings of the
    first three levels move down three levels.
    """
    if not matches:
        return ""
    bounds = SelectionPolicy() if policy is None else policy
    parts: list[str] = []
    for match in matches:
        skill = match.skill
        source = f"{skill.source_name} ({skill.source})" if skill.source_name else skill.source
        about = f"*Source: {one_line(source)} | Priority: {skill.priority}*"
        text = truncate(_plain_lines(match.body), bounds.max_content_lines, bounds.max_chars)
        parts.append(f"### {one_line(skill.name)}\n{about}\n\n{text}\n\n---\n")
    return "\n".join((_HEAD, "", _LEAD, "", *parts))


def _plain_lines(body: str) -> str:
    lines = (_HEADING.sub(r"\1###\2", _RULE.sub("* * *", line)) for line in strip_controls(body).splitlines())
    return "\n".join(_SOURCE.sub(r"\1\\*", line) for line in lines)


def truncate(text: str, lines_max: int, chars_max: int) -> str:
    r"""Cut a text to a number of lines and characters, with a note of how many lines are missing.

    >>> truncate("a\nb\nc", 2, 100)
    'a\nb\n\n*... (truncated, 1 more lines)*'
    """
    lines = text.splitlines()
    ends = accumulate(len(line) + 1 for line in lines[:lines_max])
    first = [line for line, end in zip(lines, ends, strict=False) if end - 1 <= chars_max]
    if len(first) == len(lines):
        return text
    if not first and lines_max and chars_max:
        first = [lines[0][:chars_max]]
    return "\n".join((*first, "", f"*... (truncated, {len(lines) - len(first)} more lines)*")).lstrip("\n")


def inject_message(text: str, matches: Sequence[SkillMatch], policy: SelectionPolicy | None = None) -> str:
    """Put skills before a user's message, each between `[skill:NAME]` and `[/skill]`.

    Each body is cut to `max_chars`, with a note of what is missing, and left out if there is no room for one. A bracket
    in it that would open or close a skill becomes a parenthesis.
    """
    bounds = SelectionPolicy() if policy is None else policy
    parts: list[str] = []
    for match in matches:
        body = disarm(match.body)
        cut = excerpt(body, bounds.max_chars)
        if cut or not body:
            parts.append(f"{skill_block(match.skill.name, cut)}\n\n")
    return "".join((*parts, checks.text(text, "text")))


def inject_into_messages(
    messages: Sequence[dict[str, Any]], matches: Sequence[SkillMatch], policy: SelectionPolicy | None = None
) -> list[dict[str, Any]]:
    """Copy messages in the format of providers, and put skills before the text of the last user message, if any."""
    copy = list(messages)
    for index in range(len(copy) - 1, -1, -1):
        if copy[index].get("role") == "user" and matches:
            copy[index] = copy[index] | {"content": _inject_content(copy[index].get("content"), matches, policy)}
            break
    return copy


def _inject_content(content: Any, matches: Sequence[SkillMatch], policy: SelectionPolicy | None) -> Any:
    if isinstance(content, str):
        return inject_message(content, matches, policy)
    if not isinstance(content, list):
        return content
    parts: list[Any] = list(content)  # pyright: ignore[reportUnknownArgumentType] - content from outside can be anything
    for index, part in enumerate(parts):
        if isinstance(part, dict) and part.get("type") == "text":  # pyright: ignore[reportUnknownMemberType]
            fields: dict[str, Any] = part  # pyright: ignore[reportUnknownVariableType]
            parts[index] = fields | {"text": inject_message(str(fields.get("text", "")), matches, policy)}
            break
    return parts


# For models that select skills themselves.


def catalog(skills: Iterable[SkillSummary | Skill]) -> str:
    """Render the skills that a model can use, with names, descriptions and paths, as XML; empty if there are none."""
    entries = [
        f"<skill><name>{_xml(skill.name)}</name><description>{_xml(skill.description)}</description>"
        f"<location>{_xml(skill.path)}</location></skill>"
        for skill in skills
        if skill.model_invocable and skill.enabled
    ]
    return "\n".join(("<available_skills>", *entries, "</available_skills>")) if entries else ""


def activation(skill: Skill, resources: Sequence[str] = ()) -> str:
    """Render a skill that a model uses: the user's note, its body and the names of the files in its directory."""
    body = _TAG.sub("&lt;", strip_controls(skill.text))
    names = "".join(f"<file>{_xml(name)}</file>\n" for name in resources)
    listing = f"<skill_resources>\n{names}</skill_resources>\n" if names else ""
    return f"<skill_content name={quoteattr(one_line(skill.name))}>\n{body}\n{listing}</skill_content>"


def _xml(text: str) -> str:
    return escape(one_line(text))
