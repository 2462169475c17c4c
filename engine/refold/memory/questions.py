"""Verbs of a memory that answer questions: those that need a log (why, blame, influence), and health."""

from typing import TYPE_CHECKING, Any, Final

from refold import checks
from refold.engine import health as engine_health
from refold.limits import LAG_SECONDS_MAX
from refold.memory.core import core_of
from refold.results import Health
from refold.views.board import PARTS
from refold.views.files import ROOT
from refold.views.store import DEFAULTS

if TYPE_CHECKING:
    import datetime
    from collections.abc import Sequence

    from refold.memory.conversation import Conversation
    from refold.memory.memory import Memory
    from refold.memory.reasons import Influence, Revision, Why
    from refold.results import Hits


def why(
    self: "Memory",
    x: Any,
    *,
    conversation: "Conversation | str | None" = None,
    at: "int | datetime.datetime | None" = None,
    missing_from: "str | int | Hits | None" = None,
) -> "Why":
    """Explain when and how something came and left, what showed it to a model, and why a search did not find it.

    ``x`` is a message, a memory, a note, an episode, a skill, a hit, a seq, or a text. A text is an id, a key, or words
    of the content; the log is scanned for it, in one ``conversation`` or as a whole. A memory, a file or a skill that
    words were looked for in is there while it holds them; metadata of a message that alone holds them is shown to no
    model. ``missing_from`` is a query, hits, or the seq of a recall or
    of a context that was shown. ``str()`` of the answer is readable text. Raises ``NotFound`` for a seq at which this
    memory has no event, and for the id of a conversation that never began.

    >>> from refold import Memory
    >>> memory = Memory()
    >>> chat = memory.conversation("chat-42", window_tokens=5)
    >>> first = chat.append("user", "The port is 6543.", tokens=4)
    >>> _ = chat.append("user", "Which port?", tokens=3)
    >>> [step.relation for step in memory.why(first).steps]
    ['came', 'left']
    """
    from refold.memory.why import answer  # noqa: PLC0415 - loaded only when used

    return answer(*core_of(self if at is None else self.at(at)), x, conversation, missing_from)


def blame(
    self: "Memory",
    key: str,
    *,
    conversation: "Conversation | str | None" = None,
    of: str | None = None,
    name: str = "default",
    line: int | None = None,
) -> "list[Revision]":
    """Return every value that a key ever had, oldest first, with its writer and the turn that led to it.

    ``of`` is scratchpad, state or board (all three of a ``conversation``), profile, setting, file (``key`` is its path)
    or skill (a learned one). For a file or a skill, the values are its current lines, or with ``line`` those that one
    line had. Without ``of``, the first of these kinds that ever had the key is used. ``name`` names the profile, the
    files or the skill library, and those of other names are not looked at. For a key that never existed there, the list
    is empty: without a ``conversation``, those of conversations are not looked at; ``why(key)`` finds them all. Raises
    ``NotFound`` for the id of a conversation that never began.

    >>> from refold import Memory
    >>> memory = Memory()
    >>> memory.profile().set("theme", "dark")
    >>> memory.profile().set("theme", "light")
    >>> [(revision.seq, revision.value, revision.actor) for revision in memory.blame("theme")]
    [(1, 'dark', 'host'), (2, 'light', 'host')]
    """
    from refold.memory.subjects import known_conversation  # noqa: PLC0415 - loaded only when used

    chat = known_conversation(core_of(self)[0], conversation)
    key, name = checks.key(key), checks.name(name, "name")
    kinds = _OF_STORE if chat is None else _OF_CONVERSATION
    if of is not None and checks.one_of(of, "of", (*_OF_CONVERSATION, *_OF_STORE)) not in kinds:
        checks.invalid(f"of is {of!r}, which {'needs a' if chat is None else 'belongs to no'} conversation")
    for kind in kinds if of is None else (of,):
        values = list(_blame(self, kind, key, chat or "", name, line, is_chosen=of is not None))
        if values:
            return values
    return []


_OF_CONVERSATION: Final = ("scratchpad", "state", "board")
_OF_STORE: Final = ("profile", "setting", "file", "skill")


def _blame(
    memory: "Memory", kind: str, key: str, chat: str, name: str, line: int | None, *, is_chosen: bool
) -> "Sequence[Revision]":
    """Return the values of a key of one kind; unless the kind was chosen, none for a key that it cannot have."""
    match kind:
        case "scratchpad":
            return memory.conversation(chat).scratchpad.blame(key)
        case "state":
            return memory.conversation(chat).state.blame(key)
        case "board" if is_chosen or key in PARTS:
            return memory.board(session=chat).blame(key)
        case "profile":
            return memory.profile(name).blame(key)
        case "setting" if is_chosen or key in DEFAULTS:
            return memory.settings.blame(key)
        case "file" if is_chosen or key.startswith(ROOT):
            return memory.files(name).blame(key, line)
        case "skill":
            from refold.memory.blame import skill_revisions  # noqa: PLC0415 - loaded only when used

            core, at = core_of(memory)
            return skill_revisions(core, f"skills/{name}", key, line, at)
        case _:
            return []


def influence(
    self: "Memory",
    x: Any,
    *,
    conversation: "Conversation | str | None" = None,
    at: "int | datetime.datetime | None" = None,
) -> "Influence":
    """Return the turns of a model whose window, context or recall held something, with the model's answers.

    ``x`` is as in ``why``; for an erased event, give its seq. For a text, or the seq of an event that set the content
    of a memory, only turns count that were shown the memory while it had that content. A turn is an answer of the
    assistant. If a context was shown for the turn, that context counts, else the window before it. Raises ``NotFound``
    as ``why`` does.
    """
    from refold.memory.exposure import influence_of  # noqa: PLC0415 - loaded only when used

    return influence_of(*core_of(self if at is None else self.at(at)), x, conversation)


def health(self: "Memory", *, max_lag_seconds: int = LAG_SECONDS_MAX) -> Health:
    """Return whether this memory can be read and written, fast enough for a probe to call every second.

    Unlike ``verify``, it does not walk through the log. It contacts no server: for a log on a server, it checks how
    long ago the local copy last had all commits. It never raises because of a problem with the memory.

    >>> from refold import Memory
    >>> Memory().health().ok
    True
    """
    return engine_health.health(core_of(self)[0].engine, checks.count(max_lag_seconds, "max_lag_seconds"))
