"""Skills: written instructions for a kind of task, found in files or learned, and put before a model when they help.

`skills_of(memory, SkillRoots(project="."))` is the handle on all of them. Hooks of skill files are read and shown, and
never run.
"""

from refold.skills.format import Detection, Diagnostic, Skill, SkillSummary, parse_skill, render_skill, validate_skill
from refold.skills.library import SkillLibrary, library_of
from refold.skills.selection import (
    SelectionPolicy,
    Selector,
    SkillMatch,
    inject_into_messages,
    inject_message,
    inject_skills,
)
from refold.skills.skills import Generation, RestrictedRegistry, Skills, skill_tool, skills_of
from refold.skills.sources import RefreshStats, SkillIndex, SkillLoader, SkillRoots

__all__ = [
    "Detection",
    "Diagnostic",
    "Generation",
    "RefreshStats",
    "RestrictedRegistry",
    "SelectionPolicy",
    "Selector",
    "Skill",
    "SkillIndex",
    "SkillLibrary",
    "SkillLoader",
    "SkillMatch",
    "SkillRoots",
    "SkillSummary",
    "Skills",
    "inject_into_messages",
    "inject_message",
    "inject_skills",
    "library_of",
    "parse_skill",
    "render_skill",
    "skill_tool",
    "skills_of",
    "validate_skill",
]
