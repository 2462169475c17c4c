"""Verbs of a memory that answer questions: those that need a log (why, blame, influence, bisect), and health."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from refold import checks
from refold.engine import health as engine_health
from refold.errors import InvalidInput
from refold.event import Recorded
from refold.limits import LAG_SECONDS_MAX
from refold.memory.core import Core, core_of
from refold.memory.options import seq_at
from refold.results import Health

if TYPE_CHECKING:
    import datetime

    from refold.memory.conversation import Conversation
    from refold.memory.memory import Memory
    from refold.memory.reasons import Influence, Revision, Why
    from refold.results import Hits

T = TypeVar("T")


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
    words were looked for in is there while it holds them. ``missing_from`` is a query, hits, or the seq of a recall or
    of a context that was shown. ``str()`` of the answer is readable text. Raises ``NotFound`` for a seq at which this
    memory has no event.

    >>> from refold import Memory
    >>> memory = Memory()
    >>> chat = memory.conversation("chat-42", window_tokens=5)
    >>> first = chat.append("user", "The port is 6543.", tokens=4)
    >>> _ = chat.append("user", "Which port?", tokens=3)
    >>> [step.relation for step in memory.why(first).steps]
    ['came', 'left']
    """
    from refold.memory.why import answer  # noqa: PLC0415 - loaded only when used

    return answer(self if at is None else self.at(at), x, conversation, missing_from)


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
    files or the skill library. For a key that never existed, the list is empty.

    >>> from refold import Memory
    >>> memory = Memory()
    >>> memory.profile().set("theme", "dark")
    >>> memory.profile().set("theme", "light")
    >>> [(revision.seq, revision.value, revision.actor) for revision in memory.blame("theme")]
    [(1, 'dark', 'host'), (2, 'light', 'host')]
    """
    from refold.memory.blame import all_values  # noqa: PLC0415 - loaded only when used

    return all_values(self, key, conversation, of, name, line)


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
    assistant. If a context was shown for the turn, that context counts, else the window before it.
    """
    from refold.memory.exposure import influence_of  # noqa: PLC0415 - loaded only when used

    return influence_of(self if at is None else self.at(at), x, conversation)


def bisect(
    core: Core,
    frozen: Callable[[int], T],
    predicate: Callable[[T], object],
    *,
    after: object,
    until: object,
    at: int | None,
) -> Recorded | None:
    """Return the event that made a predicate of ``frozen(seq)`` true, or ``None`` if it is not true at the end."""
    head = core.engine.reader.current_head() if at is None else at
    low = seq_at(core.engine, after, head)
    high = head if until is None else seq_at(core.engine, until, head)
    if low > high:
        raise InvalidInput(f"after is seq {low}, behind until, which is seq {high}; give an earlier after")
    if not callable(predicate):
        checks.invalid(f"predicate must be a function, not {type(predicate).__name__} ({checks.brief(predicate)})")
    if predicate(frozen(low)):
        raise InvalidInput(f"the predicate is true at seq {low} already; give an `after` at which it is not")
    if not predicate(frozen(high)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if predicate(frozen(middle)):
            high = middle
        else:
            low = middle
    return next(core.engine.reader.all_events(high - 1, high, core.branch), None)


def health(self: "Memory", *, max_lag_seconds: int = LAG_SECONDS_MAX) -> Health:
    """Return whether this memory can be read and written, fast enough for a probe to call every second.

    Unlike ``verify``, it does not walk through the log. It contacts no server: for a log on a server, it checks how
    long ago the local copy last had all commits. It never raises because of a problem with the memory.

    >>> from refold import Memory
    >>> Memory().health().ok
    True
    """
    return engine_health.health(core_of(self)[0].engine, checks.count(max_lag_seconds, "max_lag_seconds"))
