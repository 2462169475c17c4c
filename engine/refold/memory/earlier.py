"""Earlier messages for a context: those that left the window of a conversation, and those of others of its project.

Only the newest messages of a project are searched, among the newest events of a branch, so that no search, the first of
a process included, takes longer as the log grows. The result depends on the log alone, not on earlier searches.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, islice, takewhile, zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from refold.engine.reader import Reader
from refold.engine.scan import EventFilter, events_before, events_with, places_of
from refold.engine.streams import key_of
from refold.engine.transaction import erased_count
from refold.engine.vectors import VectorModel
from refold.event import ConversationOpened, Event, ForkDropped, Forked, Recorded, Restored, StateImported
from refold.limits import EARLIER_EVENTS_COUNT, EARLIER_MESSAGES_COUNT
from refold.memory import answers, retractions, user_messages
from refold.memory.criteria import NEWEST, TURNS, WORDS_MIN, Criteria, criteria_of
from refold.memory.lineage import Lineage, Span, by_stream
from refold.memory.reasons import shorten
from refold.memory.retractions import Retractions
from refold.memory.scope_block import ROLES, ScopeBlock
from refold.memory.turns import is_question
from refold.message import Message, MessageAppended, MessageReplaced, is_withheld, messages_of, text_of
from refold.text import words
from refold.threads import enter_once, forkable_lock
from refold.views.session import SESSION
from refold.views.store import DEFAULTS

if TYPE_CHECKING:
    from refold.index.messages import MessageMatch, MessageView
    from refold.memory.core import Core
    from refold.memory.message_indexes import MessageIndexes

# A query is judged without the words of everyday talk. The relevance of the best message is the share that it and its
# neighbours have of what is rare in the query, times the number of its words, divided by the number of words it needs:
# two words must be 0.38 of what is rare, four words 0.19. A question that has less gets a few messages if one of them
# has 0.15 of what is rare, without its neighbours and almost whatever its length, in words that are together as rare as
# one word of at most so many messages, or of this share of them. So does a question of one word that more messages
# have: what is often spoken of must not bring less than what is not. If nothing is left of a question for a fact about
# a person ("What is my name?"), the words that name the fact are its subject. How the values were chosen:
# benchmarks/README.md. While all that users said is little, it is shown to any query that has a subject, and to any
# question that is no small talk: a question in other words than its answer must not fail where all that there is to
# know takes less than a page. With what they asked come the answers, as far as there is room, those first that have
# words of the query. A question about the user as a whole ("What do you know about me?") has no words of an answer: it
# brings the newest of what they said. One about earlier conversations as a whole ("Where were we?", "Go on.") brings
# the newest turns, with what the model answered. One about how far something came ("Where were we with the dinner?")
# brings the turns of its conversation from the newest message about it on, beside the best matches.
_RELEVANCE_MIN: Final = 0.38
_RARE_COUNT: Final = 10
_RARE_SHARE: Final = 0.02
_UNSURE_COUNT: Final = 8  # Messages for a question below the relevance, and words in all of them but the best.
_UNSURE_WORDS_MAX: Final = 300
_SHARE_MIN: Final = 0.15
_DAMPING: Final = 0.2  # As a ranking's, which is 0.8: the best of a few may be long.
_NO_WORDS: Final = 2**31  # Words that no message has: it is found by its meaning alone.
_WHOLE: Final = "besides messages with its words, all that users said is shown while that is little"
_WHOLE_CUT: Final = "besides messages with its words, the newest of what users said is shown, {} messages at most"
_TOO_MANY: Final = "too many messages have"
_CONVERSATION: Final = "conversation/"
_FACTS: Final = ("project/", "profile/")
_LAST: Final = 2**62
_MESSAGES: Final[frozenset[type[Event]]] = frozenset((MessageAppended, MessageReplaced))
_TYPES: Final[tuple[type[Event], ...]] = (
    *_MESSAGES,
    ConversationOpened,
    Forked,
    StateImported,
    ForkDropped,
    *retractions.TYPES,
)
_SCANNED_COUNT: Final = 4_096  # Events that are taken at a time.
_BLOCKS_COUNT: Final = 32  # The number of blocks of messages that are kept; each holds those of one project.


class Earlier(NamedTuple):
    """An earlier message, and its place among those of its event."""

    message: Message
    place: int
    opening: tuple[int, int] | None = None
    """Seq and place of the message below which it stands: what it answers."""
    is_answered: bool = False
    """Whether it is a question that has an answer."""
    is_end: bool = False
    """Whether only the question at its end is shown, with the answer to it."""


class Meaning(NamedTuple):
    """A query's vector of length 1 by an embedder, and the rate from which a message counts as similar."""

    model: VectorModel
    vector: Any
    floor_rate: float


def meaning_of(core: "Core", query: str) -> Meaning | None:
    """Return the meaning of a query, ``None`` if the embedder fails, which is logged."""
    from refold.memory.message_vectors import model_of, vector_of  # noqa: PLC0415 - few contexts need them

    vector = vector_of(core, query)
    return None if vector is None else Meaning(model_of(core), vector, core.embedding.floor_rate)


def read(reader: Reader, places: Sequence[tuple[int, int]]) -> list[Earlier]:
    """Read messages by the seqs of their events and their places in them, leaving out erased ones."""
    if not places:
        return []
    with reader.state_lock:
        written = reader.loader.recorded_events([seq for seq, _ in places])
    found = (
        Earlier(list(messages_of(recorded))[place], place) for (_, place), recorded in zip(places, written, strict=True)
    )
    return [each for each in found if not each.message.erased]


class EarlierQuery(NamedTuple):
    """A search of a conversation, as of a seq or the head, for the messages that answer a query.

    Those of other conversations count if they were opened with ``project`` and are not forks of the same origin.
    """

    branch: int
    at: int | None
    stream: str
    project: str
    text: str
    meaning: Meaning | None
    """The meaning of the text, by which messages that are embedded are found, too."""
    shown: AbstractSet[int]
    """The seqs of messages to leave out."""
    top_k: int
    asker: str | None
    """The name of the user who asks: of a question about themselves, what others said is left out."""
    opens: bool
    """Whether no answer is in the window, so that what is left to do was said in earlier conversations."""

    @property
    def criteria(self) -> "Criteria":
        """What the query is about."""
        return criteria_of(self.text, opens=self.opens)

    @property
    def is_personal(self) -> bool:
        """Whether a user with a name asks about themselves, or about their own earlier conversations."""
        return self.asker is not None and bool(self.criteria.about)


class EarlierMessages:
    """The newest messages of the branches of a memory, indexed from the log when they are searched."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self._reader = core.engine.reader
        self._lock = forkable_lock()
        self._newest: dict[int, _NewestEvents] = {}
        self._erased_count = 0

    def clear(self) -> None:
        """Drop everything that was read."""
        with enter_once(self._lock):
            self._newest.clear()

    def search(self, query: EarlierQuery) -> tuple[list[Earlier], frozenset[tuple[int, int]]]:
        """Find messages, the best first; none if nothing answers the query. Return also which more there are.

        These are seqs and places of what users said, where some of it is shown. Messages that say only what was
        retracted are left out.
        """
        newest, end, looks = self._looks(query)
        if not looks:
            return [], frozenset()
        matched = matches(looks, query)
        return self._current(newest, end, looks, matched.found), matched.left_out

    def _current(
        self,
        newest: "_NewestEvents",
        end: int,
        looks: "Sequence[tuple[MessageView, Any]]",
        found: "Sequence[MessageMatch]",
    ) -> list[Earlier]:
        """Read matches, without those that say only what was retracted, and questions that had only such answers."""
        rows = [answers.Answers(look, mask) for look, mask in looks]
        matched = {(match.seq, match.place): match for match in found}
        earlier = list[Earlier]()
        for each in read(self._reader, list(matched)):
            match = matched[each.message.seq, each.place]
            row = looks[match.look][0].row_at(match.seq, match.place)
            assert row is not None, "a match is a row"
            opening, is_answered = rows[match.look].opening_of(row), rows[match.look].is_answered_question(row)
            earlier.append(each._replace(opening=opening, is_answered=is_answered, is_end=match.is_end))
        withheld = self._find_withheld(earlier)
        kept = [each for each in earlier if not (each in withheld or newest.is_retracted(each.message, end))]
        lost = {each.opening for each in earlier} - {each.opening for each in kept}
        return [
            each._replace(message=newest.without_request(each.message, end))
            for each in kept
            if (each.message.seq, each.place) not in lost or not answers.is_asking(text_of(each.message))
        ]

    def _find_withheld(self, earlier: Sequence[Earlier]) -> list[Earlier]:
        """Return those of messages that are not to be remembered, or that answer such a one."""
        openings = {each.opening for each in earlier if each.opening is not None and not is_question(each.message)}
        places = {
            (each.message.seq, each.place) for each in read(self._reader, [*openings]) if is_withheld(each.message)
        }
        return [each for each in earlier if is_withheld(each.message) or each.opening in places]

    def read(self, branch: int, at: int | None, places: Sequence[tuple[int, int]]) -> list[Earlier]:
        """Read messages by the seqs of their events and their places in them, as a search at a seq shows them."""
        newest, end = self._newest_at(branch, at)
        found = read(self._reader, places)
        return [each._replace(message=newest.without_request(each.message, end)) for each in found]

    def find_retracted(self, branch: int, at: int | None, seqs: Sequence[int]) -> list[Message]:
        """Return the messages of events that a search leaves out or cuts because what they said was retracted."""
        newest, end = self._newest_at(branch, at)
        suspects = [seq for seq in seqs if newest.may_be_retracted(seq, end)]
        if not suspects:
            return []
        with self._reader.state_lock:
            written = self._reader.loader.recorded_events(suspects)
        messages = (message for recorded in written for message in messages_of(recorded) if not message.erased)
        return [
            message
            for message in messages
            if newest.is_retracted(message, end) or newest.rest_of(message, end) is not None
        ]

    def without_retracted(self, branch: int, at: int | None, messages: Sequence[Message]) -> list[Message]:
        """Leave out, or cut, the messages that a search leaves out or cuts because what they said was retracted."""
        newest, end = self._newest_at(branch, at)
        return [
            newest.without_request(message, end)
            for message in messages
            if not (newest.may_be_retracted(message.seq, end) and newest.is_retracted(message, end))
        ]

    def past_seqs(self, branch: int, at: int | None, stream: str, home: str, seqs: Iterable[int]) -> list[int]:
        """Return the seqs at which a conversation, given by its stream, finds what was said in another one, or in it.

        Not those of what was dropped or taken back by a restore, unless another conversation goes on from it.
        """
        newest, end = self._newest_at(branch, at)
        with enter_once(self._lock):
            return newest.past_seqs(stream, home, seqs, end)

    def absence(self, query: EarlierQuery, message: Earlier) -> str:
        """Return why a search does not find a message; empty if it does."""
        newest, end, looks = self._looks(query)
        with enter_once(self._lock):
            outside = newest.exclusion(message, query.stream, query.project, end)
        if outside:
            return outside
        name = message.message.name if message.message.role == "user" else None
        if query.is_personal and name not in (None, query.asker):
            return f"it is what {name} said, and {query.asker} asks about themselves"
        own = newest.rows_of(message, end)
        rows = [(look, mask & ~look.mask_without(own)) for look, mask in looks]
        if not any(mask.any() for _, mask in rows):
            return "its content was replaced"
        found, reason, _ = matches(looks, query)
        places = [(match.seq, match.place) for match in found if (match.seq, match.place) in own]
        if not places:
            return _mismatch(looks, rows, query, reason)
        if any((each.message.seq, each.place) in own for each in self._current(newest, end, looks, found)):
            return ""
        if self._find_withheld([message]):
            return "the user asked not to remember it"
        is_taken_back = all(newest.is_retracted(each.message, end) for each in read(self._reader, places))
        return "what it said was taken back" if is_taken_back else "the answer to it was taken back"

    def _looks(self, query: EarlierQuery) -> "tuple[_NewestEvents, int, list[tuple[MessageView, Any]]]":
        """Return the newest messages, the seq that they are searched at, and the rows that a conversation searches."""
        newest, end = self._newest_at(query.branch, query.at)
        with enter_once(self._lock):
            return newest, end, list(newest.looks(query, max(end - EARLIER_EVENTS_COUNT, 0), end))

    def _newest_at(self, branch: int, at: int | None) -> "tuple[_NewestEvents, int]":
        """Return the newest messages of a branch, and the seq that they are searched at."""
        with enter_once(self._lock):
            count = erased_count(self._reader)
            if count != self._erased_count:
                self._newest.clear()
                self._erased_count = count
            end = self._reader.current_head() if at is None else at
            return self._fill_newest(branch, max(end - EARLIER_EVENTS_COUNT, 0), end), end

    def _fill_newest(self, branch: int, after: int, end: int) -> "_NewestEvents":
        """Return the messages of a branch after a seq and up to another one."""
        newest = self._newest.get(branch)
        if newest is None or after - newest.after > EARLIER_EVENTS_COUNT:
            newest = self._newest[branch] = _NewestEvents(self._core, branch, after)
        elif after < newest.after:
            # Of a moment long ago: used once and not kept.
            newest = _NewestEvents(self._core, branch, after)
        newest.fill(end)
        return newest


class MessageMatches(NamedTuple):
    """The messages that a query brings, and why it brings no others."""

    found: "list[MessageMatch]"
    reason: str
    left_out: frozenset[tuple[int, int]]
    """Seqs and places of what else users said, where some of it is brought."""


def matches(looks: "Sequence[tuple[MessageView, Any]]", query: EarlierQuery) -> MessageMatches:
    """Search rows, each with a mask of those that can be found."""
    from refold.index import messages as index  # noqa: PLC0415 - imported on first use
    from refold.index.questions import USER  # noqa: PLC0415
    from refold.memory.message_indexes import ROLE_NUMBERS  # noqa: PLC0415

    rows, masks = [look for look, _ in looks], [mask for _, mask in looks]
    roles = [ROLE_NUMBERS[role] for role in ROLES]
    criteria, meaning, top_k = query.criteria, query.meaning, query.top_k
    best = None if criteria.reason else _best_answer(looks, criteria, roles)
    count = 0 if best is None else top_k if best.is_sure else _UNSURE_COUNT if best.is_possible else 0
    found = list["MessageMatch"]()
    if count or (meaning is not None and criteria.subject and criteria.is_question):
        vector, rate = (None, 0.0) if meaning is None else (meaning.vector, meaning.floor_rate)
        count, words_min = (count, 1) if count else (_UNSURE_COUNT, _NO_WORDS)
        found = index.search(
            rows,
            criteria.query,
            roles,
            min(count, top_k),
            words_min=words_min,
            among=masks,
            vector=vector,
            floor_rate=rate,
        )
        resumed = user_messages.turns_from_newest(looks, found) if criteria.is_resumed else []
        found = list(islice(answers.with_answers(looks, found), min(count, top_k)))
        found = list(islice(answers.with_what_follows(looks, found), top_k))
        found = found if best is not None and best.is_sure else list(_short_enough(found))
        found = _alternate(resumed, found, top_k)
    is_about_user = criteria.about == USER
    if criteria.about and not is_about_user:
        found = user_messages.newest_turns(looks)[:top_k]
    # While users have said little, all of it is shown: a message that shares a word must not hide the one that answers.
    places = {(match.seq, match.place) for match in found}
    by_users, left_out = list["MessageMatch"](), list["MessageMatch"]()
    if criteria.may_be_answered:
        by_users, left_out = user_messages.statements_of_users(looks, criteria.query, about_user=is_about_user)
    whole = [match for match in by_users if (match.seq, match.place) not in places]
    reason = criteria.reason or ("" if best is None else best.reason)
    reason = reason if criteria.about else _WHOLE if whole else "" if found else reason
    room = max(0, top_k - len(found)) if top_k < DEFAULTS["messages_max_injected"] else len(whole)
    if room < len(whole):
        reason = reason if criteria.about else _WHOLE_CUT.format(top_k)
    unfit = frozenset((match.seq, match.place) for match in (*whole[room:], *left_out))
    return MessageMatches([*found, *whole[:room]], reason, unfit - places)


def _alternate(resumed: "Sequence[MessageMatch]", found: "Sequence[MessageMatch]", top_k: int) -> "list[MessageMatch]":
    """Return by turns what was said last of a topic, which can go on from a mere mention, and the best matches."""
    distinct = dict[tuple[int, int], "MessageMatch"]()
    for match in chain.from_iterable(zip_longest(resumed, found)):
        if match is not None:
            distinct.setdefault((match.seq, match.place), match)
    return list(distinct.values())[:top_k]


def _short_enough(found: "Sequence[MessageMatch]") -> "Iterator[MessageMatch]":
    """Yield the best message however long it is, and of the others those that have few words together."""
    yield from found[:1]
    count = 0
    for match in found[1:]:
        if count + match.length <= _UNSURE_WORDS_MAX:
            count += match.length
            yield match


class _BestAnswer(NamedTuple):
    """How well the best message answers a query."""

    is_sure: bool
    """Enough of what is rare in the subject is in one message, or in it and its neighbours."""
    is_possible: bool
    """The query is a question, and some of what is rare in its subject is in one message."""
    reason: str
    """Why neither holds."""


def _best_answer(looks: "Sequence[tuple[MessageView, Any]]", criteria: Criteria, roles: Sequence[int]) -> _BestAnswer:
    import numpy as np  # noqa: PLC0415 - imported on first use

    from refold.index.messages import RANKING, rows_of_word, search  # noqa: PLC0415
    from refold.index.signals import rarity  # noqa: PLC0415
    from refold.index.terms import STEMMERS, writes_compounds  # noqa: PLC0415

    rows, masks = [look for look, _ in looks], [mask for _, mask in looks]
    statements = [look.questions <= answers.ASKING_SHARE for look in rows]
    total, words_min = sum(map(len, statements)), min(WORDS_MIN, len(criteria.subject))
    weights = [np.zeros(len(each)) for each in statements]
    counts = [np.zeros(len(each), np.intp) for each in statements]
    whole, has_compounds = 0.0, writes_compounds(criteria.query)
    for term in dict.fromkeys(map(STEMMERS[RANKING.stemmer], criteria.subject)):
        having = rows_of_word(rows, term, masks, has_compounds=has_compounds)
        # What only asks makes no word common.
        weight = rarity(total, sum(int(mask[own].sum()) for mask, own in zip(statements, having, strict=True)))
        whole += weight
        for own, weight_of, count in zip(having, weights, counts, strict=True):
            weight_of[own] += weight
            count[own] += 1
    most, share = 0.0, 0.0
    for look, mask, weight_of, count in zip(rows, masks, weights, counts, strict=True):
        can_answer = mask & np.isin(look.roles, roles)
        most = max(most, float(weight_of[can_answer].max(initial=0.0)))
        damped = weight_of * count * np.maximum(1, look.lengths / RANKING.pivot_terms) ** -_DAMPING
        share = max(share, float(damped[can_answer].max(initial=0.0)) / (whole or 1.0) / words_min)
    query = " ".join(criteria.subject)
    best = search(rows, query, roles, 1, words_min=words_min, among=masks, has_compounds=has_compounds)
    relevance = best[0].score * best[0].words / words_min if best else 0.0
    is_rare = 0 < most >= rarity(total, max(_RARE_COUNT, int(_RARE_SHARE * total)))
    is_sure = relevance >= _RELEVANCE_MIN and (is_rare or words_min > 1)
    listing = " or ".join(map(repr, criteria.subject))
    if not most:
        reason = f"no message has {listing}"
    elif criteria.is_question and not is_rare:
        reason = f"{_TOO_MANY} {listing}"
    else:
        reason = f"the best message has a relevance of {relevance:.2f}, under {_RELEVANCE_MIN}"
    is_possible = criteria.is_question and (is_rare or words_min == 1) and share >= _SHARE_MIN
    return _BestAnswer(is_sure, is_possible, reason)


def _mismatch(
    looks: "Sequence[tuple[MessageView, Any]]",
    own: "Sequence[tuple[MessageView, Any]]",
    query: EarlierQuery,
    reason: str,
) -> str:
    """Return why a query does not find the message that the masks of ``own`` mark, and which of its words count."""
    from refold.index.messages import search  # noqa: PLC0415 - imported on first use
    from refold.index.terms import strip_contractions  # noqa: PLC0415
    from refold.memory.message_indexes import ROLE_NUMBERS  # noqa: PLC0415

    rows, masks = [look for look, _ in looks], [mask for _, mask in own]
    criteria, name = query.criteria, repr(shorten(query.text))
    whole = (_WHOLE, _WHOLE_CUT.format(query.top_k))
    if criteria.reason or reason in whole or reason.startswith(_TOO_MANY):
        return f"{name} brings {'this one not' if reason in (*whole, NEWEST, TURNS) else 'no messages'}: {reason}"
    if not reason and search(rows, criteria.query, None, 1, among=masks):
        roles = [ROLE_NUMBERS[role] for role in ROLES]
        count = query.top_k if _best_answer(looks, criteria, roles).is_sure else min(_UNSURE_COUNT, query.top_k)
        return f"other messages are better for {name}, and {count} at most are taken"
    subject = dict.fromkeys(criteria.subject)
    rest = [word for word in dict.fromkeys(words(strip_contractions(query.text))) if word not in subject]
    best = search(rows, " ".join(criteria.subject), None, 1, among=masks)
    count, listing = best[0].words if best else 0, shorten(", ".join(subject))
    but = f", and {shorten(', '.join(rest))} do not" if rest else ""
    return f"of the words of {name} {listing} count{but}; the message has {count}{reason and f', and {reason}'}"


class _NewestEvents:
    """The newest events of a branch: the messages of each project, and how conversations are related."""

    def __init__(self, core: "Core", branch: int, after: int) -> None:
        self.after = after
        self._core = core
        self._reader = core.engine.reader
        self._branch = branch
        self._seq = after
        # Seqs of the events that brought messages, by project, or by conversation and its forks if they have none.
        self._scopes: dict[str, array[int]] = {}
        self._homes: dict[int, array[int]] = {}  # The same, by the number of each conversation.
        self._blocks: OrderedDict[tuple[str, int], ScopeBlock] = (
            OrderedDict()
        )  # By scope and the place of the first seq.
        self._begins: dict[tuple[str, int], Recorded | None] = {}  # By stream and the seq of its last drop, or 0.
        self._early_drops: dict[
            tuple[str, int], int
        ] = {}  # By stream and a seq, from before the events that were read.
        self._forks: set[str] = set()  # Those that were met.
        self._lineage = Lineage(self._reader, branch)
        self._retractions = Retractions()
        self._questions: dict[int, int] = {}  # Seq of a message -> the seq of the one that it answers, or 0.

    def fill(self, end: int) -> None:
        """Scan the events up to a seq, decoding few of them."""
        found = places_of(self._reader, _TYPES, branch=self._branch, after=self._seq, until=end)
        while page := list(islice(found, _SCANNED_COUNT)):
            self._take_page(page)
        self._seq = max(self._seq, end)

    def _take_page(self, page: Sequence[tuple[int, int, type[Event]]]) -> None:
        names = self._reader.names()
        with self._reader.state_lock:
            decoded = iter(
                self._reader.loader.recorded_events([seq for seq, _, event_type in page if event_type not in _MESSAGES])
            )
        for seq, number, event_type in page:
            if event_type in _MESSAGES:
                home = self._homes.get(number)
                if home is None:
                    home = self._homes[number] = self._seqs_of(names.stream(number), seq)
                home.append(seq)
                continue
            recorded, stream = next(decoded), names.stream(number)
            if stream.startswith(_CONVERSATION):
                self._homes.pop(number, None)
                self._lineage.take(recorded)
                if event_type is StateImported:
                    self._seqs_of(stream, seq).append(seq)
            elif stream.startswith(_FACTS):
                self._retractions.take(recorded)

    def _seqs_of(self, stream: str, at: int) -> "array[int]":
        """Return the seqs of the scope of a conversation at a seq."""
        return self._scopes.setdefault(self._scope_name(stream, at), array("q"))

    def _first_place(self, name: str, end: int) -> int:
        """Return the place of the first of the newest messages of a scope at a seq."""
        return max(bisect_right(self._scopes.get(name, ()), end) - EARLIER_MESSAGES_COUNT, 0)

    def _block_of(self, name: str, end: int) -> tuple[str, ScopeBlock]:
        """Return the block that holds the newest messages of a scope at a seq, and its key in the index."""
        begin = self._first_place(name, end) // EARLIER_MESSAGES_COUNT * EARLIER_MESSAGES_COUNT
        block = self._blocks.pop((name, begin), None) or ScopeBlock(self._reader)
        block.fill(self._scopes[name][begin : begin + 2 * EARLIER_MESSAGES_COUNT])
        self._blocks[name, begin] = block
        if len(self._blocks) > _BLOCKS_COUNT:
            self._blocks.popitem(last=False)
        return f"{self._branch}:{self.after}:{begin}:{name}", block

    # Where a conversation began, and what it is a fork of, can be older than the events that were read. It is looked up
    # in the log as of a seq, so that it depends neither on where reading began nor on what came later.

    def _scope_name(self, stream: str, at: int) -> str:
        """Return the name of the scope of a conversation at a seq: its project, or else what it was forked from."""
        begin = self._begin(stream, at)
        if begin is None:
            return stream
        event: Any = begin.event
        if isinstance(event, StateImported) and event.project is None:  # It may have been empty, and opened later.
            project = self._reader.read(key_of(self._branch, stream), _project, at)
        else:
            project = event.project
        return self._root(stream, begin.stamp.seq) if project is None else f"project/{project}"

    def _root(self, stream: str, at: int) -> str:
        """Return the conversation from which a conversation was forked at a seq, directly or through others."""
        while begin := self._begin(stream, at):
            base = self._base_of(begin)
            if not base:
                break
            stream, at = base, begin.stamp.seq - 1
        return stream

    def _base_of(self, begin: Recorded) -> str:
        """Return the stream that a conversation began from, empty if it began from none but its own."""
        event = begin.event
        base = event.base_stream if isinstance(event, (Forked, Restored)) else 0
        name = self._reader.names().stream(base) if base else ""
        return "" if name == begin.stamp.stream else name

    def _begin(self, stream: str, at: int) -> Recorded | None:
        """Return the first event of a conversation after its last drop by a seq, ``None`` if there is none by then."""
        place = stream, self._lineage.last_drop(stream, at) or self._early_drop(stream, min(at, self.after))
        begin = self._begins.get(place)
        if begin is None:
            begin = self._begins[place] = self._first_after(*place)
            if begin is not None and self._base_of(begin):
                self._forks.add(stream)
        return begin if begin is not None and begin.stamp.seq <= at else None

    def _early_drop(self, stream: str, at: int) -> int:
        """Return the seq of the last drop of a conversation by a seq that is not after those that were read, or 0."""
        if (stream, at) not in self._early_drops:
            sought = EventFilter((), (ForkDropped,))
            drops = events_with(self._reader, sought, branch=self._branch, stream=stream, until=at, backwards=True)
            self._early_drops[stream, at] = next((recorded.stamp.seq for recorded in drops), 0)
        return self._early_drops[stream, at]

    def _first_after(self, stream: str, after: int) -> Recorded | None:
        with self._reader.state_lock:
            slot = self._reader.stream(key_of(self._branch, stream))
            seq = next(iter(() if slot is None else self._reader.loader.seqs_between(slot, after, slot.seq)), None)
            return None if seq is None else self._reader.loader.recorded_events([seq])[0]

    def may_be_retracted(self, seq: int, end: int) -> bool:
        """Return whether anything that a message or the message it answers said may have been retracted at a seq."""
        if not self._retractions.has_any:
            return False
        question = self._question_of(seq, end)
        is_touched = any(self._retractions.is_touched(each, end) for each in (seq, question) if each)
        return is_touched or (question > 0 and self._retractions.may_repeat(seq))

    def is_retracted(self, message: Message, end: int) -> bool:
        """Return whether all that a message said was retracted at a seq, or all that the message it answers said.

        What a model said counts, too, if it repeats what was retracted later, or what it was asked to forget.
        """
        if not self._retractions.has_any:
            return False
        question, text = self._question_of(message.seq, end), text_of(message)
        if question and self._retractions.is_touched(question, end):
            asked = self._question_at(question)[0]
            rest = self._retractions.rest_of(question, asked, end)
            if self._retractions.hides(question, None, end, rest=rest):
                return True
            if rest is not None and retractions.names_removed(text, asked, rest):
                return True
        if self._retractions.hides(message.seq, f"{message.role}: {text}", end, rest=self.rest_of(message, end)):
            return True
        scope = self._scope_name(message.stamp.stream, end)
        return message.role == "assistant" and self._retractions.repeats(
            message.seq, text, lambda: self._question_at(question), scope, end, lambda each: self._question_at(each)[1]
        )

    def rest_of(self, message: Message, end: int) -> str | None:
        """Return what a message says besides a request to forget, as `Retractions.rest_of` does."""
        return self._retractions.rest_of(message.seq, text_of(message), end)

    def without_request(self, message: Message, end: int) -> Message:
        """Return a message without its request to forget, if there is something else; whole if it has blocks."""
        rest = self.rest_of(message, end) if isinstance(message.content, str) else None
        return Message(replace(message.event, text=rest), message.stamp) if rest else message

    def _question_at(self, seq: int) -> tuple[str, str | None]:
        """Return the text of the message that an event added, and the name of who wrote it; nothing for 0."""
        if not seq:
            return "", None
        with self._reader.state_lock:
            (recorded,) = self._reader.loader.recorded_events([seq])
        messages = list(messages_of(recorded))
        return "".join(map(text_of, messages)), next((each.name for each in messages), None)

    def _question_of(self, seq: int, end: int) -> int:
        """Return the seq of the user's message that a model's message answers, 0 if it is not among those searched."""
        if seq not in self._questions:
            with self._reader.state_lock:
                (recorded,) = self._reader.loader.recorded_events([seq])
            event, question = recorded.event, 0
            if isinstance(event, MessageReplaced):
                question = self._question_of(event.origin, event.origin)
            elif isinstance(event, MessageAppended) and event.role != "user":
                after = seq - EARLIER_EVENTS_COUNT
                before = takewhile(lambda each: each[0] > after, events_before(self._reader, seq))
                question = next((at for at, each in before if _is_of_user(each)), 0)
            self._questions[seq] = question
        return self._questions[seq] if self._questions[seq] > end - EARLIER_EVENTS_COUNT else 0

    def looks(self, query: EarlierQuery, after: int, end: int) -> "Iterator[tuple[MessageView, Any]]":
        """Yield the rows that a conversation searches, each time with a mask of those it can find."""
        stream, project, shown, model = query.stream, query.project, query.shown, query.meaning and query.meaning.model
        own, is_personal = self._scope_name(stream, end), query.is_personal
        common = f"project/{project}"
        for name in dict.fromkeys((common, own)):
            seqs = self._scopes.get(name, ())
            if any(seq not in shown for seq in reversed(seqs)):
                first = max(after, seqs[self._first_place(name, end)] - 1)
                key, block = self._block_of(name, end)
                look, numbers = self._indexes.of_events(key, block.seqs, first, end, model)
                look = answers.with_replaced_apart(look, block.replaced, end)
                mask = self._mask(look, numbers, stream, end, shown, is_common=name == common)
                hidden = answers.hidden_rows(block.replaced, end, shown)
                hidden += block.said_by_others(query.asker) if is_personal and query.asker is not None else []
                yield look, mask & look.mask_without(hidden) if hidden else mask

    @property
    def _indexes(self) -> "MessageIndexes":
        from refold.memory.message_indexes import MessageIndexes  # noqa: PLC0415 - loads numpy, which few contexts need

        return self._core.part(MessageIndexes)

    def _mask(
        self,
        look: "MessageView",
        numbers: Mapping[str, int],
        stream: str,
        end: int,
        shown: AbstractSet[int],
        *,
        is_common: bool,
    ) -> Any:
        import numpy as np  # noqa: PLC0415 - imported on first use

        begins, ends = np.zeros(len(numbers)), np.full(len(numbers), _LAST if is_common else 0)
        spans = self._spans(stream, end, is_common=is_common)
        several = list[str]()
        for home in spans.keys() & numbers.keys():
            number, own = numbers[home], spans[home]
            begins[number], ends[number] = (own[0].after, own[0].until) if len(own) == 1 else (0, 0)
            several += [home] if len(own) > 1 else []
        mask = (look.seqs > begins[look.streams]) & (look.seqs <= ends[look.streams])
        for home in several:
            for span in spans[home]:
                mask |= (look.streams == numbers[home]) & (look.seqs > span.after) & (look.seqs <= span.until)
        return mask & ~np.isin(look.seqs, list(shown))

    def _family(self, stream: str, end: int) -> set[str]:
        """Return a conversation and those with the same origin at a seq."""
        root = self._root(stream, end)
        return {stream, root, *(fork for fork in tuple(self._forks) if self._root(fork, end) == root)}

    def _spans(self, stream: str, end: int, *, is_common: bool) -> Mapping[str, Sequence[Span]]:
        """Return what a conversation finds of its own family, and of others of which it does not find all.

        Of its family, it finds its own past. Of others, it finds what is the past of any of them: neither what a
        restore took back nor what was dropped, unless another one goes on from it.
        """
        own = self._lineage.past([stream], end)
        if not is_common:
            return by_stream(own)
        family, streams = self._family(stream, end), self._lineage.streams
        others = self._lineage.past([each for each in streams if each not in family], end)
        spans = [span for span in others if span.stream in streams and span.stream not in family]
        spans += [span for span in own if span.stream in streams or span.stream in family]
        return {**dict.fromkeys(family, ()), **by_stream(spans)}

    def past_seqs(self, stream: str, home: str, seqs: Iterable[int], end: int) -> list[int]:
        """Return the seqs at which a conversation finds what was said in another one, or in it."""
        spans = self._spans(stream, end, is_common=True)
        own = spans.get(home, [Span(home, 0, end)])
        return [seq for seq in seqs if any(span.after < seq <= span.until for span in own)]

    def exclusion(self, earlier: Earlier, stream: str, project: str, end: int) -> str:
        """Return why a message is not among those that a conversation searches at a seq; empty if it may be."""
        message, home = earlier.message, earlier.message.stamp.stream
        if message.role not in ROLES:
            return f"only messages of {' and '.join(ROLES)} are searched"
        if message.seq > end:
            return f"it came after seq {end}, as of which the context was built"
        if message.seq <= end - EARLIER_EVENTS_COUNT:
            return f"only the newest {EARLIER_EVENTS_COUNT} events are searched for earlier messages"
        scope, common = self._scope_name(home, message.seq), f"project/{project}"
        spans = self._spans(stream, end, is_common=scope == common)
        seqs, first = self._scopes.get(scope, ()), self._first_place(scope, end)
        if first < len(seqs) and message.seq < seqs[first]:
            return f"only the newest {EARLIER_MESSAGES_COUNT} messages of {scope} are searched for earlier ones"
        if any(span.after < message.seq <= span.until for span in spans.get(home, ())):
            return ""
        if home in spans or home in self._family(stream, end):
            return self._removal(home, message.seq, end) or (
                f"{home} and {stream} are forks of one conversation, and it was said after they parted"
            )
        if scope != common:
            return f"it is one of {scope}, and messages of {common} and of {stream} are searched"
        return ""

    def _removal(self, home: str, seq: int, end: int) -> str:
        """Return which drop or restore of a conversation took back what was said there at a seq; empty if none did."""
        drop, restoration = self._lineage.last_drop(home, end), self._lineage.restoration(home, seq, end)
        if drop > seq:
            return f"{home} was dropped at seq {drop}"
        return f"the restore of {home} at seq {restoration} took it back" if restoration else ""

    def rows_of(self, earlier: Earlier, end: int) -> set[tuple[int, int]]:
        """Return seq and place of a message, and of the contents that replaced its own by a seq."""
        message = earlier.message
        replaced = (
            (seq, 0)
            for block in self._blocks.values()
            for _, seq, event in block.replaced
            if seq <= end and (event.origin, event.place, event.id) == (message.seq, earlier.place, message.id)
        )
        return {(message.seq, earlier.place), *replaced}


def _is_of_user(event: Event) -> bool:
    return isinstance(event, MessageAppended) and event.role == "user"


def _project(state: Any) -> str | None:
    project: str | None = state.part(SESSION).project
    return project
