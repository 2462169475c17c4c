"""Retracted facts, and the messages that stated, repeat or withdrew them, which contexts do not repeat. Pure."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from refold.entry import MemoriesCleared, MemoryAdded, MemoryDeleted, MemoryMerged, MemoryUpdated
from refold.event import HOST, Recorded, Restored
from refold.limits import EARLIER_EVENTS_COUNT
from refold.text import contradiction, is_unspaced, words
from refold.views.profile import ProfileDeleted, ProfileSet

_Key: TypeAlias = tuple[str, str]  # A stream, and the id of a memory or the key of a profile.

_NEVER: Final = 2**62
_PROFILES: Final = "profile/"
_TEXTS_COUNT: Final = 4_096  # Texts whose terms are cached.
_SENTENCES: Final = re.compile(r"(?<=[.?!\u061f])\s+|(?<=[\u3002\uff01\uff1f])")
_CLAUSES: Final = re.compile(
    r"[;:\u2013\u2014]\s|,\s(?=\s*(?:so|and|but|because|since|which|while|as|then)\b)|[\uff1b\uff0c]"
)
# Before a name that only addresses the user, as in "Hi Anna!" and "Anything else, Anna?".
_CALLING: Final = re.compile(
    r"(?:,|\b(?:hi|hello|hey|dear|thanks|thank\s+you|welcome|bye|goodbye|sorry|sure|yes|no|ok|okay|morning|afternoon|"
    r"evening|night))\s\Z",
    re.IGNORECASE,
)
_CALLING_CHARS_MAX: Final = 20
_ENDS: Final = ",.;:!?)\u2013\u2014"
# Who removes a fact because the user asks for it: a model's tool can do so for another reason.
_ASKED_ACTORS: Final = ("hook", HOST, "user")
# Where a sentence that asks for a removal may go on with something else.
_PARTS: Final = re.compile(
    r"[,;:]\s|\s[-\u2013\u2014]\s|\s(?=(?:and|but|because)\s+(?:i|we|it|he|she|they|my|our|his|her|their|the|from|use)\b)|"
    r"[\uff1b\uff0c\u3001]",
    re.IGNORECASE,
)
_PART_CHARS_MIN: Final = 6  # Of a part in a script without spaces that says anything.
_VERBS: Final = frozenset(("forget", "delete", "remove", "erase", "drop", "clear", "wipe"))
# Words that only ask for it, besides those of everyday talk.
_ASKING: Final = f"{' '.join(sorted(_VERBS))} store save record note memory memories fact facts longer anymore"
# The beginning of a sentence that says nothing without the one before it.
_REFERRING: Final = re.compile(r"\W*(?:\w+\W+){0,2}?(?:it|he|she|they|this|that|these|those)\b", re.IGNORECASE)

TYPES: Final = (
    *(MemoriesCleared, MemoryAdded, MemoryDeleted, MemoryMerged, MemoryUpdated),
    *(ProfileDeleted, ProfileSet, Restored),
)
"""The events of projects and profiles that state or retract facts."""


class _Statement(Struct):
    """A fact as one event recorded it, and the passage that it was extracted from, if that is known."""

    seq: int
    passage: str | None
    turns: list[int]  # The seqs at which it was alternately retracted and restored.
    stream: str
    content: str
    key: str = ""  # Of a fact of a profile.
    sources: tuple[int, ...] = ()
    known_terms: frozenset[str] | None = None

    @property
    def terms(self) -> frozenset[str]:
        """The terms of the content, read once: thousands of facts can be cleared."""
        if self.known_terms is None:
            self.known_terms = _terms_of(self.content)
        return self.known_terms

    def is_retracted(self, at: int) -> bool:
        return bisect_right(self.turns, at) % 2 == 1

    def is_said_by(self, text: str, question: str) -> bool:
        """Return whether a text, which may answer a question, says this and nothing else."""
        own, asked, content = _terms_of(text), _terms_of(question), self.terms
        is_whole = content <= own or (not content.isdisjoint(own - asked) and content <= own | asked)
        return is_whole and self.implies(text, question) and not (self.key and _addresses(text, self.content))

    def implies(self, text: str, question: str) -> bool:
        """Return whether a text, which may answer a question, says nothing beyond this and has some of it."""
        own, content = _terms_of(text), self.terms
        is_part = own - _terms_of(question) <= content | _terms_of(self.key) and not content.isdisjoint(own)
        return is_part and contradiction(self.content, text) is None


class _Removal(NamedTuple):
    """The removal of a fact that a user's message asked for; `fact_seq` is 0 if the content is unknown."""

    seq: int
    fact_seq: int
    content: str


@lru_cache(_TEXTS_COUNT)
def _terms_of(text: str) -> frozenset[str]:
    """Return the terms of a text without those of everyday talk."""
    from refold.index.terms import strip_contractions, talk_terms, terms_of  # noqa: PLC0415 - imported on first use

    return frozenset(terms_of(strip_contractions(text), "porter")[0]) - talk_terms()


class Retractions:
    """The facts of a branch, followed event by event.

    >>> from refold import Memory
    >>> retractions = Retractions()
    >>> with Memory(None) as memory:
    ...     asked = memory.conversation("c").append("user", "I live in Bern")
    ...     memory.profile("p").set("city", "Bern", sources=[asked])
    ...     existed = memory.profile("p").delete("city")
    ...     for recorded in memory.events():
    ...         retractions.take(recorded)
    >>> retractions.hides(asked.seq, "user: I live in Bern", 4), retractions.hides(asked.seq, "user: I live in Bern", 3)
    (True, False)
    """

    def __init__(self) -> None:
        self._facts: dict[_Key, list[_Statement]] = {}
        self._told: dict[int, list[_Statement]] = {}  # By the seq of a message.
        self._retracted: list[_Statement] = []  # All that ever were.
        self._first_seq = _NEVER  # The lowest seq of theirs.
        self._by_term: dict[str, list[_Statement]] = {}  # The first so many of them, each by its rarest term.
        self._counts: Counter[str] = Counter()  # The number of indexed facts with each term.
        self._indexed_count = 0
        self.has_any = False  # Whether any fact was ever retracted.
        self._contents: dict[_Key, tuple[int, str]] = {}  # The seq and the newest content of each fact.
        self._removals: dict[int, list[_Removal]] = {}  # By the seq of the message that asked for them.

    def take(self, recorded: Recorded) -> None:
        """Take the next event of a project or a profile."""
        event, stamp = recorded
        stream, seq = stamp.stream, stamp.seq
        if isinstance(event, ProfileSet):
            self._contents[stream, event.key] = seq, f"{event.key} {event.value}"
            self._add_fact(
                (stream, event.key),
                event.sources,
                _Statement(seq, None, [], stream, event.value, event.key, event.sources),
            )
        elif isinstance(event, (MemoryAdded, MemoryUpdated)):
            if event.content:
                self._contents[stream, event.id] = seq, event.content
            self._add_fact(
                (stream, event.id), event.sources, _Statement(seq, event.context, [], stream, event.content or "")
            )
        elif isinstance(event, MemoryMerged):
            self._contents[stream, event.id] = seq, event.content
            self._facts.setdefault((stream, event.id), []).extend(self._facts.pop((stream, event.other), ()))
            self._add_fact((stream, event.id), event.sources, _Statement(seq, None, [], stream, event.content))
        elif isinstance(event, (MemoryDeleted, ProfileDeleted)):
            self.has_any = True
            key = stream, event.key if isinstance(event, ProfileDeleted) else event.id
            self._retract(key, seq)
            removal = _Removal(seq, *self._contents.get(key, (0, "")))
            if stamp.actor.partition(":")[0] in _ASKED_ACTORS:
                for source in event.sources:
                    self._removals.setdefault(source, []).append(removal)
        elif isinstance(event, MemoriesCleared):
            self.has_any = True
            for key in self._keys_of(stream):
                self._retract(key, seq)
        elif isinstance(event, Restored):
            for key in self._keys_of(stream):
                for fact in self._facts[key]:
                    if fact.seq <= event.base_seq and fact.is_retracted(seq) and not fact.is_retracted(event.base_seq):
                        fact.turns.append(seq)

    def _keys_of(self, stream: str) -> list[_Key]:
        return [key for key in self._facts if key[0] == stream]

    def _add_fact(self, key: _Key, sources: tuple[int, ...], fact: _Statement) -> None:
        if sources:  # A fact that cites no message hides none.
            self._facts.setdefault(key, []).append(fact)
        for source in sources:
            self._told.setdefault(source, []).append(fact)

    def _retract(self, key: _Key, seq: int) -> None:
        for fact in self._facts.get(key, ()):
            if not fact.is_retracted(seq):
                fact.turns.append(seq)
                if len(fact.turns) == 1:
                    self._retracted.append(fact)
                    self._first_seq = min(self._first_seq, fact.seq)

    def is_touched(self, seq: int, at: int) -> bool:
        """Return whether a fact that a message had stated by a seq was retracted by then, or it asked for a removal."""
        is_request = any(removal.seq <= at for removal in self._removals.get(seq, ()))
        return is_request or any(fact.seq <= at and fact.is_retracted(at) for fact in self._told.get(seq, ()))

    def may_repeat(self, seq: int) -> bool:
        """Return whether what was said at a seq may repeat a fact that was retracted later."""
        return bool(self._retracted) and self._first_seq < seq < self._retracted[-1].turns[0]

    def repeats(
        self,
        seq: int,
        text: str,
        question: Callable[[], tuple[str, str | None]],
        scope: str,
        at: int,
        name_of: Callable[[int], str | None],
    ) -> bool:
        """Return whether what a model said at a seq says again what was retracted later, by another seq.

        A clause that says only that is enough: a user who has a fact forgotten wants to read it nowhere. `scope` is the
        project of its conversation, beside whose facts those of profiles count: what one user said of themselves counts
        in no turn of another one. It may answer a question, given with the name of who asked; `name_of` returns the
        name of who wrote the message of a seq. A fact that still holds may say the same.
        """
        self._index()
        own = _terms_of(text)
        if self._counts.keys().isdisjoint(own):
            return False
        asked, name = question()
        within = own | _terms_of(asked)
        candidates = (fact for term in within for fact in self._by_term.get(term, ()))

        def is_of(fact: _Statement) -> bool:
            is_personal = fact.stream.startswith(_PROFILES)
            return _is_said_to(name, map(name_of, fact.sources)) if is_personal else fact.stream == scope

        alike = (fact for fact in candidates if fact.terms <= within and _was_repeatable(fact, seq, at) and is_of(fact))
        facts = list({(fact.content, fact.key): fact for fact in alike}.values())
        if not facts:
            return False
        said = [each for each in _clauses_of(text) if any(fact.is_said_by(each, asked) for fact in facts)]
        if not said:
            return False
        known = (fact for each in self._facts.values() for fact in each if fact.seq <= at and not fact.is_retracted(at))
        current = [fact for fact in known if not fact.terms.isdisjoint(own) and is_of(fact)]
        return any(not any(fact.implies(each, asked) for fact in current) for each in said)

    def _index(self) -> None:
        """Index what was retracted since the last call by the rarest of its terms."""
        fresh = self._retracted[self._indexed_count :]
        for fact in fresh:
            self._counts.update(fact.terms)
        for fact in fresh:
            if fact.terms:
                rarest = min(fact.terms, key=lambda term: (self._counts[term], term))
                self._by_term.setdefault(rarest, []).append(fact)
        self._indexed_count += len(fresh)

    def hides(self, seq: int, line: str | None, at: int, *, rest: str | None = None) -> bool:
        """Return whether every fact that a message had stated by a seq was retracted by then.

        A message that stated none counts if nothing is left of it but a request to forget, by its `rest_of`. `line` is
        the message's role and text: a fact counts if its passage is in it. With `None`, every fact that cites the
        message counts.
        """
        told = [fact for fact in self._told.get(seq, ()) if fact.seq <= at]
        facts = [fact for fact in told if line is None or (fact.passage or "") in line]
        return (bool(facts) or rest == "") and all(fact.is_retracted(at) for fact in facts)

    def rest_of(self, seq: int, text: str, at: int) -> str | None:
        """Return the text of a message without its request to forget; `None` if by a seq it had led to no removal.

        It is empty if the message says nothing else, and the whole text if what else it says needs the request to be
        understood.
        """
        removals = [removal for removal in self._removals.get(seq, ()) if removal.seq <= at]
        if not removals:
            return None
        # What is older may not have been read.
        known = [removal.content for removal in removals if removal.fact_seq > at - EARLIER_EVENTS_COUNT]
        return _without_request(text, _terms_of(" ".join(known)))


def names_removed(answer: str, text: str, rest: str) -> bool:
    """Return whether an answer to a message has a term of its request to forget that the `rest_of` it has not."""
    return not _terms_of(answer).isdisjoint(_terms_of(text) - _terms_of(rest))


def _without_request(text: str, content: frozenset[str]) -> str:
    """Return a text without the sentence that asks to forget what has the terms of a content.

    That is one with a verb of asking if any has, and of these the one with the most of the terms. Other sentences that
    say only the content go, too. If no sentence is such a one, only a text of one sentence asks for nothing else.
    """
    known = content | _terms_of(_ASKING)
    sentences = [sentence for line in text.splitlines() for sentence in _SENTENCES.split(line) if sentence.strip()]

    def rank(sentence: str) -> tuple[bool, int]:
        return not _VERBS.isdisjoint(words(sentence)), len(_terms_of(sentence) & content)

    request = max(sentences, key=lambda each: (*rank(each), bool(_terms_of(each))), default="")
    rest = [each for each in sentences if not (each is request or _terms_of(each) <= known)]
    if _says_more(request, content, known):
        return text
    if not rest:
        return ""
    if not any(rank(request)) or _REFERRING.match(rest[0]):
        return text
    pieces, place = list[str](), 0
    for sentence in sentences:
        start = text.index(sentence, place)
        end = start + len(sentence)
        if sentence is request or (_terms_of(sentence) and _terms_of(sentence) <= known):
            pieces.append(text[place:start])
            end += len(text) - end - len(text[end:].lstrip(" "))
        else:
            pieces.append(text[place:end])
        place = end
    return "".join((*pieces, text[place:])).strip()


def _says_more(request: str, content: frozenset[str], known: frozenset[str]) -> bool:
    """Return whether any part of a request but the one with the most terms of a content says something else."""
    parts = _PARTS.split(request)
    own = max(parts, key=lambda part: len(_terms_of(part) & content))
    return any(
        part is not own
        and not _terms_of(part) <= known
        and (len(part.strip()) >= _PART_CHARS_MIN or not any(map(is_unspaced, words(part))))
        for part in parts
    )


def _clauses_of(text: str) -> Iterator[str]:
    """Yield a text, its sentences, and the clauses of these that can stand alone; a list of things is no clauses."""
    yield text
    for line in text.splitlines():
        for sentence in _SENTENCES.split(line):
            yield sentence
            yield from _CLAUSES.split(sentence)


def _is_said_to(name: str | None, speakers: Iterable[str | None]) -> bool:
    """Return whether what speakers said of themselves can be said to a user: to one of them, or one without name."""
    known = {each for each in speakers if each is not None}
    return name is None or not known or name in known


def _addresses(text: str, content: str) -> bool:
    """Return whether a text has a name only as the one whom it speaks to."""
    begin = text.lower().find(content.lower())
    before, after = text[max(begin - _CALLING_CHARS_MAX, 0) : max(begin, 0)], text[begin + len(content) :].lstrip()
    is_opening = not before.strip() and after[:1] == ","
    is_called = _CALLING.search(before) is not None and (not after or after[0] in _ENDS)
    return begin >= 0 and (is_opening or is_called)


def _was_repeatable(fact: _Statement, seq: int, at: int) -> bool:
    """Return whether a fact held at a seq, and was retracted later and still is at another one."""
    return fact.seq < seq < fact.turns[0] <= at and fact.is_retracted(at)
