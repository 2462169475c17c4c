"""Detection: which skills apply to a project, by the files that are there and what stands in them."""

from collections.abc import Iterable

from msgspec import Struct

from refold.errors import InvalidInput
from refold.store import skill_files
from refold.store.limits import SKILL_FILE_BYTES_MAX
from refold.tools.skills.skill import Detection, Skill


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
    files = {name: content for name in rules.files if (content := _content(project, name, looks)) is not None}
    patterns = tuple(pattern for pattern in rules.patterns if _stands(pattern, files.values()))
    if not files or (rules.patterns and not patterns):
        return None
    matched = tuple(name for name in files if not rules.patterns or _stands_any(rules, files[name]))
    return DetectedSkill(skill.id, skill.name, skill.source, skill.priority, matched, patterns, skill.inject_into)


def _stands(pattern: str, contents: Iterable[bytes]) -> bool:
    return any(pattern.encode(errors="replace") in content for content in contents)


def _stands_any(rules: Detection, content: bytes) -> bool:
    return any(_stands(pattern, (content,)) for pattern in rules.patterns)


def _content(project: str, name: str, looks: dict[str, bytes | None]) -> bytes | None:
    """Return what stands in a file of the project, ``None`` where there is none; each is read once."""
    if name not in looks:
        try:
            path = skill_files.inside(project, name)
            looks[name] = skill_files.read(path)[:SKILL_FILE_BYTES_MAX] if skill_files.looked_at(path) else None
        except (InvalidInput, OSError):
            looks[name] = None
    return looks[name]
