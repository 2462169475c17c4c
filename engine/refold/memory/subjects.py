"""The subjects of questions, resolved from a caller's input or an event, and a message's stays in its window."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from refold import checks, fold
from refold.engine import history
from refold.engine.reader import seq_at_time
from refold.engine.scan import EventFilter
from refold.engine.spellings import Spelling
from refold.engine.streams import Stream, session_board
from refold.entry import Entry, MemoryAdded, MemoryMerged, MemoryUnmerged, MemoryUpdated, body_of
from refold.errors import NotFound
from refold.event import FLAG_BASE, Event, Recorded, Stamp, StateImported, pack_json, unpack_json
from refold.memory.blame import KEY_KINDS, find_file, origins
from refold.memory.core import Core
from refold.memory.options import conversation_id
from refold.memory.reasons import shorten
from refold.memory.references import check_results
from refold.message import INJECTED_KEY, Message, MessageAppended, MessageReplaced, messages_of, text_of
from refold.results import Hit, Upserted
from refold.views.board import BoardChanged, BoardMessageAppended
from refold.views.facts import FACTS
from refold.views.files import ROOT, FileCreated, FileEdited, FileRenamed
from refold.views.profile import JournalAppended, Note
from refold.views.session import SESSION, ContextShown
from refold.views.skills import SkillLearned, SkillRefined, SkillsSelected
from refold.views.window import NAMES, WINDOW, Window, WindowResized, WindowSummarized, summary_message

SKILLS_STREAM: Final = "skills/main"
_LASTING: Final = ("memory", "skill", "file")
"""The kinds whose subjects keep the same id in all of their events."""

_SETTERS: Final = (MemoryAdded, MemoryUpdated, MemoryMerged, MemoryUnmerged)
_SCAN_COUNT_MIN: Final = 16
"""Above this number of memories, their events are found by type, not by id."""


class Subject(NamedTuple):
    """The subject of a question: its kind, its stream, its id or key, and the seq of the event that brought it.

    A key without a seq stands for all its values. A memory stands for the content that the event at ``seq`` gave it, or
    if it ``is_whole``, for all that it ever had. With a ``text``, a memory, message, file or skill stands for what it
    holds of that text.
    """

    kind: str
    stream: str
    key: str
    seq: int
    text: str = ""
    is_whole: bool = False

    def __str__(self) -> str:
        is_named = self.kind in KEY_KINDS and self.key
        key = self.key.partition("@")[0] if self.kind == "board" else self.key.replace("\0", " ")
        name = f"{self.kind} {key!r}" if is_named else f"{self.kind} of seq {self.seq}"
        return f"{name} in {self.stream}"


def subjects_of(recorded: Recorded, text: str = "") -> list[Subject]:
    """Return the subjects of an event; for an imported state, only those that contain ``text``."""
    event, stamp = recorded
    stream, seq = stamp.stream, stamp.seq
    if isinstance(event, StateImported):
        found = [Subject("message", stream, each.id, seq) for each in messages_of(recorded) if text in text_of(each)]
        found += [
            Subject("scratchpad", stream, key, seq) for key, value in event.entries if text in value or text == key
        ]
        return found if text else [Subject("event", stream, "", seq)]
    if isinstance(event, MessageReplaced):
        return [Subject("message", stream, event.id, event.origin)]
    if isinstance(event, (MemoryMerged, MemoryUnmerged)):
        return [Subject("memory", stream, each, seq) for each in _joined_memories(event, text)]
    if isinstance(event, BoardChanged):
        return [Subject("board", stream, field, seq) for field in event.fields]
    if isinstance(event, BoardMessageAppended):  # Several events can give texts to one id.
        return [Subject("board message", stream, "", seq)]
    kind, field = event.subject
    key = getattr(event, field) if field else ""
    if not kind or (field and not key and kind not in KEY_KINDS):  # An erased event has no key.
        return [Subject("event", stream, "", seq)]
    return [Subject(kind, stream, key, seq)]


def _joined_memories(event: MemoryMerged | MemoryUnmerged, text: str) -> list[str]:
    """Return the ids that a merge or its reversal is about; with a text, those that it names or gave the text to."""
    if text and text in (event.id, event.other):
        return [text]
    ids = [each for each in (event.id, event.other) if each and sets_content(event, each)]
    return [each for each in ids if holds_text(event, each, text)] or [event.id]


def find_subjects(core: Core, x: object, conversation: object, at: int, *, has_values: bool = False) -> list[Subject]:
    """Return the subjects that a result, a seq, or a text refers to; a text can be an id or a key.

    If it ``has_values``, the seq of an event that set a memory's content refers to that content alone, and so do words
    of the passage that the content is from.
    """
    home = known_conversation(core, conversation)
    if isinstance(x, (Hit, Upserted)):
        x = x.entry
    if isinstance(x, str):
        return _find_by_text(core, checks.text(x, "x"), home, at, has_values=has_values)
    if isinstance(x, Note):
        return [_find_note(core, x, at)]
    stream = None if home is None else f"conversation/{home}"
    seq = x if isinstance(x, int) and not isinstance(x, bool) else getattr(getattr(x, "stamp", x), "seq", None)
    if not isinstance(seq, int) or isinstance(seq, bool):
        checks.invalid(
            f"x is {checks.brief(x)}; give a message, a memory, a note, a hit, a seq, a key or a text of the log"
        )
    check_results(core.engine, (x,), (seq,))
    if isinstance(x, Entry):
        return _find_by_id(core, x.id, at)
    recorded = event_at(core, seq, at)
    if isinstance(x, Message):
        return [Subject("message", stream or recorded.stamp.stream, x.id, seq)]
    found: list[Subject] = []
    for each in subjects_of(recorded):
        if each.kind == "message" and stream:
            found.append(each._replace(stream=stream))
        elif has_values and each.kind == "memory" and sets_content(recorded.event, each.key):
            found.append(each)
        else:
            found += _find_by_id(core, each.key, at) if each.key and each.kind in _LASTING else [each]
    return found


def known_conversation(core: Core, conversation: object) -> str | None:
    """Return the id of a conversation; raise ``NotFound`` if an id, not a handle, is of none that ever began."""
    name = conversation_id(conversation)
    if name is None or not isinstance(conversation, str):
        return name
    if not (core.version(f"conversation/{name}") or core.version(session_board(name))):
        raise NotFound(f"there is no conversation {checks.brief(name)}; conversations() lists those there are")
    return name


def event_at(core: Core, seq: int, at: int) -> Recorded:
    """Return the event at a seq; raise ``NotFound`` if the branch has none there."""
    if seq > 0:
        for recorded in core.engine.reader.all_events(seq - 1, min(seq, at), core.branch):
            return recorded
    raise NotFound(f"no event of this memory is at seq {seq}; its head is {at}, and those of forks are in the forks")


def _find_by_id(core: Core, key: str, at: int) -> list[Subject]:
    """Return the subject with an id, from the first event that names it."""
    for recorded in core.events(EventFilter((key.encode(),)), until=at):
        for subject in subjects_of(recorded, key):
            if subject.key == key:
                return [subject._replace(is_whole=True)]
    raise NotFound(f"no event up to seq {at} names {checks.brief(key)}")


def _find_note(core: Core, note: Note, at: int) -> Subject:
    last = min(seq_at_time(core.engine.reader.log, core.engine.reader.current_head(), note.time_ns), at)
    sought = EventFilter((note.text.encode(),), (JournalAppended,))
    for event, stamp in core.events(sought, until=last, backwards=True):
        if isinstance(event, JournalAppended) and (event.day, event.text) == (note.day, note.text):
            return Subject("journal", stamp.stream, "", stamp.seq)
    raise NotFound(f"no journal has the note {checks.brief(note.text)} at seq {at}")


class _Subjects(dict[Subject, None]):
    """Subjects in the order in which they were found."""

    def __init__(self) -> None:
        super().__init__()
        self._places: set[tuple[str, ...]] = set()

    def add(self, subject: Subject) -> None:
        """Add a subject."""
        self[subject] = None
        self._places.add(subject[:3])

    def add_once(self, subject: Subject) -> None:
        """Add a subject, unless it was found before, at an earlier event; values of keys are subjects of their own."""
        if not subject.key or subject.kind in KEY_KINDS or subject[:3] not in self._places:
            self.add(subject)


def _find_by_text(core: Core, text: str, conversation: str | None, at: int, *, has_values: bool) -> list[Subject]:
    """Return the subjects that have the text as id or key, or else those whose events contain it."""
    if not text:
        checks.invalid("x is empty; give a text that something in the log holds")
    files = [] if conversation is not None or not text.startswith(f"{ROOT}/") else _find_files(core, text, at)
    if files:
        return files
    stream = None if conversation is None else f"conversation/{conversation}"
    found, named, whole = _Subjects(), _Subjects(), set[tuple[str, ...]]()
    searched: list[tuple[str | None, int]] = [(None, at)] if stream is None else [*origins(core, stream, at)]
    searched += [] if conversation is None else [(session_board(conversation), at)]
    for own, until in searched:
        for recorded in core.events(EventFilter((text.encode(),)), own, until=until):
            for subject in (*_offered_skills(recorded, text), *subjects_of(recorded, text)):
                is_on_board = subject.kind.startswith("board")
                known = subject if stream is None or is_on_board else subject._replace(stream=stream)
                key = known.key.partition("@")[0] if is_on_board else known.key
                if known.kind in KEY_KINDS and key == text:
                    named.add(known._replace(seq=0))
                elif known.key == text or _is_skill_named(recorded.event, text):
                    named.add_once(known._replace(is_whole=True))
                elif known.kind == "message" and is_in_metadata(recorded, text):
                    found.add(Subject("metadata", known.stream, "", recorded.stamp.seq))
                elif known.kind == "message":
                    found.add_once(known._replace(text=text))
                    if not _says(recorded, known.key, text):
                        whole.add(known[:3])
                elif known.kind not in _LASTING:
                    found.add_once(known)
                elif has_values and _is_in_passage(recorded.event, text):
                    found.add(known)
                else:
                    found.add_once(known._replace(text=text))
                    if not holds_text(recorded.event, known.key, text):
                        whole.add(known[:3])
    if any(each.kind == "skill" and each.key != text for each in named):  # One that was learned has an id.
        return [each for each in named if (each.kind, each.key) != ("skill", text)]
    return list(named) or [each._replace(is_whole=True) if each[:3] in whole else each for each in found]


def _find_files(core: Core, path: str, at: int) -> list[Subject]:
    """Return the file at a path, or the one that was removed there, in each tree of files; one moved away is not."""
    names = history.ids(core.engine, core.branch, "files", at=at)
    places = [find_file(core, f"files/{name}", path, at) for name in names]
    own = [place.id for place in places if place and not (place.end and isinstance(place.end.event, FileRenamed))]
    return [subject for file_id in own for subject in _find_by_id(core, file_id, at)]


def _is_in_passage(event: Event, text: str) -> bool:
    """Return whether only the passage that the content of a memory is from has a text, and not the content itself."""
    if not isinstance(event, (MemoryAdded, MemoryUpdated)):
        return False
    return text in (event.context or "") and not holds_text(event, event.id, text)


def _is_skill_named(event: Event, text: str) -> bool:
    return isinstance(event, (SkillLearned, SkillRefined)) and event.name == text


def _offered_skills(recorded: Recorded, text: str) -> list[Subject]:
    """Return the skill of a name that was selected or offered to a context; its text may exist only in a file."""
    event, stamp = recorded
    if isinstance(event, ContextShown) and event.skills:
        names = [str(row[0]) for row in unpack_json(event.skills)]
    else:
        names = list(event.names) if isinstance(event, SkillsSelected) else []
    return [Subject("skill", SKILLS_STREAM, text, max(stamp.seq - 1, 1))] if text in names else []


# Contents: between which events a memory held what a subject stands for.


def sets_content(event: Event, key: str) -> bool:
    """Return whether an event gave a memory its content, keywords and metadata, even if it was erased since."""
    if isinstance(event, MemoryUnmerged):
        return key == event.other or (key == event.id and event.content is not None)
    if isinstance(event, MemoryUpdated):
        return key == event.id and not {"content", "keywords", "metadata"}.isdisjoint(event.changed)
    return isinstance(event, (MemoryAdded, MemoryMerged)) and key == event.id


def holds_text(event: Event, key: str, text: str) -> bool:
    """Return whether an event gave a memory, a file or a skill a content with a text.

    A merge also gives the text that it took in, which the content may say in other words.
    """
    if isinstance(event, (FileCreated, FileEdited)):
        return text in event.text or text in getattr(event, "path", "")
    if isinstance(event, (SkillLearned, SkillRefined)):
        return text in "\n".join((event.name, event.description, event.text, *event.tags))
    is_erased = getattr(event, "incoming" if key == getattr(event, "other", None) else "content", None) is None
    if is_erased or not sets_content(event, key):
        return False
    if isinstance(event, MemoryMerged) and text in event.other_text and text not in event.text:
        return True
    content, words, extra = body_of(event, key)
    return text in content or any(text in word for word in words) or text.encode() in (extra or b"")


def _says(recorded: Recorded, message_id: str, text: str) -> bool:
    """Return whether an event gave a message a content with a text."""
    return any(text in text_of(message) for message in messages_by(recorded) if message.id == message_id)


def is_in_metadata(recorded: Recorded, text: str) -> bool:
    """Return whether only the metadata of a message holds a text, which no window and no context shows."""
    event = recorded.event
    if not isinstance(event, (MessageAppended, MessageReplaced)) or event.extra is None:
        return False
    shown = {key: value for key, value in unpack_json(event.extra).items() if key == INJECTED_KEY}
    return not Spelling(text).is_in(msgspec.msgpack.encode(replace(event, extra=pack_json(shown))))


def replacement_of_words(core: Core, subject: Subject, at: int) -> int:
    """Return the seq of the content without the words of a message that it had at a seq, 0 if it had them."""
    if not subject.text or subject.is_whole:
        return 0
    seq = core.read_written(subject.stream, lambda state: state.part(WINDOW).replaced.get(subject.key), at) or 0
    return 0 if keeps_words(core, subject, seq) else seq or subject.seq


def has_words(core: Core, subjects: Iterable[Subject], stream: str, at: int) -> bool:
    """Return whether any of some messages had its words at a seq, in its conversation or a fork of that."""
    replaced = core.read_written(stream, lambda state: state.part(WINDOW).replaced.copy(), at)
    return any(keeps_words(core, each, replaced.get(each.key, 0)) for each in subjects)


def keeps_words(core: Core, subject: Subject, seq: int) -> bool:
    """Return whether the content that a message got at a seq, 0 for its first one, has the words in question."""
    is_any = not subject.text or subject.is_whole
    return is_any or _says(core.event(seq or subject.seq), subject.key, subject.text)


def holds_now(core: Core, subject: Subject, at: int) -> bool:
    """Return whether a memory exists at a seq, with what a subject stands for."""
    return _holders(core, subject.stream, {subject.key: [subject]}, at)[subject]


def spans_of(core: Core, subjects: Iterable[Subject], at: int) -> dict[str, list[tuple[int, int]]]:
    """Return, by id, the first and the last seq of each time at which a memory held what one of the subjects means."""
    spans: dict[str, list[tuple[int, int]]] = {}
    bounded: dict[str, dict[str, list[Subject]]] = {}
    for subject in subjects:
        if subject.is_whole:
            spans.setdefault(subject.key, []).append((0, at))
        else:
            bounded.setdefault(subject.stream, {}).setdefault(subject.key, []).append(subject)
    for stream, own in bounded.items():
        begun: dict[Subject, int] = {}
        for seq, subject, is_held in _changes_of(core, stream, own, at):
            if is_held:
                begun.setdefault(subject, seq)
            elif subject in begun:
                spans.setdefault(subject.key, []).append((begun.pop(subject), seq - 1))
        for subject, seq in begun.items():
            spans.setdefault(subject.key, []).append((seq, at))
    return spans


def _changes_of(core: Core, stream: str, own: dict[str, list[Subject]], at: int) -> Iterator[tuple[int, Subject, bool]]:
    """Yield the seqs after which each of the subjects of a project is held, or no longer."""
    is_few = len(own) <= _SCAN_COUNT_MIN
    sought = EventFilter([key.encode() for key in own] if is_few else (), () if is_few else _SETTERS, FLAG_BASE)
    after = min(subject.seq for subjects in own.values() for subject in subjects) - 1
    for recorded in core.events(sought, stream, after=after, until=at):
        event, seq = recorded.event, recorded.stamp.seq
        if recorded.stamp.flags & FLAG_BASE:
            yield from ((seq, each, is_held) for each, is_held in _holders(core, stream, own, seq).items())
            continue
        for key in (getattr(event, "id", ""), getattr(event, "other", "")):
            for subject in own.get(key, ()):
                if sets_content(event, key):
                    is_held = holds_text(event, key, subject.text) if subject.text else seq == subject.seq
                    yield seq, subject, is_held


def _holders(core: Core, stream: str, own: dict[str, list[Subject]], at: int) -> dict[Subject, bool]:
    """Return which of the subjects of a project are held at a seq."""

    def setters(state: fold.State) -> dict[str, int | None]:
        facts = state.part(FACTS)
        found = {key: facts.entries.get(key) for key in own}
        return {
            key: (None if key in facts.erased else 0) if entry is None else entry.body_seq
            for key, entry in found.items()
        }

    held: dict[Subject, bool] = {}
    for key, setter in core.read_written(stream, setters, at).items():
        for subject in own[key]:
            if not setter:  # What an erased memory held is not known.
                held[subject] = setter is None and not (subject.text or subject.is_whole)
            elif subject.is_whole:
                held[subject] = True
            elif subject.text:
                held[subject] = holds_text(core.event(setter).event, key, subject.text)
            else:
                held[subject] = setter == subject.seq
    return held


# Stays: at which event a message came into a window, at which event it left, and why. A stretch of a conversation
# begins with a fork, a restore or an imported state, or with its first event. Within a stretch, a message that has left
# does not come back, so the event at which it left is found by bisection: first over checkpoint rows, whose seqs show
# which messages were in the window, then by folding the few events between two of them.


class Fill(NamedTuple):
    """A window just before an event: the tokens that it held, its budget, its policy."""

    tokens: int
    budget: int
    policy: str


class Stay(NamedTuple):
    """A stay of a message in a window: the seqs at which it came and left; ``left`` is 0 while it is there.

    A message that never entered the window left with the event that brought it. ``room`` is the window before the event
    that pushed the message out.
    """

    came: int
    left: int
    room: Fill | None = None


def stretches(core: Core, stream: str, until: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last seq of each stretch of a conversation, newest first."""
    while until:
        begin = core.read_written(stream, lambda state: state.part(SESSION).based, until)
        assert begin <= until, f"{stream} at seq {until} went on from a state at seq {begin}"
        yield begin, until
        until = begin - 1 if begin else 0


def stays(core: Core, stream: str, message_id: str, seq: int, until: int) -> Iterator[Stay]:
    """Yield the stays of a message in the window of a conversation up to a seq, newest first.

    If the conversation continued from a state that also had the message, the stay goes on.
    """
    known: Stay | None = None
    for stay in _stays_of_stretches(core, stream, message_id, seq, until):
        if known is not None and stay.left != known.came:
            yield known
            known = None
        known = stay if known is None else known._replace(came=stay.came)
    if known is not None:
        yield known


def _stays_of_stretches(core: Core, stream: str, message_id: str, seq: int, until: int) -> Iterator[Stay]:
    later = 0
    origin = core.event(seq)
    is_own = origin.stamp.stream == stream and isinstance(origin.event, (MessageAppended, WindowSummarized))
    for begin, end in stretches(core, stream, until):
        came = seq if is_own and begin < seq <= end else begin
        if came == seq or (begin and is_in_window(core, stream, message_id, begin)):
            is_kept = is_in_window(core, stream, message_id, end)
            yield Stay(came, later) if is_kept else _find_stay(core, stream, message_id, origin, came, end)
        later = begin


def is_in_window(core: Core, stream: str, message_id: str, at: int) -> bool:
    """Return whether a message was in the window at a seq."""
    return core.read_written(stream, lambda state: state.part(WINDOW).find(message_id) is not None, at)


def _find_stay(core: Core, stream: str, message_id: str, origin: Recorded, low: int, high: int) -> Stay:
    """Return the stay of a message that came at ``low`` and is gone at ``high``."""
    reader, seq, came = core.engine.reader, origin.stamp.seq, low
    is_imported = isinstance(origin.event, StateImported)
    with reader.state_lock:
        slot = reader.stream(core.key(stream))
        assert slot is not None, stream
        if not is_imported:  # All messages of an imported state share its seq.
            low, high = _narrow(core, slot, seq, low, high)
        state = reader.loader.state_at(slot, low)
    window = state.part(WINDOW)
    if window.find(message_id) is None:
        return Stay(came, low, core.read_written(stream, _fill_of, low - 1))
    for event, stamp in reader.events(core.key(stream), low, high):
        room = _fill_of(state)
        fold.fold(state, stamp, event)
        is_kept = type(event) is MessageAppended and _is_behind(window, message_id, seq)
        if not is_kept and window.find(message_id) is None:
            return Stay(came, stamp.seq, room)
    return Stay(came, high)


def _narrow(core: Core, slot: Stream, seq: int, low: int, high: int) -> tuple[int, int]:
    """Narrow the range between two seqs, by whether the checkpoint rows between them point at ``seq``."""
    checkpoints = core.engine.reader.checkpoints
    while True:
        middle = (low + high) // 2
        number = core.engine.reader.streams.holder(slot, middle).number
        row = checkpoints.before(number, middle)
        if row is None or row.seq <= low:
            row = checkpoints.after(number, middle)
        if row is None or not low < row.seq < high:
            return low, high
        if seq in row.pointed:
            low = row.seq
        else:
            high = row.seq


def _is_behind(window: Window, message_id: str, seq: int) -> bool:
    """Return whether older messages than the given one are in the queue, so that no append has pushed it out."""
    is_by_age = window.ranks is None and bool(window.queue)
    return is_by_age and window.queue[0].stamp.seq < seq and message_id not in window.gone


def _fill_of(state: fold.State) -> Fill:
    window = state.part(WINDOW)
    return Fill(window.tokens, window.limit, NAMES.get(window.policy, str(window.policy)))


def eviction_text(recorded: Recorded, message_id: str, room: Fill | None) -> str:
    """Return why a message left its window with an event; empty if the event's own sentence says everything."""
    event, stamp = recorded
    if room is None or not isinstance(event, (MessageAppended, MessageReplaced, WindowResized)):
        return ""
    by = f"eviction policy {room.policy}"
    if isinstance(event, MessageReplaced):
        return (
            f"it left the window: {event.role} message {event.id} was replaced by one of {event.tokens} tokens when "
            f"{room.tokens} of {room.budget} were in use ({by})"
        )
    if isinstance(event, WindowResized):
        return (
            f"it left the window: the budget was set to {event.window_tokens} tokens when {room.tokens} of "
            f"{room.budget} were in use ({by})"
        )
    if event.id == message_id:
        if event.answers is not None and event.tokens <= room.budget:
            return "it was never in the window: the call that it answers had left, or left with it"
        return f"it was never in the window: with its group it has more tokens than the budget of {room.budget}"
    return (
        f"it left the window: {event.role} {_name(event, stamp)} arrived with {event.tokens} tokens when {room.tokens} "
        f"of {room.budget} were in use ({by})"
    )


def _name(event: MessageAppended, stamp: Stamp) -> str:
    return "message (erased)" if stamp.erased else f"message '{shorten(text_of(event))}'"


def messages_by(recorded: Recorded) -> Iterable[Message]:
    """Return the messages that an event brought, including a summary of evicted ones."""
    event, stamp = recorded
    return (summary_message(event, stamp),) if isinstance(event, WindowSummarized) else messages_of(recorded)
