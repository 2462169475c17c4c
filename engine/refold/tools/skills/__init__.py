"""Skills: written instructions for a kind of task, found in files or learned, and put before a model when they help.

``skills_of(memory, SkillRoots(project="."))`` is the handle on all of them. Hooks of skill files are read and
shown, and never run.
"""

from refold.tools.skills.discovering import SkillLoader, SkillRoots
from refold.tools.skills.generating import Generation
from refold.tools.skills.handle import Skills, skills_of
from refold.tools.skills.index import RefreshStats, SkillIndex
from refold.tools.skills.injecting import inject_into_messages, inject_message, inject_skills
from refold.tools.skills.library import SkillLibrary, library_of
from refold.tools.skills.parsing import parse_skill
from refold.tools.skills.selecting import SelectionPolicy, Selector, SkillMatch
from refold.tools.skills.skill import Detection, Diagnostic, Skill, SkillSummary
from refold.tools.skills.tool import RestrictedRegistry, skill_tool
from refold.tools.skills.validating import validate_skill
from refold.tools.skills.writing import render_skill

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
