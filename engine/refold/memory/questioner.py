"""What a context is asked, and by whom: the query, the user who asks, and whether a conversation begins with it."""

from collections.abc import Sequence

from refold.memory.turns import is_answer, is_question
from refold.message import Message, text_of


def asker_of(window: Sequence[Message], query: str | None, profile: str) -> str | None:
    """Return the name of the user who asks, `None` if it is not known.

    It is the name of the question that has no answer yet, or without a query, of the newest one. Otherwise it is that
    of the profile, or with the default profile, of the only user in the window.
    """
    newest = next((message for message in reversed(window) if is_question(message) or is_answer(message)), None)
    questions = [message for message in window if is_question(message)]
    name = questions[-1].name if questions else None
    if name is not None and (query is None or newest is questions[-1]):
        return name
    if profile not in ("default", ""):  # An erased context has no profile.
        return profile
    return name if len({message.name for message in questions}) == 1 else None


def opens(window: Sequence[Message]) -> bool:
    """Return whether no answer is in a window, so that "Go on." is about earlier conversations."""
    return not any(map(is_answer, window))


def query_of(query: str | None, window: Sequence[Message]) -> str:
    """Return the query of a context, which is the newest message of the user if none was given."""
    if query is not None:
        return query
    return next((text_of(message) for message in reversed(window) if message.role == "user"), "")
