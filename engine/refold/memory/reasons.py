"""The answers of why, blame and influence: steps with their events, values with their writers, model turns."""

import datetime as dates
from collections.abc import Iterator
from string import Formatter
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from refold import fold
from refold.event import Recorded, Stamp, unpack_json
from refold.memory.blocks import calls_of
from refold.message import Message, MessageAppended, MessageReplaced, messages_of, text_of
from refold.views.board import BoardChanged, BoardMessageAppended

_SHOWN_CHARS: Final = 60
_DETAILED_COUNT: Final = 3  # Places of a text whose steps are printed, unless all are requested.
_LISTED_COUNT: Final = 3  # Newest contexts and recalls of a subject that are printed, unless all are requested.
_ERASED_TEXT: Final = "; what it said was erased"
_JSON_TEXTS: Final = frozenset(("arguments", "result"))
"""The fields whose bytes are JSON as the caller gave it, not packed."""


class Reason(Struct, frozen=True):
    """One step of an answer: what happened, in a sentence, with the seq, time, actor and cause of its event.

    ``relation`` is its role in the answer: ``came`` or ``returned``, what led to that (``cause``, ``source``),
    ``changed``, ``left`` or ``erased``, ``shown`` to a model, or ``hidden`` from one. ``subject`` names the thing that
    the step is about. A step without an event, such as a rank in a search, has seq 0.
    """

    relation: str
    text: str
    seq: int = 0
    time_ns: int = 0
    actor: str = ""
    cause: int = 0
    stream: str = ""
    kind: str = ""
    subject: str = ""

    def __str__(self) -> str:
        place = f"  seq {self.seq}  {time_text(self.time_ns)}  {self.actor}" if self.seq else ""
        return f"{self.relation:<8}{place}  {self.text}"


class Why(Struct, frozen=True):
    """The answer of ``why``: its steps in the order of the question, and whether any of its subjects is present now.

    ``places`` is the number of subjects that were found; the steps are about the newest of them, and ``present`` lists
    those of them that are present. ``str(answer)`` gives readable lines of text that begin with the
    current state and omit all but the newest ``shown`` steps. ``answer.to_json()`` is the full answer as data, and
    ``answer.of("left")`` returns the steps of one relation.
    """

    about: str
    is_there: bool
    steps: tuple[Reason, ...]
    present: tuple[str, ...] = ()
    places: int = 0

    def of(self, *relations: str) -> tuple[Reason, ...]:
        """Return the steps that have one of the given relations."""
        return tuple(step for step in self.steps if step.relation in relations)

    def to_json(self) -> str:
        """Return the answer as JSON."""
        return msgspec.json.encode(self).decode()

    def __str__(self) -> str:
        return "\n".join(row if isinstance(row, str) else f"  {row}" for row in rows_of(self))


def rows_of(answer: Why, *, full: bool = False) -> Iterator[str | Reason]:
    """Yield the rows of a printed answer: the current state of each subject, then the steps under their subjects."""
    chains: dict[str, list[Reason]] = {}
    for step in answer.steps:
        chains.setdefault(step.subject, []).append(step)
    subjects = [subject for subject in chains if subject]
    if len(subjects) > 1:
        places = f"{len(subjects)} places"
        if answer.places > len(subjects):
            places = f"{answer.places} places, of which {len(subjects)} follow"
        yield f"{answer.about}: found in {places}, now present in {len(answer.present)} of them"
        yield from (f"  {_verdict(answer, subject, chains[subject])}" for subject in subjects)
    else:
        subject = subjects[0] if subjects else ""
        yield _verdict(answer, subject, chains.get(subject, []))
    detailed = subjects if full else subjects[:_DETAILED_COUNT]
    for subject, steps in chains.items():
        if subject and subject not in detailed:
            continue
        if subject and subject != answer.about:
            yield subject
        shown = [step for step in steps if step.relation == "shown" and step.seq]
        left_out = 0 if full else max(len(shown) - _LISTED_COUNT, 0)
        for step in steps:
            if left_out and step is shown[0]:
                yield Reason("shown", f"{left_out} earlier ones not printed; to_json() and --full have them")
            if step not in shown[:left_out]:
                yield step
    if len(subjects) > len(detailed):
        count = len(subjects) - len(detailed)
        yield f"the steps of {count} more are not printed; ask about one of their seqs, or use to_json() or --full"


def _verdict(answer: Why, subject: str, steps: list[Reason]) -> str:
    """Describe whether a subject is present now, since when, and because of which event."""
    is_there = subject in answer.present
    turns = ("came", "returned", "changed") if is_there else ("left", "erased")
    last = next((step for step in reversed(steps) if step.seq and step.relation in turns), None)
    state = "present" if is_there else "not present" if last is None else "gone"
    text = f"{subject or answer.about}: {state}"
    if last is not None:
        text += f" since seq {last.seq}, {time_text(last.time_ns)}, by {last.actor}"
        text += "" if is_there else f": {last.text}"
    erased = next((step.text for step in steps if is_there and step.relation == "erased"), "")
    hidden = [step.text for step in steps if step.relation == "hidden"]
    return "; ".join(filter(None, (text, erased, *hidden)))


class Revision(Struct, frozen=True):
    """A value that a key had: the event that set it, when, by which actor, why, and in which turn.

    ``value`` is ``None`` if the key was ``removed`` or the value ``erased``. ``turn`` is the seq of the user's message
    that led to it, according to the causes of the event, or else the user's newest message before it in its
    conversation; 0 if there is none.
    """

    key: str
    value: Any
    seq: int
    stream: str
    kind: str
    time_ns: int
    occurred_ns: int
    actor: str
    cause: int
    turn: int = 0
    removed: bool = False
    erased: bool = False

    def __str__(self) -> str:
        value = "erased" if self.erased else ("removed" if self.removed else _quote(self.value))
        turn = f", in the turn of seq {self.turn}" if self.turn else ""
        return f"seq {self.seq}  {time_text(self.time_ns)}  {self.actor}  {self.key} = {value}{turn}"


class Exposure(Struct, frozen=True):
    """A turn of a model that held something: the seq of the answer, 0 until there is one, and what the model saw.

    ``seen`` is the seq of the context or the recall that showed it, or 0 if the window did. ``then`` lists the seqs of
    the events that followed the answer: tool calls and their results.
    """

    conversation: str
    answer: int
    seen: int = 0
    text: str = ""
    then: tuple[int, ...] = ()


class Influence(Struct, frozen=True):
    """The turns that held something, with what was said or done right after."""

    about: str
    turns: tuple[Exposure, ...]

    @property
    def conversations(self) -> tuple[str, ...]:
        """The sorted ids of the conversations of these turns."""
        return tuple(sorted({turn.conversation for turn in self.turns}))

    def to_json(self) -> str:
        """Return the answer as JSON."""
        return msgspec.json.encode(self).decode()

    def __str__(self) -> str:
        counts = ((len(self.turns), "turn"), (len(self.conversations), "conversation"))
        turns, conversations = (f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts)
        shown = [
            f"  {turn.conversation}{f' seq {turn.answer}' if turn.answer else ''}  {turn.text}" for turn in self.turns
        ]
        return "\n".join([f"{self.about}: shown in {turns} of {conversations}", *shown])


def time_text(time_ns: int) -> str:
    """Return a time as ISO 8601 in UTC, to the second."""
    moment = dates.datetime(1970, 1, 1, tzinfo=dates.UTC) + dates.timedelta(microseconds=time_ns // 1_000)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


# The sentences of events.


def sentence_of(recorded: Recorded) -> str:
    """Describe an event in a sentence; for an erased event, with the fields that are left."""
    event, stamp = recorded
    if isinstance(event, fold.Unknown):
        return f"an event of the unknown tag {event.tag}"
    left = fold.STRUCTURAL[type(event)] if stamp.erased else event.__struct_fields__
    sentence = "".join(
        text
        + ("" if field is None else _format_field(recorded, field, bare=conversion == "s") if field in left else "...")
        for text, field, _, conversion in Formatter().parse(event.sentence)
    )
    return sentence + (_ERASED_TEXT if stamp.erased else "")


def _format_field(recorded: Recorded, field: str, *, bare: bool) -> str:
    event = recorded.event
    value: Any = getattr(event, field)
    if field == "text" and value is None and isinstance(event, (MessageAppended, MessageReplaced)):
        value = _blocks_text(next(iter(messages_of(recorded)))) or event.content
    if isinstance(value, bytes) and value:
        value = msgspec.json.decode(value) if field in _JSON_TEXTS else unpack_json(value)
        if isinstance(event, BoardMessageAppended):
            value = value["content"]
    if isinstance(value, float):
        value = f"{value:.3g}"
    if isinstance(event, BoardChanged) and field == "fields":  # Without the digest of a place.
        value = tuple(name.partition("@")[0] for name in event.fields)
    if isinstance(value, tuple):
        return shorten(", ".join(map(str, cast("tuple[object, ...]", value))) or "none")
    return shorten(str(value)) if bare and isinstance(value, (str, int)) else _quote(value)


def _blocks_text(message: Message) -> str:
    """Return the texts of a message in blocks, and its calls; empty if it has other blocks alone."""
    calls = (f"calls {call.name}({msgspec.json.encode(call.arguments).decode()})" for call in calls_of(message))
    return "; ".join(filter(None, (text_of(message), *calls)))


def _quote(value: object) -> str:
    if isinstance(value, str):
        return f"'{shorten(value)}'"
    return "nothing" if value is None or value == b"" else shorten(msgspec.json.encode(value).decode())


def shorten(text: str) -> str:
    """Return a text as one line of at most 60 characters."""
    line = " ".join(text[: 4 * _SHOWN_CHARS].replace("\0", " ").split())
    return line if len(line) <= _SHOWN_CHARS else f"{line[: _SHOWN_CHARS - 3]}..."


def reason_of(relation: str, recorded: Recorded, *, subject: str = "", text: str = "") -> Reason:
    """Return an event as a step of an answer."""
    stamp: Stamp = recorded.stamp
    kind = fold.NAMES.get(type(recorded.event), "unknown")
    told = text or sentence_of(recorded)
    return Reason(relation, told, stamp.seq, stamp.time_ns, stamp.actor, stamp.cause, stamp.stream, kind, subject)
