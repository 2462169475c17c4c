"""Budgets of a context: what each part may take, what all of them may, and what gives way first."""

from typing import Final

from msgspec import Struct

from refold import checks
from refold.tools.limits import (
    CONTEXT_CHARS_MAX,
    CONTEXT_TOKENS_DEFAULT,
    MEMORIES_CHARS_DEFAULT,
    NOTES_CHARS_DEFAULT,
    PROFILE_CHARS_DEFAULT,
    SESSION_CHARS_DEFAULT,
)

_SKILLS_KEPT: Final = 1
_MEMORIES_KEPT: Final = 5
_SCORE_MIN: Final = 1.0


class ContextBudget(Struct, frozen=True, kw_only=True):
    """What the parts of a context may take, in characters, and all but the window together, in tokens.

    Over ``tokens``, skills are reduced to the best one, or to none if its score is under 1; then memories to five; then
    the skill's text is cut. ``None`` leaves a number to the settings of the store.
    """

    tokens: int = CONTEXT_TOKENS_DEFAULT
    profile_chars: int = PROFILE_CHARS_DEFAULT
    notes_chars: int = NOTES_CHARS_DEFAULT
    memories_chars: int = MEMORIES_CHARS_DEFAULT
    memories_count: int | None = None
    skills_chars: int | None = None
    session_chars: int = SESSION_CHARS_DEFAULT


class Trim(Struct, frozen=True):
    """How much of skills and memories is left: how many of each, and how many characters of skills."""

    skills: int
    memories: int
    skills_chars: int


def checked(budget: object) -> ContextBudget:
    """Return a budget, given as one, as a number of tokens in all, or not at all."""
    if budget is None:
        return ContextBudget()
    if isinstance(budget, int) and not isinstance(budget, bool):
        return ContextBudget(tokens=_bounded(budget, "budget"))
    if not isinstance(budget, ContextBudget):
        checks.invalid(f"budget must be a ContextBudget or a number of tokens, not {checks.shown(budget)}")
    for field in budget.__struct_fields__:
        if getattr(budget, field) is not None:
            _bounded(getattr(budget, field), f"budget.{field}")
    return budget


def _bounded(value: object, what: str) -> int:
    return checks.integer(value, what, 0, CONTEXT_CHARS_MAX, "CONTEXT_CHARS_MAX")


def steps(scores: list[float], memories: int, skills_chars: int) -> list[Trim]:
    """Return what to try one after the other, the last of which is shown whether it fits or not."""
    best = _SKILLS_KEPT if scores and scores[0] >= _SCORE_MIN else 0
    fewer = min(memories, _MEMORIES_KEPT)
    tried = [
        Trim(len(scores), memories, skills_chars),
        Trim(best, memories, skills_chars),
        Trim(best, fewer, skills_chars),
        *(Trim(best, fewer, skills_chars // divisor) for divisor in (2, 4, 8)),
        Trim(0, fewer, 0),
    ]
    return list(dict.fromkeys(tried))
