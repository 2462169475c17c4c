"""The statements of users as a whole, and the newest turns, for queries that have no words of an answer."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from refold.memory import answers

if TYPE_CHECKING:
    from refold.index.messages import MessageMatch, MessageView

_Group: TypeAlias = "tuple[MessageMatch, ...]"
_WHOLE_WORDS_MAX: Final = 500  # The most words of users that are shown whole, and of the newest turns.
_TURNS_COUNT_MAX: Final = 200
_BEST_SHARE: Final = 0.5  # Of the score of the best message, for one that is about the same.


def statements_of_users(
    looks: "Sequence[tuple[MessageView, Any]]", query: str, *, about_user: bool
) -> "tuple[list[MessageMatch], list[MessageMatch]]":
    """Return all that users said, newest first, and then what they asked, with the answers, as far as there is room.

    What has more words of the query comes before what is newer there. If it is too many words: the newest of what they
    said for a question about the user, else nothing. A short answer comes with the model's question. Return also the
    messages that there was no room for.
    """
    is_whole = _is_little(looks)
    if not (is_whole or about_user):
        return [], []
    statements, questions = list[_Group](), list[_Group]()
    for number, look, rows, row in _user_rows(looks):
        own = answers.match_of(number, look, row)
        if look.questions[row] <= answers.ASKING_SHARE:
            question = rows.question_before(number, row)
            statements.append((own,) if question is None else (own, question))
        elif (reply := rows.short_answer_of(row)) is not None:
            questions.append((own, answers.match_of(number, look, reply)))
    statements.sort(key=_place_of, reverse=True)
    questions.sort(key=_place_of, reverse=True)
    if is_whole:
        room = _WHOLE_WORDS_MAX - sum(map(_length_of, statements))
        best = sorted(questions, key=_relevance(looks, query))  # Stable: the newest of the same relevance first.
        groups = [*statements, *_fitting(best, room)]
    else:
        groups = list(_fitting(statements, _WHOLE_WORDS_MAX))
    matches = list(_distinct(groups))
    places = {_place(match) for match in matches}
    return matches, [match for match in _distinct([*statements, *questions]) if _place(match) not in places]


def _relevance(looks: "Sequence[tuple[MessageView, Any]]", query: str) -> "Callable[[_Group], float]":
    """Return a key that sorts messages by the words of a query that they have, the best first."""
    from refold.index.messages import search  # noqa: PLC0415 - imported on first use

    rows, masks = [look for look, _ in looks], [mask for _, mask in looks]
    scores = {_place(match): match.score for match in search(rows, query, None, sum(map(len, masks)), among=masks)}
    return lambda group: -max(scores.get(_place(match), 0.0) for match in group)


def _is_little(looks: "Sequence[tuple[MessageView, Any]]") -> bool:
    """Return whether all that users said, without what they asked, may be shown."""
    from refold.memory.message_indexes import ROLE_NUMBERS  # noqa: PLC0415 - imported on first use

    count = 0
    for look, mask in looks:
        said = mask & (look.roles == ROLE_NUMBERS["user"]) & (look.questions <= answers.ASKING_SHARE)
        count += int(look.lengths[said].sum())
    return count <= _WHOLE_WORDS_MAX


def newest_turns(looks: "Sequence[tuple[MessageView, Any]]") -> "list[MessageMatch]":
    """Return the newest messages of users, newest first, each with the answer that ended its turn if there is room."""
    turns = list[_Group]()
    for number, look, rows, row in _user_rows(looks, _TURNS_COUNT_MAX):
        answer, question = rows.answer_of(row), rows.question_before(number, row)
        own = [answers.match_of(number, look, each) for each in (row, answer) if each is not None]
        turns.append((*own, question) if question is not None else tuple(own))
    turns.sort(key=_place_of, reverse=True)
    return list(_distinct(_fitting_turns(turns)))


def turns_from_newest(
    looks: "Sequence[tuple[MessageView, Any]]", found: "Sequence[MessageMatch]"
) -> "list[MessageMatch]":
    """Return the turn of the newest of the best matches and those after it in its conversation, the newest of many.

    The best matches are those with half of the best score, so that a common word of the topic is not enough.
    """
    least = max((match.score for match in found), default=0.0) * _BEST_SHARE
    newest = max((match for match in found if match.score >= least), key=_place, default=None)
    if newest is None:
        return []
    look, mask = looks[newest.look]
    rows = answers.Answers(look, mask)
    turns = [
        tuple(answers.match_of(newest.look, look, row) for row in turn) for turn in rows.turns_from(newest) if turn
    ]
    return list(_distinct(_fitting_turns([*turns[:1], *reversed(turns[1:])])))


def _user_rows(
    looks: "Sequence[tuple[MessageView, Any]]", count_max: int | None = None
) -> "Iterator[tuple[int, MessageView, answers.Answers, int]]":
    """Yield the newest rows of users, each with the number of its look, the look, and its answers."""
    from refold.memory.message_indexes import ROLE_NUMBERS  # noqa: PLC0415 - imported on first use

    for number, (look, mask) in enumerate(looks):
        rows = answers.Answers(look, mask)
        found: list[int] = (mask & (look.roles == ROLE_NUMBERS["user"])).nonzero()[0].tolist()
        for row in islice(reversed(found), count_max):
            yield number, look, rows, row


def _fitting(groups: Sequence[_Group], room: int) -> Iterator[_Group]:
    """Yield groups while there is room, without those that are more words."""
    for group in groups:
        length = _length_of(group)
        if length <= room:
            room -= length
            yield group


def _fitting_turns(turns: Iterable[_Group]) -> Iterator[_Group]:
    """Yield turns while there is room, without the answer where there is room for the user's message alone."""
    room = _WHOLE_WORDS_MAX
    for turn in turns:
        taken = turn if _length_of(turn) <= room else turn[:1]
        room -= _length_of(taken)
        if room < 0:
            return
        yield taken


def _distinct(groups: Iterable[_Group]) -> "Iterator[MessageMatch]":
    """Yield the messages of groups once, whole if any group has them whole."""
    found = dict[tuple[int, int], "MessageMatch"]()
    for match in (match for group in groups for match in group):
        key = match.seq, match.place
        if key not in found or found[key].is_end:
            found[key] = match
    yield from found.values()


def _length_of(group: _Group) -> int:
    return sum(match.length for match in group)


def _place(match: "MessageMatch") -> tuple[int, int]:
    return match.seq, match.place


def _place_of(group: _Group) -> tuple[int, int]:
    return group[0].seq, group[0].place
