"""Skills: written instructions for a kind of task, from files or learned, shown to a model when they help.

`skills_of(memory, SkillRoots(project="."))` returns the handle on all skills. Hooks of skill files are read and shown,
but never run.
"""

from refold.skills.format import Detection, Diagnostic, Skill, SkillSummary, parse_skill, render_skill, validate_skill
from refold.skills.library import SkillLibrary, library_of
from refold.skills.restriction import RestrictedRegistry
from refold.skills.selection import (
    SelectionPolicy,
    Selector,
    SkillMatch,
    SkillVerdict,
    inject_into_messages,
    inject_message,
    inject_skills,
)
from refold.skills.skills import Generation, Skills, skill_tool, skills_of
from refold.skills.sources import RefreshStats, SkillIndex, SkillLoader, SkillRoots

__all__ = ["Detection", "Diagnostic", "Skill", "SkillSummary", "parse_skill", "render_skill", "validate_skill"]
__all__ += ["SkillLibrary", "library_of"]
__all__ += ["SelectionPolicy", "Selector", "SkillMatch", "SkillVerdict"]
__all__ += ["inject_into_messages", "inject_message", "inject_skills"]
__all__ += ["Generation", "RestrictedRegistry", "Skills", "skill_tool", "skills_of"]
__all__ += ["RefreshStats", "SkillIndex", "SkillLoader", "SkillRoots"]
