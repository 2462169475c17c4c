"""What a context is asked, and by whom: the query, the user who asks, and whether a conversation begins with it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from refold.memory.criteria import Criteria, criteria_of
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


class ContextQuestion(NamedTuple):
    """What earlier messages are searched for."""

    text: str
    opens: bool
    """Whether no answer was given before it, so that "Go on." is about earlier conversations."""

    @property
    def criteria(self) -> Criteria:
        """What it is about."""
        return criteria_of(self.text, opens=self.opens)


_TURNS_COUNT: Final = 8  # Newest messages of users among which a follow-up finds what it goes on with.


def questions_of(query: str | None, window: Sequence[Message]) -> list[ContextQuestion]:
    """Return what a context asks, without a query the newest message of the user.

    Of a question that goes on with another one, "And the other one?", the words say little or nothing of the answer: it
    asks what the one before it in the window asked, and what its own words ask if they say anything.
    """
    newest = next((text_of(message) for message in reversed(window) if message.role == "user"), "")
    own = ContextQuestion(newest if query is None else query, _opens(window))
    if own.text != newest or not _goes_on(own):
        return [own]
    topic, base = own, None  # What the last question asked, and the last one that did not go on with another.
    places = [place for place, message in enumerate(window) if is_question(message)]
    for place in places[-_TURNS_COUNT:]:
        each = ContextQuestion(text_of(window[place]), _opens(window[:place]))
        criteria = each.criteria
        if criteria.subject and _goes_on(each):
            is_added = base is not None and not base.criteria.about
            topic = ContextQuestion(f"{base.text} {each.text}", each.opens) if base and is_added else each
        elif criteria.subject or criteria.about:
            topic = base = each
    return [topic, own] if own.criteria.subject and topic.text != own.text else [topic]


def _goes_on(question: ContextQuestion) -> bool:
    from refold.index.questions import goes_on  # noqa: PLC0415 - imported on first use
    from refold.index.terms import is_small_talk, strip_contractions  # noqa: PLC0415

    criteria = question.criteria
    if criteria.about or not criteria.is_question or is_small_talk(strip_contractions(question.text)):
        return False
    return goes_on(question.text, len(criteria.subject))


def _opens(window: Sequence[Message]) -> bool:
    return not any(map(is_answer, window))
