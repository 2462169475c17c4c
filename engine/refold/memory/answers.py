"""Questions beside their answers, of models and of users, and the newest contents of messages, among indexed rows."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from refold.message import MessageReplaced

if TYPE_CHECKING:
    from refold.index.messages import MessageMatch, MessageView

ASKING_SHARE: Final = 0.5  # A message whose share of questions is larger answers nothing.
_ANSWER_WORDS_MAX: Final = 60  # An answer beside its question; a longer one has words of its own to be found by.
_REPLY_WORDS_MAX: Final = 6  # A user's answer to a question, which says nothing without it: "Yes, please.", "Peanuts."
_FOLLOWED_COUNT: Final = 8  # The best matches, with which the user's next short message is shown.
_REPLIED_COUNT: Final = 3  # The best of them, with which the model's answer is shown whatever they are.
_REPLY_WORDS_MIN: Final = 3  # Of such an answer, which else only takes note.
_END_WORDS: Final = 25  # Roughly the words of the end of a longer message that is shown for its question alone.
Replaced: TypeAlias = tuple[str, int, MessageReplaced]  # A new content, with its stream and seq.


def with_answers(
    looks: "Sequence[tuple[MessageView, Any]]", found: "Sequence[MessageMatch]"
) -> "Iterator[MessageMatch]":
    """Yield matches, and after each what it says nothing without.

    To a question of a user this is a short answer of the model, and to a short answer of a user and the question of a
    model it is the other one of both.
    """
    answers = [Answers(look, mask) for look, mask in looks]
    own, known = {(match.seq, match.place): match for match in found}, set[tuple[int, int]]()
    for match in found:
        for each in (match, answers[match.look].partner_of(match)):
            if each is not None and (each.seq, each.place) not in known:
                known.add((each.seq, each.place))
                yield own.get((each.seq, each.place), each)


def with_what_follows(
    looks: "Sequence[tuple[MessageView, Any]]", found: "Sequence[MessageMatch]"
) -> "Iterator[MessageMatch]":
    """Yield matches, after each of the best few what the user added in few words, and last what the model answered.

    What the user says next may correct a match, or decide it: "Sorry, 4417.", "Redis, then.". An answer to what asks
    nothing can be its cause or what was proposed, and takes only the room that is left.
    """
    answers = [Answers(look, mask) for look, mask in looks]
    best, own = found[:_FOLLOWED_COUNT], {(match.seq, match.place): match for match in found}
    additions = {(match.seq, match.place): answers[match.look].addition_to(match) for match in best}
    replies = [answers[match.look].reply_of_model(match) for match in best[:_REPLIED_COUNT]]
    known = set[tuple[int, int]]()
    for match in [*found, *replies]:
        for each in (match, match and additions.get((match.seq, match.place))):
            if each is not None and (each.seq, each.place) not in known:
                known.add((each.seq, each.place))
                yield own.get((each.seq, each.place), each)


class Answers:
    """The messages by which a model ended the turns of users, and those by which users answered a model's question."""

    def __init__(self, look: "MessageView", mask: Any) -> None:
        from refold.memory.message_indexes import ROLE_NUMBERS  # noqa: PLC0415 - imported on first use

        self._look = look
        self._mask = mask
        self._after = look.after()
        self._user, self._model = ROLE_NUMBERS["user"], ROLE_NUMBERS["assistant"]

    def partner_of(self, match: "MessageMatch") -> "MessageMatch | None":
        """Return what is shown with a match, if there is anything: its short answer, or its question."""
        row = self._look.row_at(match.seq, match.place)
        if row is None:
            return None
        if (answer := self.short_answer_of(row)) is not None or (answer := self.reply_to(row)) is not None:
            return match_of(match.look, self._look, answer)
        return self.question_before(match.look, row)

    def answer_of(self, row: int) -> int | None:
        """Return the row of the message by which the model ended the turn of a user's row, `None` if there is none."""
        look, answer = self._look, None
        if look.roles[row] != self._user:
            return None
        following = int(self._after[look.first(row)])
        while following >= 0 and look.roles[following] == self._model:
            newest = look.newest(following)
            answer = newest if self._mask[newest] else answer
            following = int(self._after[following])
        return answer

    def short_answer_of(self, row: int) -> int | None:
        """Return the row of the answer to a row, `None` if it is no question of a user or has no short answer."""
        if self._look.questions[row] <= ASKING_SHARE:
            return None
        answer = self.answer_of(row)
        return answer if answer is not None and self._look.lengths[answer] <= _ANSWER_WORDS_MAX else None

    def asked_before(self, row: int) -> int | None:
        """Return the row of the model's question that a user's row answers, if that is short."""
        look = self._look
        if look.roles[row] != self._user or look.lengths[row] > _REPLY_WORDS_MAX or look.questions[row] > ASKING_SHARE:
            return None
        before = int(look.before[look.first(row)])
        if before < 0 or look.roles[before] != self._model:
            return None
        newest = look.newest(before)
        return newest if self._mask[newest] and look.questions[newest] > 0 else None

    def reply_to(self, row: int) -> int | None:
        """Return the row of the short answer of a user to a model's question, `None` if there is none."""
        following = int(self._after[self._look.first(row)])
        newest = -1 if following < 0 else self._look.newest(following)
        return newest if newest >= 0 and self._mask[newest] and self.asked_before(newest) == row else None

    def addition_to(self, match: "MessageMatch") -> "MessageMatch | None":
        """Return the user's next message after the turn of a match, if it is short and neither asks nor only thanks."""
        look, row = self._look, self._look.row_at(match.seq, match.place)
        following = -1 if row is None else int(self._after[look.first(row)])
        while following >= 0 and look.roles[following] == self._model:
            following = int(self._after[following])
        if following < 0 or look.roles[following] != self._user:
            return None
        newest = look.newest(following)
        is_short = look.lengths[newest] <= _REPLY_WORDS_MAX and look.questions[newest] <= ASKING_SHARE
        is_shown = is_short and self._mask[newest] and not look.has_only(newest, _idle_hashes())
        return match_of(match.look, look, newest) if is_shown else None

    def reply_of_model(self, match: "MessageMatch") -> "MessageMatch | None":
        """Return the short answer to a user's message, if it is more than a word or two and does not only ask."""
        look, row = self._look, self._look.row_at(match.seq, match.place)
        answer = None if row is None else self.answer_of(row)
        if answer is None or not _REPLY_WORDS_MIN <= look.lengths[answer] <= _ANSWER_WORDS_MAX:
            return None
        return match_of(match.look, look, answer) if look.questions[answer] <= ASKING_SHARE else None

    def question_before(self, number: int, row: int) -> "MessageMatch | None":
        """Return the model's question that a user's short row answers; of a long message only its end is shown."""
        asked = self.asked_before(row)
        if asked is None:
            return None
        match = match_of(number, self._look, asked)
        return match._replace(length=_END_WORDS, is_end=True) if match.length > _END_WORDS else match

    def turns_from(self, match: "MessageMatch") -> list[list[int]]:
        """Return the rows of the turn of a match and of those after it in its conversation.

        Of each turn these are the user's message and the answer that ended it.
        """
        look, row = self._look, self._look.row_at(match.seq, match.place)
        if row is None:
            return []
        row = look.first(row)
        while look.roles[row] == self._model and look.before[row] >= 0:
            row = int(look.before[row])
        turns = list[list[int]]()
        while row >= 0:
            newest = look.newest(row)
            if look.roles[row] == self._user or not turns:
                turns.append([newest] if self._mask[newest] else [])
            elif self._mask[newest]:
                turns[-1] = [*turns[-1][:1], newest]
            row = int(self._after[row])
        return turns

    def opening_of(self, row: int) -> tuple[int, int] | None:
        """Return seq and place of the message below which a row stands, `None` if there is none.

        Of a model's row this is the user's that began the turn, of a user's short answer the model's question.
        """
        look = self._look
        if look.roles[row] == self._user:
            opening = self.asked_before(row)
        else:
            before = look.first(row)
            while before >= 0 and look.roles[before] != self._user:
                before = int(look.before[before])
            opening = None if before < 0 else look.newest(before)
        return None if opening is None else (int(look.seqs[opening]), int(look.places[opening]))

    def is_answered_question(self, row: int) -> bool:
        """Return whether a row is a question of a user, and the model answered it."""
        return bool(self._look.questions[row] > ASKING_SHARE) and self.answer_of(row) is not None


@cache
def _idle_hashes() -> frozenset[int]:
    """Return the hashes by which an index has the words of everyday talk and of courtesy, and their stems."""
    from refold.index import terms  # noqa: PLC0415 - imported on first use

    return frozenset(hash(form) for word in terms.idle_words() for form in (word, terms.mark_stem(terms.porter(word))))


def is_asking(text: str) -> bool:
    """Return whether a text asks more than it says."""
    from refold.index.terms import question_share  # noqa: PLC0415 - imported on first use

    return question_share(text) > ASKING_SHARE


def match_of(number: int, look: "MessageView", row: int) -> "MessageMatch":
    """Return a row as a match without words of a query."""
    from refold.index.messages import MessageMatch  # noqa: PLC0415 - imported on first use

    return MessageMatch(number, int(look.seqs[row]), int(look.places[row]), 0.0, 0, int(look.lengths[row]), {})


def with_replaced_apart(look: "MessageView", replaced: Sequence[Replaced], end: int) -> "MessageView":
    """Return rows among which new contents have no neighbours: they came later than the messages that they are of."""
    import numpy as np  # noqa: PLC0415 - imported on first use

    known = [each for each in replaced if each[1] <= end]
    if not known:
        return look
    before, groups = look.before.copy(), dict[tuple[str, str], list[int | None]]()
    for stream, seq, event in known:
        row = look.row_at(seq, 0)
        groups.setdefault((stream, event.id), [look.row_at(event.origin, event.place)]).append(row)
        if row is not None:
            before[before == row] = before[row]
            before[row] = -1
    contents = np.arange(len(before))
    for rows in groups.values():
        own = [row for row in rows if row is not None]
        contents[own] = own[-1:]
    return look._replace(before=before, contents=contents)


def hidden_rows(replaced: Sequence[Replaced], end: int, shown: AbstractSet[int]) -> list[tuple[int, int]]:
    """Return seq and place of the messages whose content was replaced later, or is shown already."""
    known = [each for each in replaced if each[1] <= end]
    last = {(stream, event.id): seq for stream, seq, event in known}
    hidden = [(event.origin, event.place) for _, _, event in known]
    return hidden + [(seq, 0) for stream, seq, event in known if last[stream, event.id] != seq or event.origin in shown]
