"""Counts of the skills that there are. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from refold.tools.skills.index import SkillIndex
from refold.tools.skills.skill import SOURCES
from refold.views.skills import LearnedSkill


class Overview(Struct, frozen=True):
    """Skills by source, those switched off, detected and shadowed, learned ones by status, diagnostics by severity."""

    total: int
    by_source: dict[str, int]
    disabled: tuple[str, ...]
    detected: tuple[str, ...]
    shadowed: int
    learned: dict[str, int]
    diagnostics: dict[str, int]


def overview_of(index: SkillIndex, detected: Iterable[str], learned: Sequence[LearnedSkill]) -> Overview:
    """Return the counts of an index.

    >>> overview_of(SkillIndex(()), (), ()).total
    0
    """
    sources = Counter(skill.source for skill in index.skills)
    return Overview(
        len(index),
        {source: sources[source] for source in SOURCES if sources[source]},
        tuple(skill.name for skill in index.skills if not skill.enabled),
        tuple(detected),
        len(index.shadowed),
        dict(sorted(Counter(skill.status for skill in learned).items())),
        dict(sorted(Counter(said.severity for said in index.diagnostics).items())),
    )
