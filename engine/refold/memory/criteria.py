"""What a query for earlier messages is about: the words of which an answer must have some, or why none can answer."""

from typing import Final, NamedTuple

_QUERY_CHARS: Final = 500  # Characters used of the beginning and of the end of a long query: each word takes time.
WORDS_MIN: Final = 2  # Words of the query that the best message itself must have.
NEWEST: Final = "it asks about the user as a whole, and the newest of what users said is shown"
TURNS: Final = "it asks about earlier conversations as a whole, and the newest turns are shown"


class Criteria(NamedTuple):
    """What a query is about, and whether it asks for it; or the reason why no message can answer it."""

    subject: tuple[str, ...]
    """The words of which an answer must have some."""
    query: str
    """The words that rank messages once one of them answers."""
    is_question: bool
    reason: str = ""
    about: str = ""
    """What it asks about as a whole, by `asked_about`, so that no words say what answers."""
    is_resumed: bool = False
    """Whether it asks to go on with what it is about, so that what was said last of it answers."""
    is_idle: bool = False
    """Whether it is small talk, which nothing that was said answers."""

    @property
    def may_be_answered(self) -> bool:
        """Whether something that was said may answer it, in whichever words."""
        return bool(self.subject or self.about or (self.is_question and not self.is_idle))


def criteria_of(query: str, *, opens: bool = False) -> Criteria:
    """Judge a query by the words that say what it is about; `opens` says that it may begin a conversation.

    What is left to do is a matter of earlier conversations only where one begins.
    """
    from refold.index import names, questions, terms  # noqa: PLC0415 - imported on first use

    about = questions.asked_about(query)
    if about and (opens or about != questions.RESUME):
        reason = NEWEST if about == questions.USER else TURNS
        return Criteria((), query, is_question=True, reason=reason, about=about)
    query = query if len(query) <= 2 * _QUERY_CHARS else f"{query[:_QUERY_CHARS]} {query[-_QUERY_CHARS:]}"
    text, asks = terms.strip_contractions(query), terms.is_question(query)
    if topic := questions.resumed_topic(text):
        words = tuple(dict.fromkeys([*terms.words_of(terms.subject_of(topic))[0], *names.names_in(text)]))
        if words:
            return Criteria(words, topic, is_question=True, is_resumed=True)
    if terms.is_small_talk(text):
        return Criteria((), text, asks, "it is small talk", is_idle=True)
    found = [*terms.words_of(terms.subject_of(text))[0], *names.names_in(text)]
    subject = tuple(dict.fromkeys(found or (terms.fact_words(text) if asks else ())))
    if not subject:
        if opens and asks and questions.names_time(query):
            return Criteria((), query, is_question=True, reason=TURNS, about=questions.RESUME)
        return Criteria((), text, asks, "all of its words are everyday talk", is_idle=questions.is_idle(query))
    if len(subject) < WORDS_MIN and not asks:
        return Criteria(subject, text, asks, f"it is no question, and {subject[0]!r} alone says what it is about")
    return Criteria(subject, text, asks)
