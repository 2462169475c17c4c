"""The answers of a model beside the questions of users, and the newest contents of messages, among indexed rows."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from refold.message import MessageReplaced

if TYPE_CHECKING:
    from refold.index.messages import MessageMatch, MessageView

ASKING_SHARE: Final = 0.5  # A message whose share of questions is larger answers nothing.
_ANSWER_WORDS_MAX: Final = 60  # An answer beside its question; a longer one has words of its own to be found by.
Replaced: TypeAlias = tuple[str, int, MessageReplaced]  # A new content, with its stream and seq.


def with_answers(
    looks: "Sequence[tuple[MessageView, Any]]", found: "Sequence[MessageMatch]"
) -> "Iterator[MessageMatch]":
    """Yield matches, and after each question of a user a short answer, because a question alone answers nothing."""
    answers = [Answers(look, mask) for look, mask in looks]
    known = set[tuple[int, int]]()
    for match in found:
        if (match.seq, match.place) in known:
            continue
        row = answers[match.look].of(match)
        reply = None if row is None else match_of(match.look, looks[match.look][0], row)
        for each in (match, reply):
            if each is not None and (each.seq, each.place) not in known:
                known.add((each.seq, each.place))
                yield each


class Answers:
    """The messages by which a model ended the turns that users began with a question."""

    def __init__(self, look: "MessageView", mask: Any) -> None:
        from refold.memory.message_indexes import ROLE_NUMBERS  # noqa: PLC0415 - imported on first use

        self._look = look
        self._mask = mask
        self._after = look.after()
        self._user, self._model = ROLE_NUMBERS["user"], ROLE_NUMBERS["assistant"]

    def of(self, match: "MessageMatch") -> int | None:
        """Return the row of the answer to a match, `None` if it is no question of a user or has no short answer."""
        row = self._look.row_at(match.seq, match.place)
        return None if row is None else self.of_row(row)

    def of_row(self, row: int) -> int | None:
        """Return the row of the answer to a row, `None` if it is no question of a user or has no short answer."""
        look, answer = self._look, None
        if look.roles[row] != self._user or look.questions[row] <= ASKING_SHARE:
            return None
        following = int(self._after[look.first(row)])
        while following >= 0 and look.roles[following] == self._model:
            newest = look.newest(following)
            answer = newest if self._mask[newest] else answer
            following = int(self._after[following])
        return answer if answer is not None and look.lengths[answer] <= _ANSWER_WORDS_MAX else None


def is_asking(text: str) -> bool:
    """Return whether a text asks more than it says."""
    from refold.index.terms import question_share  # noqa: PLC0415 - imported on first use

    return question_share(text) > ASKING_SHARE


def opening_of(look: "MessageView", match: "MessageMatch") -> tuple[int, int] | None:
    """Return seq and place of the message of a user that began the turn of a model's match, `None` if it has none."""
    from refold.memory.message_indexes import ROLE_NUMBERS  # noqa: PLC0415 - imported on first use

    row = look.row_at(match.seq, match.place)
    if row is None or look.roles[row] != ROLE_NUMBERS["assistant"]:
        return None
    row = look.first(row)
    while row >= 0 and look.roles[row] != ROLE_NUMBERS["user"]:
        row = int(look.before[row])
    if row < 0:
        return None
    newest = look.newest(row)
    return int(look.seqs[newest]), int(look.places[newest])


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
