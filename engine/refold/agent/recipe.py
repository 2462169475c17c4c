"""What a context is made by besides the log: its budget, and the plan and the inputs that its event records."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, replace

from refold import checks
from refold.agent.attachments import NamedSkill
from refold.limits import (
    BOARD_CHARS_DEFAULT,
    CONTEXT_CHARS_MAX,
    CONTEXT_TOKENS_DEFAULT,
    EPISODES_COUNT_DEFAULT,
    INJECTED_CHARS_DEFAULT,
    MEMORIES_CHARS_DEFAULT,
    MESSAGES_CHARS_DEFAULT,
    NOTES_CHARS_DEFAULT,
    PROFILE_CHARS_DEFAULT,
    SCRATCHPAD_CHARS_DEFAULT,
    SESSION_CHARS_DEFAULT,
)
from refold.memory.conversation import Conversation


class ContextBudget(Struct, frozen=True, kw_only=True):
    """The bounds of a context: `tokens` for everything, and characters for each part.

    `tokens=None` means the budget of the window plus `parts_tokens`. `parts_tokens` bounds everything besides the
    host's system prompt and the window. If the budget is too small for both, the window gets the newest messages and,
    if it needs them, at least half of the tokens that the system prompt leaves; its other messages are searched like
    earlier ones. Memories and earlier messages
    (`messages_count`, `messages_chars`) share the room left by the other parts, and those with the best rank for their
    tokens are shown. Over the budget, memories are dropped as needed, down to ten; then skills are reduced to the best
    one, or to none if its score is under 1; then memories, down to five; then the text of the skill is cut; then each
    part is cut to its share. Earlier sessions take at most 1/24. Any other number that is `None` is taken from the
    settings of the store.
    """

    tokens: int | None = None
    parts_tokens: int = CONTEXT_TOKENS_DEFAULT
    profile_chars: int = PROFILE_CHARS_DEFAULT
    notes_chars: int = NOTES_CHARS_DEFAULT
    memories_chars: int = MEMORIES_CHARS_DEFAULT
    memories_count: int | None = None
    messages_chars: int = MESSAGES_CHARS_DEFAULT
    messages_count: int | None = None
    episodes_count: int = EPISODES_COUNT_DEFAULT
    skills_chars: int | None = None
    session_chars: int = SESSION_CHARS_DEFAULT
    injected_chars: int = INJECTED_CHARS_DEFAULT
    scratchpad_chars: int = SCRATCHPAD_CHARS_DEFAULT
    board_chars: int = BOARD_CHARS_DEFAULT


def check_budget(budget: object) -> ContextBudget:
    """Validate a budget, given as a `ContextBudget`, a total number of tokens, or `None`."""
    if budget is None:
        return ContextBudget()
    if isinstance(budget, int) and not isinstance(budget, bool):
        return ContextBudget(tokens=checks.integer(budget, "budget", 0, CONTEXT_CHARS_MAX, "CONTEXT_CHARS_MAX"))
    if not isinstance(budget, ContextBudget):
        checks.invalid(f"budget must be a ContextBudget or a number of tokens, not {checks.brief(budget)}")
    for field, value in asdict(budget).items():
        if value is not None:
            checks.integer(value, f"budget.{field}", 0, CONTEXT_CHARS_MAX, "CONTEXT_CHARS_MAX")
    return budget


def complete_budget(budget: ContextBudget, chat: Conversation, settings: Mapping[str, int]) -> ContextBudget:
    """Replace each `None` of a budget: by the size of the window, or by a setting of the store."""
    defaults = {
        "tokens": chat.window_tokens + budget.parts_tokens,
        "memories_count": settings["memory_max_injected"],
        "messages_count": settings["messages_max_injected"],
        "skills_chars": settings["skills_max_injected_chars"],
    }
    return replace(budget, **{field: value for field, value in defaults.items() if getattr(budget, field) is None})


class ContextPlan(Struct, frozen=True):
    """How a context was made to fit: the topics of its instructions, and the tokens that each part can take.

    `episodes` are the seqs of the episodes in it. The first `skills` of its skills are shown, within `skills_chars`
    characters. `places` are the places of the earlier messages within their events, whose seqs are the last sources of
    the event that records the context, and `marks` what their lines show besides them. `question` is the id of a
    question that is shown although the window evicted it.
    `pieces` are the ids of memories that a message says in their place: they count as used, too. The newest messages of
    the window, `kept_tokens` of them, are shown whatever else is, and those before them are searched like what has left
    it; with `None`, none are.
    """

    topics: tuple[str, ...] = ()
    episodes: tuple[int, ...] = ()
    tokens: dict[str, int] = {}
    skills: int = 0
    skills_chars: int = 0
    memories_left_out: int = 0
    messages_left_out: int = 0
    places: tuple[int, ...] = ()
    question: str = ""
    pieces: tuple[str, ...] = ()
    marks: tuple[int, ...] = ()
    kept_tokens: int | None = None


class Recipe(NamedTuple):
    """The inputs of a context besides the log, which make it possible to rebuild it."""

    seq: int
    project: str
    query: str | None
    day: str
    timezone: str
    profile: str
    journal: str
    skills: tuple[NamedSkill, ...]
    budget: ContextBudget
    opening: tuple[str | None, int, bool]
    plan: ContextPlan
    ids: tuple[str, ...] = ()
    seqs: tuple[int, ...] = ()
