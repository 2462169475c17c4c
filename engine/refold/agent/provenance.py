"""Where a lesson comes from: the messages and notes that it cites, the one that it quotes, and the user who said it.

A lesson cites what the model names, and whatever else its words can come from: erasing a message must take with it all
that repeats it. In doubt it cites more.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import chain, islice
from math import log1p
from typing import Any, Final, NamedTuple, cast

import msgspec

from refold.agent.parts import quote_text
from refold.agent.secrets import secret_in
from refold.limits import EXTRACTED_CONTEXT_CHARS_MAX, SOURCES_COUNT_MAX
from refold.memory.conversation import Conversation
from refold.memory.turns import is_answer, is_question
from refold.message import Message, MessageAppended, text_of
from refold.views.session import FindingNoted, TaskDescribed
from refold.views.state import StateSet

_NOTES: Final = (TaskDescribed, FindingNoted, StateSet)
_QUESTIONS_COUNT_MAX: Final = 64  # Questions in a row that one answer may be for.
_KNOWN_COUNT_MAX: Final = 512  # Notes from before a page, more than a model is shown of them.
_EMPTY_TERMS: Final = frozenset(("user",))  # Models begin most facts with it.
_RUNS: Final = re.compile(r"\w+")
_ARGUMENTS_CHARS_MAX: Final = 1_000
_ENCODE: Final = msgspec.json.Encoder(order="deterministic").encode


class Provenance(NamedTuple):
    """What a lesson comes from: the seqs that it cites, and the message that it quotes, with the user of its turn."""

    sources: tuple[int, ...]
    quote: str | None
    """``None`` if it seems to hold a secret."""
    occurred_ns: int | None
    speaker: str | None
    message: Message | None = None
    read_seq: int = 0
    """The newest of the sources that was read, other than a fact that was known already."""


class SessionNote(NamedTuple):
    """A note about the session, or its first question, which stands for its task: its seq and text."""

    seq: int
    text: str


class MessageTurn(NamedTuple):
    """The turn of a message: the user who said it or was answered, and the questions that it can answer."""

    speaker: str | None
    questions: tuple[int, ...] = ()


class Material:
    """What a model reads at once: a page of messages, and the notes about their session."""

    def __init__(
        self,
        messages: Sequence[Message],
        turns: Sequence[MessageTurn],
        notes: Sequence[SessionNote],
        known: Sequence[SessionNote],
        *,
        users: Iterable[str | None],
        shown: Sequence[SessionNote],
    ) -> None:
        """Take also the turn of each message, the notes from before, all users, and the facts that a model is shown."""
        self.messages: Final = messages
        self.speakers: Final = [turn.speaker for turn in turns]
        self.users: Final = frozenset((*users, *self.speakers))
        self._turns = turns
        self._notes = notes
        self._known = known
        self._shown = shown
        self._terms_by_seq: dict[int, dict[str, None]] = {}

    @classmethod
    def of(
        cls,
        chat: Conversation,
        page: Sequence[Message],
        read: int,
        again: Sequence[Message] = (),
        shown: Sequence[SessionNote] = (),
    ) -> "Material":
        """Return a page of a conversation, with the notes after the seq up to which it was read.

        `again` are messages before it that the model is shown again, to understand the page, and `shown` the facts that
        it is told not to learn again. Without a page, the speakers are all users of the conversation.
        """
        asked: list[str | None] = []
        turns: dict[int, MessageTurn] = {}
        questions, is_answered, seqs = list[int](), False, {message.seq for message in page}
        tasks, fresh, known = list[SessionNote](), list[SessionNote](), dict[str | int, SessionNote]()
        for event, stamp in chat.events():
            if isinstance(event, MessageAppended):
                message = Message(event, stamp)
                if is_question(message):
                    if not asked and stamp.seq not in seqs:
                        tasks.append(SessionNote(stamp.seq, text_of(message)))
                    questions = [stamp.seq] if is_answered else [*questions, stamp.seq][-_QUESTIONS_COUNT_MAX:]
                    asked.append(event.name)
                is_answered = is_answer(message)
                if stamp.seq in seqs:
                    turns[stamp.seq] = MessageTurn(asked[-1] if asked else None, tuple(questions))
            elif isinstance(event, _NOTES) and not stamp.erased:
                note = SessionNote(stamp.seq, _text_of_note(event))
                if stamp.seq > read:
                    fresh.append(note)
                elif isinstance(event, TaskDescribed):
                    tasks.append(note)
                else:  # Of a key of the state, the model is shown the newest value.
                    key = event.key if isinstance(event, StateSet) else stamp.seq
                    known.pop(key, None)
                    known[key] = note
        in_page: list[MessageTurn] = []
        for message in page:
            before = in_page[-1] if in_page else MessageTurn(None)  # A fork has messages of no event of its own.
            own = MessageTurn(message.name, (message.seq,)) if is_question(message) else before
            in_page.append(turns.get(message.seq, own))
        newest = islice(reversed(known.values()), _KNOWN_COUNT_MAX)
        noted = {note.seq for note in tasks}
        heard = [SessionNote(each.seq, spoken_text(each)) for each in again if each.seq not in noted]
        turned = in_page or [MessageTurn(name) for name in asked]
        return cls(page, turned, fresh, [*tasks, *newest, *heard], users=asked, shown=shown)

    @property
    def sources(self) -> tuple[int, ...]:
        """The seqs of all notes and messages."""
        return _source_seqs(self._notes, {message.seq for message in self.messages})

    def provenance_of(self, content: str, keywords: Sequence[str] = (), numbers: Sequence[int] = ()) -> Provenance:
        """Return what a lesson comes from; a model named messages by their numbers, which count from 1."""
        terms = _terms_in(" ".join([content, *keywords]))
        weights = self._weights(terms)
        cited, notes = self._cite(terms, weights, {number - 1 for number in numbers}, _terms_in(content))
        replies = (place for place in cited if not is_question(self.messages[place]))
        asked = {seq for place in replies for seq in self._turns[place].questions}
        sources = _source_seqs(notes, asked.union(self.messages[place].seq for place in cited))
        read = max({*sources}.difference(note.seq for note in self._shown), default=0)
        # A fact in another language has no word of what was said: only the model knows where it comes from.
        places = {number - 1 for number in numbers} & cited
        quoted = self._best(terms, weights, cited if weights or not places else places)
        if quoted is None:
            occurred_ns = self.messages[-1].occurred_ns if self.messages else None
            return Provenance(sources, None, occurred_ns, self._speaker(None), None, read)
        message, quote = self.messages[quoted], self._quote(quoted, weights)
        speaker = self._speaker(quoted)
        return Provenance(
            sources, quote if secret_in(quote) is None else None, message.occurred_ns, speaker, message, read
        )

    def _cite(
        self, terms: Collection[str], weights: Mapping[str, float], named: set[int], content: Collection[str]
    ) -> tuple[set[int], Sequence[SessionNote]]:
        """Return the places of the messages that a lesson cites, and the notes.

        With the messages that the model names, these are all others that have words of the lesson which no user says in
        the named ones. If it names none, or none that has any of its words, or if half of the words of its content were
        said nowhere (it can be a translation): all messages in the turns of the user whose words are closest, all
        others that have words of it, and all notes. If no words are close to it, or that user has no name among
        several: everything. Beside these, the facts that the model was shown and that have words of it which no message
        has.
        """
        everything, own = set(range(len(self.messages))), _heavy(terms)
        borrowed = {term for term in own if not self._counts[term]}
        known = [*self._notes_with(self._known, own), *self._notes_with(self._shown, borrowed)]
        is_named = named <= everything and any(self._weigh(place, weights) for place in named)
        if is_named and self._is_said(_heavy(content)):
            said = [self._terms[place] for place in named if is_question(self.messages[place])]
            said += [_terms_in(self.speakers[place] or "") for place in named]
            own = {term for term in own if not any(term in each for each in said)}
            notes = [*self._notes_with(self._notes, own), *self._notes_with(self._known, own)]
            notes += self._notes_with(self._shown, borrowed)
        else:
            best = self._best(terms, weights, everything)
            asked = {None if best is None or not self._weigh(best, weights) else self.speakers[best]}
            asked |= {self.speakers[place] for place in named} if is_named else set()
            of_nobody = {place for place in everything if not self._turns[place].questions}
            named = everything if None in asked else self._places_of(asked) | of_nobody
            notes = [*self._notes, *known]
        spoken = {self.speakers[place] for place in named}
        mentioned = {name for name in {*self.speakers} - spoken if name and _terms_in(name).keys() <= {*terms}}
        others = {place for place in everything if not own.isdisjoint(self._terms[place])}
        return named | others | self._places_of(mentioned), sorted({note.seq: note for note in notes}.values())

    def _is_said(self, terms: AbstractSet[str]) -> bool:
        """Return whether most terms are in the messages, the notes, the shown facts, or the names of users."""
        notes = chain(self._notes, self._known, self._shown)
        texts = chain(map(self._note_terms, notes), (_terms_in(name) for name in self.users if name))
        known = self._counts.keys() | set(chain.from_iterable(texts))
        return len(terms & known) > len(terms) / 2

    def _notes_with(self, notes: Iterable[SessionNote], terms: AbstractSet[str]) -> Iterator[SessionNote]:
        return (note for note in notes if terms and not terms.isdisjoint(self._note_terms(note)))

    def _note_terms(self, note: SessionNote) -> dict[str, None]:
        if note.seq not in self._terms_by_seq:
            self._terms_by_seq[note.seq] = _terms_in(note.text)
        return self._terms_by_seq[note.seq]

    def _places_of(self, names: Collection[str | None]) -> set[int]:
        return {place for place, name in enumerate(self.speakers[: len(self.messages)]) if name in names}

    def _speaker(self, place: int | None) -> str | None:
        """Return the user of a message's turn; without a message, the only one there is."""
        if len({*self.speakers}) == 1:
            return self.speakers[0]
        return None if place is None else self.speakers[place]

    @cached_property
    def _texts(self) -> list[str]:
        return [quote_text(text_of(message), "  ") for message in self.messages]

    @cached_property
    def _terms(self) -> list[dict[str, None]]:
        return [_terms_in(spoken_text(message)) for message in self.messages]

    @cached_property
    def _counts(self) -> Counter[str]:
        return Counter(term for terms in self._terms for term in terms)

    def _weights(self, terms: Collection[str]) -> dict[str, float]:
        """Weigh the terms of a lesson that messages have, the rarest most."""
        return {term: log1p(len(self.messages) / self._counts[term]) for term in _heavy(terms) if self._counts[term]}

    def _weigh(self, place: int, weights: Mapping[str, float]) -> float:
        return sum(weights[term] for term in weights if term in self._terms[place])

    def _best(self, terms: Collection[str], weights: Mapping[str, float], places: Iterable[int]) -> int | None:
        """Return the place of the message that has the rarest words of a lesson.

        Of several, and if none has any, the newest one of a user is meant: it holds where two disagree. A lesson about
        the user is in the user's own words if these have any of its words.
        """
        is_about_user = not _EMPTY_TERMS.isdisjoint(terms)

        def key(place: int) -> tuple[bool, float, bool, int]:
            is_users, weight = self.messages[place].role == "user", self._weigh(place, weights)
            return is_about_user and is_users and weight > 0, weight, is_users, place

        return max((place for place in places if self._texts[place]), key=key, default=None)

    def _quote(self, place: int, weights: Mapping[str, float]) -> str:
        """Quote a message around the first of the words of a lesson."""
        text = self._texts[place]
        quote = f"{self.messages[place].role}: {text}"
        if len(quote) <= EXTRACTED_CONTEXT_CHARS_MAX:
            return quote
        runs = (run for run in _RUNS.finditer(text) if not weights.keys().isdisjoint(_terms_in(run.group())))
        first = len(quote) - len(text) + next((run.start() for run in runs), 0)
        begin = min(first - EXTRACTED_CONTEXT_CHARS_MAX // 4, len(quote) - EXTRACTED_CONTEXT_CHARS_MAX)
        return quote[max(begin, 0) :][:EXTRACTED_CONTEXT_CHARS_MAX]


def spoken_text(message: Message) -> str:
    """Return the text of a message, followed by the calls of tools that it makes, with the ends of long arguments."""
    parts = message.content if isinstance(message.content, list) else []
    calls = [*(part for part in parts if part.get("type") == "tool_use"), *(message.tool_calls or ())]
    return "\n".join(filter(None, (text_of(message), *map(_call_text, calls))))


def _call_text(call: Mapping[str, Any]) -> str:
    function = call.get("function", call)
    fields = cast("Mapping[str, Any]", function if isinstance(function, Mapping) else {})
    arguments: object = fields.get("arguments", fields.get("input", ""))
    text = arguments if isinstance(arguments, str) else _ENCODE(arguments).decode()
    return f"called {fields.get('name')}({ends_of(text, _ARGUMENTS_CHARS_MAX)})"


def ends_of(text: str, chars_max: int) -> str:
    """Return a text, or its beginning and its end if it is longer than so many characters."""
    half = chars_max // 2 - 16
    return text if len(text) <= chars_max else f"{text[:half]}\n[...]\n{text[-half:]}"


def _source_seqs(notes: Iterable[SessionNote], seqs: AbstractSet[int]) -> tuple[int, ...]:
    """Return the seqs of notes, and after them those of messages."""
    return (*(note.seq for note in notes if note.seq not in seqs), *sorted(seqs))[-SOURCES_COUNT_MAX:]


def _text_of_note(event: TaskDescribed | FindingNoted | StateSet) -> str:
    return f"{event.key} {event.value}" if isinstance(event, StateSet) else event.text


def _heavy(terms: Collection[str]) -> AbstractSet[str]:
    """Return the terms that say what a lesson is about: without those of everyday talk, unless it has no others."""
    from refold.index.terms import talk_terms  # noqa: PLC0415 - imported on first use

    heavy = [term for term in terms if term not in _EMPTY_TERMS and term not in talk_terms()]
    return dict.fromkeys(heavy or terms).keys()  # In their order: sums of weights must not depend on hash seeds.


def _terms_in(text: str) -> dict[str, None]:
    """Return the terms of a text, all forms of an irregular word as one."""
    from refold.index.terms import forms_of, terms_of  # noqa: PLC0415 - imported on first use

    return dict.fromkeys(forms_of(term, "porter")[0] for term in terms_of(text, "porter")[0])
