"""Exposure: the contexts, recalls and windows in which a model saw something, and its answers."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from refold import checks, fold
from refold.engine.scan import EventFilter
from refold.entry import MemoriesRecalled
from refold.errors import NotFound
from refold.event import FLAG_BASE, Forked, Recorded, Restored, unpack_json
from refold.limits import PAGE_EVENTS
from refold.log.protocol import scan
from refold.log.record import SEQ
from refold.memory.blame import KEY_KINDS, origins, revisions
from refold.memory.core import Core
from refold.memory.extensions import call_extension
from refold.memory.reasons import Exposure, Influence, sentence_of
from refold.memory.subjects import (
    Stay,
    Subject,
    find_subjects,
    has_words,
    keeps_words,
    messages_by,
    replacement_of_words,
    spans_of,
    stays,
    stretches,
    subjects_of,
)
from refold.memory.turns import context_of
from refold.message import PROMPT_ROLES, TOOL_ROLES, MessageAppended, MessageReplaced, text_of
from refold.views.session import ContextShown
from refold.views.skills import SkillLearned
from refold.views.window import WINDOW, MessagesRecalled

_SHOWN_RANKING: Final = "shown"
"""The ranking of recalls that only record that a context showed memories."""

_CONVERSATION: Final = "conversation/"
_FEW_EVENTS: Final = 4
_MARK: Final = re.compile(r"\[[^\[\]\n]{1,80}, not shown\]")
PARTS: Final = {
    "scratchpad": "scratchpad",
    "note": "scratchpad",
    "profile": "profile",
    "journal": "notes",
    "work": "session",
    "state": "session",
    "memory": "memories",
    "message": "window",
    "skill": "skills",
    "episode": "episodes",
}
"""The part of a context that shows each kind of subject."""

_WORDS_COUNT: Final = 8
"""Leading words of a text that are looked for in a part, one by one: a part alters marks that could forge another."""

_THEN_COUNT_MAX: Final = 64
_PASS_COUNT_MIN: Final = 16
"""Above this number of messages of one conversation, its windows are walked once for all of them.

Above this number of subjects, it is enough that a context showed the part for their kind.
"""


class Display(NamedTuple):
    """A context that was shown to a model, with the budget, the plan and the skills that its event recorded."""

    core: Core
    event: ContextShown
    seq: int
    stream: str
    budget: dict[str, Any]
    plan: dict[str, Any]
    skills: list[tuple[str, str, float]]

    @classmethod
    def of(cls, core: Core, recorded: Recorded) -> "Display":
        """Return the context of an event."""
        event, stamp = recorded
        assert isinstance(event, ContextShown), event
        budget: dict[str, Any]
        plan: dict[str, Any]
        budget, plan = unpack_json(event.budget) if event.budget else ({}, {})
        skills: list[tuple[str, str, float]] = unpack_json(event.skills) if event.skills else []
        return cls(core, event, stamp.seq, stamp.stream, budget, plan, skills)

    def rebuild(self) -> Any:
        """Rebuild the context; return ``None`` if this installation cannot."""
        try:
            return call_extension("rebuild", self.core, None, self.seq).context
        except NotFound:
            return None

    def text(self, part: str) -> str:
        """Return the text of a part, empty if there was none or it cannot be rebuilt."""
        context = self.rebuild()
        found = None if context is None else context.part(part)
        return "" if found is None else str(found.text)

    def list_skills(self) -> list[str]:
        """Return the names of the skills that it shows, best first."""
        kept: int = self.plan.get("skills", 0) if self.plan.get("skills_chars", 1) else 0
        if kept > 1:  # The last of several may have been cut to nothing.
            kept = self.text("skills").count("\n[/skill]")
        return [name for name, _, _ in self.skills[:kept]]

    def quotes(self, seq: int) -> bool:
        """Return whether a message is among the earlier messages that it shows."""
        count = len(self.plan.get("places", ()))
        return count > 0 and seq in self.event.sources[-count:]

    def says(self, subject: Subject, seq: int) -> bool:
        """Return whether it quotes a content of a message with the words in question, which can be a secret."""
        return self.quotes(seq) and not masked_words(self.core, subject, seq)

    def replacement_of(self, subject: Subject) -> int:
        """Return the seq of the content that replaced a message's own, if that is what it quotes, else 0."""
        for seq in self.event.sources[len(self.event.sources) - len(self.plan.get("places", ())) :]:
            event = self.core.event(seq).event
            if isinstance(event, MessageReplaced) and (event.id, event.origin) == (subject.key, subject.seq):
                return seq
        return 0

    def asks(self, message_id: str) -> bool:
        """Return whether a message is the question that it shows although the window had evicted it."""
        return bool(message_id) and message_id == self.plan.get("question")

    def shows(self, subject: Subject) -> bool:
        """Return whether it shows a subject."""
        event = self.event
        if subject.kind == "memory":
            return subject.key in event.ids
        if subject.kind == "episode":
            return subject.seq in self.plan.get("episodes", ())
        if subject.kind == "skill":
            name = skill_name(self.core, subject)
            return name in [each for each, _, _ in self.skills] and name in self.list_skills()
        if subject.kind == "message":
            return self.says(subject, subject.seq) or self.asks(subject.key) or self._has_in_window(subject)
        if not event.names:  # It was erased: it may have shown everything there was, so it counts.
            return subject.seq <= event.origin
        subject = self.as_seen(subject)
        part = PARTS.get(subject.kind, "")
        if part not in event.names or not self.has_owner(subject) or not 0 < subject.seq <= event.origin:
            return False
        origin = self.core.event(subject.seq)
        if origin.stamp.erased:
            return True  # Its text is gone and cannot be looked for: it is enough that the part for its kind was shown.
        words = subject.key or getattr(origin.event, "text", "") or getattr(origin.event, "path", "")
        text = self.text(part)
        return all(word in text for word in words.split()[:_WORDS_COUNT])

    def owner(self, subject: Subject) -> str:
        """Return the stream of which it shows the subjects of a kind."""
        event, kind = self.event, subject.stream.partition("/")[0]
        names = {"profile": event.profile, "journal": event.journal, "project": event.project}
        return f"{kind}/{names[kind]}" if kind in names else self.stream

    def has_owner(self, subject: Subject) -> bool:
        """Return whether it shows what the owner of a subject has: also that of a conversation which its own forked."""
        if not subject.stream.startswith(_CONVERSATION) or subject.stream == self.stream:
            return subject.stream == self.owner(subject)
        return any(subject.stream == own for own, _ in origins(self.core, self.stream, self.event.origin))

    def as_seen(self, subject: Subject) -> Subject:
        """Return a key that stands for all its values as the one that it had then, with seq 0 if it had none."""
        if subject.seq or subject.kind not in KEY_KINDS:
            return subject
        stream = self.stream if subject.stream.startswith(_CONVERSATION) else subject.stream
        values = revisions(self.core, stream, subject.kind, subject.key, self.event.origin)
        return subject._replace(seq=0 if not values or values[-1].removed else values[-1].seq)

    def _has_in_window(self, subject: Subject) -> bool:
        event = self.event

        def look(state: Any) -> tuple[str, int]:
            window = state.part(WINDOW)
            found, summary = window.find(subject.key), window.find(window.summary) if window.summary else None
            return "" if found is None else found.role, window.tokens - (0 if summary is None else summary.tokens)

        role, count = self.core.read_written(self.stream, look, event.origin)
        if not role or not self.budget or not self.plan:  # The parts of an erased context are unknown too.
            return bool(role)
        if role in PROMPT_ROLES:  # These are never left out, and neither is the summary.
            return True
        tokens = dict(zip(event.names, event.tokens, strict=True))
        if tokens.get("window", 0) + tokens.get("system", 0) == count:
            return True
        context = self.rebuild()
        return context is None or subject.key in [message.id for message in context.window]


def masked_words(core: Core, subject: Subject, seq: int) -> str:
    """Return what an earlier message shows in place of the words in question, empty if it shows them.

    Contexts mask the secrets of the messages that have left the window.
    """
    if not subject.text or subject.is_whole:
        return ""
    texts = [text_of(message) for message in messages_by(core.event(seq)) if message.id == subject.key]
    with suppress(NotFound):
        masked = [call_extension("mask_secrets", text) for text in texts if subject.text in text]
        if masked and not any(subject.text in text for text in masked):
            return ", ".join(dict.fromkeys(_MARK.findall("\n".join(masked)))) or "[not shown]"
    return ""


def skill_name(core: Core, subject: Subject) -> str:
    """Return the name under which a skill is selected and shown; a learned skill also has an id."""
    event = core.event(subject.seq).event if subject.seq else None
    return event.name if isinstance(event, SkillLearned) and event.id == subject.key else subject.key


def exposures(core: Core, subject: Subject, at: int, known_stays: Iterable[Stay] | None = None) -> list[Recorded]:
    """Return the contexts and the recalls that showed a subject, oldest first."""

    def shows(recorded: Recorded) -> bool:
        return Display.of(core, recorded).shows(subject)

    if subject.kind == "memory":
        found = core.events(EventFilter((subject.key.encode(),)), until=at)
        spans_by_id = spans_of(core, (subject,), at)
        return [recorded for recorded in found if _lists(recorded, spans_by_id)]
    if subject.kind == "message":
        own = stays(core, subject.stream, subject.key, subject.seq, at) if known_stays is None else known_stays
        spans = [(stay.came - 1, stay.left or at) for stay in own]
        shown = [each for span in spans for each in _contexts(core, subject.stream, *span) if shows(each)]
        known = {each.stamp.seq for each in shown}
        replaced = core.events(EventFilter((), (MessageReplaced,)), subject.stream, after=subject.seq, until=at)
        contents = [subject.seq, *(stamp.seq for event, stamp in replaced if getattr(event, "id", "") == subject.key)]
        quoting = {each.stamp.seq: each for seq in contents for each in _citations(core, seq, at)}
        displays = [
            (each, Display.of(core, each))
            for seq, each in quoting.items()
            if seq not in known and isinstance(each.event, ContextShown)
        ]
        shown += [
            each
            for each, display in displays
            if any(display.says(subject, content) for content in contents) or display.asks(subject.key)
        ]
        recalls = core.events(EventFilter((), (MessagesRecalled,)), subject.stream, after=subject.seq, until=at)
        shown += [
            each for each in recalls if isinstance(each.event, MessagesRecalled) and subject.key in each.event.ids
        ]
        if subject.text:
            shown = [each for each in shown if not replacement_of_words(core, subject, _seen_at(each))]
        return sorted(shown, key=lambda each: each.stamp.seq)
    if subject.kind in KEY_KINDS and subject.key and not subject.seq:
        values = {value.seq for value in revisions(core, subject.stream, subject.kind, subject.key, at)}
        shown = [each for seq in values for each in exposures(core, subject._replace(seq=seq), at)]
        return sorted({each.stamp.seq: each for each in shown}.values(), key=lambda each: each.stamp.seq)
    if subject.kind not in PARTS or not subject.seq:
        return []
    stream = subject.stream if subject.stream.startswith(_CONVERSATION) else None
    contexts = _contexts(core, stream, subject.seq, _last_seq(core, subject, at))
    return [each for each in contexts if shows(each)]


def _seen_at(recorded: Recorded) -> int:
    """Return the seq as of which a context or a recall saw a conversation."""
    event, seq = recorded.event, recorded.stamp.seq
    return event.origin if isinstance(event, ContextShown) and not recorded.stamp.erased else seq - 1


def _lists(recorded: Recorded, spans: Mapping[str, Iterable[tuple[int, int]]]) -> bool:
    """Return whether a context or a recall showed one of the memories while it held what is asked about."""
    event = recorded.event
    if isinstance(event, ContextShown):
        seen = event.origin
    elif isinstance(event, MemoriesRecalled) and event.ranking != _SHOWN_RANKING:
        seen = recorded.stamp.seq - 1
    else:
        return False
    return any(first <= seen <= last for key in event.ids for first, last in spans.get(key, ()))


def _last_seq(core: Core, subject: Subject, at: int) -> int:
    """Return the seq until which a value was current; an erased value has no key, but the next one points to it."""
    if subject.kind not in KEY_KINDS:
        return at
    if subject.key:
        values = [value.seq for value in revisions(core, subject.stream, subject.kind, subject.key, at)]
    else:
        later = core.events(EventFilter(()), subject.stream, after=subject.seq, until=at)
        values = [stamp.seq for event, stamp in later if getattr(event, "prior", 0) == subject.seq]
    return next((seq for seq in values if seq > subject.seq), at)


def _contexts(core: Core, stream: str | None, after: int, until: int) -> Iterator[Recorded]:
    return core.events(EventFilter((), (ContextShown,)), stream, after=after, until=until)


def _citations(core: Core, seq: int, at: int) -> list[Recorded]:
    """Return the events that cite an event as a source."""
    reader, source = core.engine.reader, SEQ.pack(seq)
    seqs = [SEQ.unpack(key[SEQ.size :])[0] for key, _ in scan(reader.log, "derived", source, PAGE_EVENTS)]
    with reader.state_lock:
        return reader.loader.recorded_events([each for each in seqs if each <= at])


# Influence: the turns that held something.


def influence_of(core: Core, frozen: int | None, x: object, conversation: object) -> Influence:
    """Return the turns that held what a caller refers to."""
    at = core.engine.reader.current_head() if frozen is None else frozen
    found = find_subjects(core, x, conversation, at, has_values=True)
    about = str(found[0]) if len(found) == 1 else checks.brief(x)
    return influence(core, found, about, at)


def influence(core: Core, subjects: Collection[Subject], about: str, at: int) -> Influence:
    """Return the turns of a model that held any of the subjects, in the order of their answers."""
    turns: dict[tuple[str, int, int], Exposure] = {}
    for conversation, answer, seen in _turns(core, subjects, at):
        known = (conversation, answer, 0 if answer else seen)
        if known not in turns:
            text, then = _answer(core, conversation, answer, at)
            turns[known] = Exposure(conversation, answer, seen, text, then)
    ordered = sorted(turns.values(), key=lambda turn: (turn.answer or turn.seen, turn.conversation))
    return Influence(about, tuple(ordered))


def _turns(core: Core, subjects: Collection[Subject], at: int) -> Iterator[tuple[str, int, int]]:
    """Yield conversation, answer and the seq of what was seen for each turn, some turns more than once."""
    messages: dict[str, list[Subject]] = {}
    memories = spans_of(core, (subject for subject in subjects if subject.kind == "memory"), at)
    answers: dict[str, tuple[int, int]] = {}
    for stream, seq in _display_seqs(core, subjects, memories, at):
        begin, answer = answers.get(stream, (0, 0))
        if not 0 < begin <= seq or 0 < answer <= seq:  # Otherwise the answer is the same as for the showing before.
            answer = _answer_after(core, stream, seq, at)
            answers[stream] = seq, answer
        yield stream.removeprefix(_CONVERSATION), _answer_to(core, stream, seq, answer, at), seq
    for subject in subjects:
        if subject.kind == "message":
            messages.setdefault(subject.stream, []).append(subject)
    bases = list(_bases(core, min(subject.seq for own in messages.values() for subject in own), at)) if messages else []
    for stream, own in messages.items():
        for each in (stream, *_forks(bases, stream, min(subject.seq for subject in own))):
            yield from ((each.removeprefix(_CONVERSATION), answer, 0) for answer in _window_turns(core, each, own, at))


def _display_seqs(
    core: Core,
    subjects: Collection[Subject],
    memories: Mapping[str, Iterable[tuple[int, int]]],
    at: int,
) -> Iterator[tuple[str, int]]:
    """Yield the conversation and the seq of each context and recall that showed one of the subjects."""
    others = [subject for subject in subjects if subject.kind not in ("memory", "metadata")]
    if memories:
        sought = EventFilter((), (ContextShown, MemoriesRecalled))
        for recorded in core.events(sought, until=at):
            event, stamp = recorded
            if not _lists(recorded, memories):
                continue
            if isinstance(event, ContextShown):
                yield stamp.stream, stamp.seq
            elif isinstance(event, MemoriesRecalled) and event.conversation:
                yield f"{_CONVERSATION}{event.conversation}", stamp.seq
    if len(others) <= _PASS_COUNT_MIN:
        for subject in others:
            yield from ((each.stamp.stream, each.stamp.seq) for each in exposures(core, subject, at))
        return
    # For very many subjects, as in an erasure, it is enough that the part for their kind was shown.
    seqs = {subject.seq for subject in others}
    streams = {subject.stream for subject in others}
    parts = {PARTS[subject.kind] for subject in others if subject.kind in PARTS}
    for recorded in _contexts(core, None, min(seqs), at):
        event, stamp = recorded
        assert isinstance(event, ContextShown), event
        owners = {stamp.stream, f"profile/{event.profile}", f"journal/{event.journal}", f"project/{event.project}"}
        has_like = not (streams.isdisjoint(owners) or parts.isdisjoint(event.names))
        # Earlier messages of other conversations are sources.
        if (has_like or not seqs.isdisjoint(event.sources)) and _shows_words(core, others, recorded):
            yield stamp.stream, stamp.seq


def _shows_words(core: Core, subjects: Collection[Subject], recorded: Recorded) -> bool:
    """Return whether a context saw any words that messages are asked for; if not all are messages, it may have."""
    if not all(subject.kind == "message" and subject.text for subject in subjects):
        return True
    near: dict[str, list[Subject]] = {}
    for subject in subjects:
        if subject.stream == recorded.stamp.stream or subject.seq in recorded.event.sources:
            near.setdefault(subject.stream, []).append(subject)
    return any(has_words(core, own, stream, _seen_at(recorded)) for stream, own in near.items())


class _Continuation(NamedTuple):
    """A seq at which a conversation continued from a state of another one."""

    seq: int
    stream: str
    origin: str


def _bases(core: Core, after: int, at: int) -> Iterator[_Continuation]:
    names = core.engine.reader.names()
    for event, stamp in core.events(EventFilter((), (), FLAG_BASE), after=after, until=at):
        base = event.base_stream if isinstance(event, (Forked, Restored)) else 0
        if base and stamp.stream.startswith(_CONVERSATION):
            yield _Continuation(stamp.seq, stamp.stream, names.stream(base))


def _forks(bases: Iterable[_Continuation], stream: str, after: int) -> Iterator[str]:
    """Yield the conversations that continued from a state of another, directly or through others."""
    known = {stream}
    for base in bases:
        if base.seq > after and base.origin in known and base.stream not in known:
            known.add(base.stream)
            yield base.stream


def _window_turns(core: Core, stream: str, subjects: Collection[Subject], at: int) -> Iterator[int]:
    """Yield the seqs of the answers before which the window held a message, unless a context was shown instead."""
    if len(subjects) > _PASS_COUNT_MIN:
        yield from _fold_turns(core, stream, {subject.key: subject for subject in subjects}, at)
        return
    for subject in subjects:
        for stay in stays(core, stream, subject.key, subject.seq, at):
            is_shown_apart, is_said = False, has_words(core, (subject,), stream, stay.came)
            sought = EventFilter((), (MessageAppended, MessageReplaced, ContextShown))
            for event, stamp in core.events(sought, stream, after=stay.came, until=stay.left or at):
                if isinstance(event, ContextShown):
                    is_shown_apart = True
                elif isinstance(event, MessageReplaced):
                    is_said = keeps_words(core, subject, stamp.seq) if event.id == subject.key else is_said
                elif isinstance(event, MessageAppended) and event.role == "assistant":
                    if is_said and not is_shown_apart and context_of(core, stamp) is None:
                        yield stamp.seq
                    is_shown_apart = False


def _fold_turns(core: Core, stream: str, by_id: Mapping[str, Subject], at: int) -> Iterator[int]:
    reader = core.engine.reader
    for begin, end in reversed(list(stretches(core, stream, at))):
        with reader.state_lock:
            slot = reader.stream(core.key(stream))
            if slot is None:
                return
            state = reader.loader.state_at(slot, begin) if begin else fold.empty("conversation")
        window = state.part(WINDOW)
        ids = {key for key, each in by_id.items() if keeps_words(core, each, window.replaced.get(key, 0))}
        for event, stamp in reader.events(core.key(stream), begin, end):
            if isinstance(event, MessageReplaced) and (subject := by_id.get(event.id)) is not None:
                (ids.add if keeps_words(core, subject, stamp.seq) else ids.discard)(event.id)
            if isinstance(event, MessageAppended) and event.role == "assistant" and _holds_any(window, ids):
                yield stamp.seq
            if not begin or stamp.seq > begin:
                fold.fold(state, stamp, event)


def _holds_any(window: Any, ids: Collection[str]) -> bool:
    return any(each.event.id in ids for each in window.passed) or any(
        each.event.id in ids and each.event.id not in window.gone for each in window.queue
    )


def _answer_after(core: Core, stream: str, seq: int, at: int) -> int:
    """Return the seq of the assistant's first answer after a seq, 0 if there is none yet."""
    events = core.engine.reader.events(core.key(stream), seq, at, first_page=_FEW_EVENTS)
    return next((s.seq for e, s in events if isinstance(e, MessageAppended) and e.role == "assistant"), 0)


def _answer_to(core: Core, stream: str, seq: int, first: int, at: int) -> int:
    """Return the answer to what was shown at a seq: the first one after it, unless that was made from another context.

    Several processes can think at the same time.
    """
    context = context_of(core, core.event(first).stamp) if first else None
    if context is None or context.stamp.seq == seq or not isinstance(core.event(seq).event, ContextShown):
        return first
    later = core.events(EventFilter((), (MessageAppended,)), stream, after=first, until=at)
    return next((stamp.seq for _, stamp in later if stamp.cause == seq), 0)


class Ground(NamedTuple):
    """What an answer was made from: the context that the model was given, and the results of tools in its turn."""

    context: Recorded | None
    results: list[Recorded]
    """Newest first."""


def ground_of(core: Core, answer: Recorded) -> Ground:
    """Return what an answer of the assistant was made from; a turn begins with the user's last own message."""
    context = context_of(core, answer.stamp)
    results: list[Recorded] = []
    is_in_step = is_in_turn = True
    sought = EventFilter((), (ContextShown, MessageAppended))
    for recorded in core.events(sought, answer.stamp.stream, until=answer.stamp.seq - 1, backwards=True):
        event = recorded.event
        if isinstance(event, ContextShown):
            context = recorded if context is None and is_in_step else context
        elif isinstance(event, MessageAppended):
            is_in_step = is_in_step and event.role != "assistant"
            is_result = event.role in TOOL_ROLES or event.answers is not None
            is_in_turn = is_in_turn and (is_result or event.role != "user")
            results += [recorded] if is_in_turn and is_result else []
        if not is_in_turn and not (is_in_step and context is None):
            break
    return Ground(context, results)


def _answer(core: Core, conversation: str, answer: int, at: int) -> tuple[str, tuple[int, ...]]:
    """Return an answer as a sentence, and the seqs of the events before the next message of user or assistant."""
    if not answer:
        return "nothing was answered yet", ()
    then, key = list[int](), core.key(f"{_CONVERSATION}{conversation}")
    for event, stamp in core.engine.reader.events(key, answer, at, first_page=_FEW_EVENTS):
        if isinstance(event, MessageAppended) and event.role in ("user", "assistant"):
            break
        if not isinstance(event, ContextShown):
            then.append(stamp.seq)
        if len(then) >= _THEN_COUNT_MAX:
            break
    return sentence_of(core.event(answer)), tuple(then)


def reach(core: Core, seqs: Collection[int]) -> tuple[int, int]:
    """Return the numbers of turns and of conversations in which a model saw what events of any branch brought."""
    reader = core.engine.reader
    numbers = [(found.seq, found.number) for found in reader.log.events_at(sorted(seqs))]
    by_branch: dict[int, list[int]] = {}
    with reader.state_lock:
        for seq, number in numbers:
            by_branch.setdefault(reader.streams.branch_of(number), []).append(seq)
    turns, conversations = 0, 0
    for branch, own in by_branch.items():
        there = core.with_branch(branch)
        with reader.state_lock:
            subjects = [
                subject for recorded in reader.loader.recorded_events(own) for subject in _new_subjects(recorded)
            ]
        found = influence(there, subjects, "", reader.current_head())
        turns, conversations = turns + len(found.turns), conversations + len(found.conversations)
    return turns, conversations


def _new_subjects(recorded: Recorded) -> list[Subject]:
    """Return the subjects that an event brought; for an imported state, all its messages."""
    stamp = recorded.stamp
    messages = [Subject("message", stamp.stream, each.id, stamp.seq) for each in messages_by(recorded)]
    return messages or subjects_of(recorded)
