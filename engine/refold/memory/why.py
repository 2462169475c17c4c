"""Why: when and how something came and left, what showed it to a model, and why a search did not find it."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from refold import checks, fold
from refold.engine.history import names_with
from refold.engine.scan import EventFilter
from refold.engine.streams import STORE_STREAM
from refold.entry import ACTIVE, MemoriesDecayed, MemoriesRecalled, MemoryMerged
from refold.errors import InvalidInput, NotFound
from refold.event import FLAG_BASE, Erased, Event, Recorded, Stamp, StateImported, clock_of
from refold.fold import State
from refold.index.ranking import DEFAULT, ranking_of
from refold.memory import messages
from refold.memory.blame import KEY_KINDS, causes_of, origins, revisions, setter_of
from refold.memory.core import Core
from refold.memory.exposure import PARTS, Display, exposures, ground_of, masked_words, skill_name
from refold.memory.extensions import call_extension
from refold.memory.handles import Settings
from refold.memory.options import conversation_id
from refold.memory.project import Project
from refold.memory.reasons import Reason, Why, reason_of, shorten
from refold.memory.search import DEFAULTS
from refold.memory.subjects import (
    Stay,
    Subject,
    event_at,
    eviction_text,
    find_subjects,
    holds_now,
    holds_text,
    is_in_window,
    messages_by,
    replacement_of_words,
    sets_content,
    stays,
)
from refold.message import MessageAppended, MessageReplaced
from refold.results import Hits
from refold.text import pluralize
from refold.views.board import BOARD, MESSAGES_KEPT, BoardChanged, BoardMessageAppended
from refold.views.episodes import EPISODES
from refold.views.facts import FACTS
from refold.views.files import FILES, Tree
from refold.views.profile import JOURNAL
from refold.views.scratchpad import SCRATCH
from refold.views.session import SESSION, WORK, ContextShown
from refold.views.skills import SKILLS, LearnedSkill, SkillsSelected
from refold.views.window import MessagesRecalled

_IMPORTANCE_MIN: Final[float] = DEFAULTS.get("min_importance", 0.0)
_RANKS: Final = {"message": 1, "event": 2, "metadata": 2}
_PLACE_TAKEN: Final = "the content of seq {} had taken its place"
_EVERY: Final = 1_000_000  # More hits than any search returns.
_SUBJECTS_COUNT_MAX: Final = 20  # Only the newest subjects of a text get an answer.
_RESULTS_COUNT_MAX: Final = 10  # Only the newest results of tools behind an answer are listed.
_SHOWN_COUNT_MAX: Final = 20  # Only the newest contexts and recalls of a subject are listed.


def answer(core: Core, frozen: int | None, x: object, conversation: object, missing_from: object) -> Why:
    """Return the answer for a live or frozen memory."""
    at = core.engine.reader.current_head() if frozen is None else frozen
    found = find_subjects(core, x, conversation, at)
    steps: list[Reason] = []
    present: list[str] = []
    for subject in _newest_subjects(found):
        own = list(_life(core, subject, at))
        if _is_there(core, subject, at):
            present.append(str(subject))
        if missing_from is not None and subject.kind != "metadata":
            own += _absence(core, frozen, subject, missing_from, at)
        steps += [replace(step, subject=str(subject)) for step in own]
    if len(found) > _SUBJECTS_COUNT_MAX:
        steps.append(
            Reason(
                "hidden",
                f"{len(found) - _SUBJECTS_COUNT_MAX} more places are not listed here; give an id, a seq or more words",
            )
        )
    if not found:
        erased = sum(len(seqs) for _, seqs in _erasures(core, 0, at))
        where = "" if conversation is None else f" in conversation/{conversation_id(conversation)}"
        text = f"no event up to seq {at} holds {checks.brief(x)}{where}; {erased} erased events may have held it"
        named = names_with(core.engine.reader, x) if isinstance(x, str) and conversation is None else []
        text += f"; {pluralize(len(named), 'name')} of streams hold it, the first is {named[0]}" if named else ""
        steps.append(Reason("hidden", text))
    about = str(found[0]) if len(found) == 1 else (f"{shorten(x)!r}" if isinstance(x, str) else checks.brief(x))
    return Why(about, bool(present), tuple(steps), tuple(present), len(found))


def _newest_subjects(found: Sequence[Subject]) -> list[Subject]:
    """Return the newest subjects to answer for: things, then messages, then events that only contain the words."""
    chosen: list[Subject] = []
    for rank in range(3):
        own = [subject for subject in found if _RANKS.get(subject.kind, 0) == rank]
        chosen += own[max(len(own) + len(chosen) - _SUBJECTS_COUNT_MAX, 0) :]
    return chosen


# Lives: the events that brought a subject, changed it, and took it away.


def _life(core: Core, subject: Subject, at: int) -> Iterator[Reason]:
    own: list[Stay] | None = None
    if subject.kind == "message":
        own = list(stays(core, subject.stream, subject.key, subject.seq, at))
        yield from _message_life(core, subject, own, at)
    elif subject.kind in KEY_KINDS:
        yield from _key_life(core, subject, at)
    elif subject.kind == "board message":
        yield from _board_message_life(core, subject, at)
    elif subject.kind in _RANKS:
        yield from _origin_reasons(core, event_at(core, subject.seq, at), at)
        if subject.kind == "metadata":
            yield Reason("hidden", "only the metadata of the message holds it, which no window and no context shows")
    else:
        yield from _item_life(core, subject, at)
    shown = exposures(core, subject, at, own)
    if len(shown) > _SHOWN_COUNT_MAX:
        yield Reason(
            "shown", f"{len(shown) - _SHOWN_COUNT_MAX} earlier contexts and recalls showed it too; ask `influence`"
        )
    for recorded in shown[-_SHOWN_COUNT_MAX:]:
        yield reason_of("shown", recorded, text=_display_text(core, subject, recorded))


def _display_text(core: Core, subject: Subject, recorded: Recorded) -> str:
    """Describe the part in which a context showed a subject, and for which query; empty for other events."""
    event = recorded.event
    if not isinstance(event, ContextShown) or recorded.stamp.erased:
        return ""
    query = f", for {shorten(event.query)!r}" if event.query else ""
    return f"a context showed it in its part {_part_of(subject, Display.of(core, recorded))}{query}"


def _part_of(subject: Subject, display: Display) -> str:
    return "messages" if subject.kind == "message" and display.quotes(subject.seq) else PARTS[subject.kind]


def _origin_reasons(core: Core, recorded: Recorded, at: int, relation: str = "came") -> Iterator[Reason]:
    """Yield the event that brought something, the events that led to it, its sources, and its erasure."""
    yield reason_of(relation, recorded)
    for cause in causes_of(core, recorded):
        if not isinstance(cause.event, ContextShown):  # What a reply was made from comes among its sources.
            yield reason_of("cause", cause)
    sources = dict.fromkeys((*recorded.event.sources, getattr(recorded.event, "origin", 0)))
    for seq in sources:
        if 0 < seq < recorded.stamp.seq and not isinstance(recorded.event, ContextShown):
            yield reason_of("source", core.event(seq))
    if recorded.stamp.erased:
        for erasure, seqs in _erasures(core, recorded.stamp.seq, at):
            if recorded.stamp.seq in seqs:
                yield reason_of("erased", erasure, text=f"its content was erased, with that of {len(seqs) - 1} others")


def _erasures(core: Core, after: int, at: int) -> Iterator[tuple[Recorded, tuple[int, ...]]]:
    # An erasure is recorded in the main line and applies to earlier events, whichever seq is asked about.
    head = max(at, core.engine.reader.current_head())
    for recorded in core.with_branch(0).events(EventFilter((), (Erased,)), STORE_STREAM, after=after, until=head):
        if isinstance(recorded.event, Erased):
            yield recorded, recorded.event.seqs


def _message_life(core: Core, subject: Subject, own: Sequence[Stay], at: int) -> Iterator[Reason]:
    came = event_at(core, subject.seq, at)
    yield from _origin_reasons(core, came, at)
    if isinstance(came.event, MessageAppended) and came.event.role == "assistant":
        yield from _ground_reasons(core, came)
    if _words(subject):
        yield from _words_life(core, subject, own, at)
        return
    for recorded in _events_of(core, EventFilter((), (MessageReplaced,)), subject.stream, subject.seq, at):
        if getattr(recorded.event, "id", None) == subject.key:
            yield reason_of("changed", recorded)
    for stay in reversed(own):
        yield from _stay_reasons(core, subject, stay)


def _ground_reasons(core: Core, answer: Recorded) -> Iterator[Reason]:
    """Yield the context that a model was given for an answer, and the results of tools in its turn."""
    context, results = ground_of(core, answer)
    if context is not None:
        seq = context.stamp.seq
        text = "" if context.stamp.erased else f"the context that it was given; memory.rebuild({seq}) shows it"
        yield reason_of("source", context, text=text)
    if len(results) > _RESULTS_COUNT_MAX:
        more = pluralize(len(results) - _RESULTS_COUNT_MAX, "earlier result")
        yield Reason("source", f"{more} of tools in its turn")
    for result in reversed(results[:_RESULTS_COUNT_MAX]):
        if result.stamp.seq not in answer.event.sources:
            yield reason_of("source", result)


def _stay_reasons(core: Core, subject: Subject, stay: Stay) -> Iterator[Reason]:
    if stay.came != subject.seq:
        text = "it came into the window with an earlier state"
        yield reason_of("returned", core.event(stay.came), text=text)
    if stay.left:
        recorded = core.event(stay.left)
        yield reason_of("left", recorded, text=eviction_text(recorded, subject.key, stay.room))


def _words_life(core: Core, subject: Subject, own: Sequence[Stay], at: int) -> Iterator[Reason]:
    """Yield how words left the window or came back: with their message, by a replacement, or with an earlier state."""
    steps = {step.seq: step for stay in own for step in _stay_reasons(core, subject, stay)}
    sought = EventFilter((), (MessageReplaced,), FLAG_BASE)
    for recorded in _events_of(core, sought, subject.stream, subject.seq, at):
        is_base = bool(recorded.stamp.flags & FLAG_BASE)
        if is_base or getattr(recorded.event, "id", None) == subject.key:
            steps.setdefault(recorded.stamp.seq, reason_of("" if is_base else "changed", recorded))
    had_words = is_there = not replacement_of_words(core, subject, subject.seq)
    for seq, step in sorted(steps.items()):
        was_there, is_there = is_there, _is_there_after(core, subject, core.event(seq))
        if was_there and not is_there:
            is_replaced = step.relation == "changed"
            yield replace(
                step, relation="left", text=f"its content was replaced: {step.text}" if is_replaced else step.text
            )
        elif is_there and not was_there:
            yield replace(step, relation="returned" if had_words else "changed")
        elif (step.relation == "changed" and is_there) or (step.relation == "left" and not had_words):
            yield step
        had_words |= is_there


def _key_life(core: Core, subject: Subject, at: int) -> Iterator[Reason]:
    """Yield all values of a key, or the one that an event set, with the events that took it away or brought it back."""
    was_there = came = False
    for value in revisions(core, subject.stream, subject.kind, subject.key, at):
        recorded, seq = core.event(value.seq), value.seq
        is_there = not value.removed
        if subject.seq and seq != subject.seq:
            if seq < subject.seq:
                continue
            is_there = value.kind in _RETURNING and _is_there(core, subject, seq)
        if is_there and (not subject.seq or not was_there):
            yield from _origin_reasons(core, recorded, at, "changed" if was_there else ("returned" if came else "came"))
            came = True
        elif was_there and not is_there:
            replaced = f"its value was replaced: {reason_of('', recorded).text}"
            yield reason_of("left", recorded, text="" if value.removed else replaced)
        was_there = is_there


_RETURNING: Final = ("forked", "restored", "state_imported")
"""The events that can bring a value back."""


def _board_message_life(core: Core, subject: Subject, at: int) -> Iterator[Reason]:
    """Yield how a message came to a board and left it; between two bases, a message that has left does not return."""
    came = core.event(subject.seq)
    yield from _origin_reasons(core, came, at)
    enders = [event_type for event_type in fold.TAGS if "board" in event_type.ends]
    sought = EventFilter((), (BoardMessageAppended, BoardChanged, *enders), FLAG_BASE)
    later = list(_events_of(core, sought, subject.stream, subject.seq, at))
    bases = [place for place, recorded in enumerate(later) if recorded.stamp.flags & FLAG_BASE]
    was_there, begin = _is_there_after(core, subject, came), 0
    for base in (*bases, len(later)):
        if was_there and begin < base and not _is_there_after(core, subject, later[base - 1]):
            place = bisect_left(later, 1, begin, base, key=lambda each: int(not _is_there_after(core, subject, each)))
            yield reason_of("left", later[place], text=_removal_text(came.event, later[place]))
            was_there = False
        if base < len(later):
            is_there = _is_there_after(core, subject, later[base])
            if is_there != was_there:
                yield reason_of("returned" if is_there else "left", later[base])
            was_there, begin = is_there, base + 1


def _removal_text(event: Any, recorded: Recorded) -> str:
    """Return why a newer message removed a message from its board; empty for other events."""
    if not isinstance(recorded.event, BoardMessageAppended):
        return ""
    if event.id and recorded.event.id == event.id:
        return f"another text took its place: {reason_of('', recorded).text}"
    return f"it was the oldest of more than {MESSAGES_KEPT} messages, which is all that a board keeps"


def _item_life(core: Core, subject: Subject, at: int) -> Iterator[Reason]:
    """Yield the steps of a memory, a skill, a file, or the items of one event, from the events of its stream."""
    enders = tuple(event_type for event_type in fold.TAGS if subject.kind in event_type.ends)
    after = subject.seq - 1 if subject.seq else 0
    sought = EventFilter((subject.key.encode(),) if subject.key else (), (*enders, StateImported), FLAG_BASE)
    came = is_there = False
    if not subject.key:
        origin = core.event(subject.seq)
        yield from _origin_reasons(core, origin, at)
        came, after = True, subject.seq
        is_there = _is_there_after(core, subject, origin)
    for recorded in _events_of(core, sought, subject.stream, after, at):
        event = recorded.event
        if recorded.stamp.flags & FLAG_BASE or isinstance(event, (StateImported, *enders)):
            was_there, is_there = is_there, _is_there_after(core, subject, recorded)
            if was_there != is_there:
                yield reason_of("returned" if is_there else "left", recorded)
        elif _names(event, subject.key):
            if event.removes(subject.key):
                if not came and isinstance(event, MemoryMerged):  # It came only to be merged.
                    yield from _origin_reasons(core, recorded, at)
                    came = is_there = True
                if is_there:
                    yield reason_of("left", recorded, text=_merge_text(event, subject.key))
                is_there = False
            elif isinstance(event, MemoriesRecalled):
                continue  # The ``shown`` steps cover recalls.
            elif not _has_text_after(core, subject, recorded, had_text=is_there):
                if is_there:
                    text = f"its content changed: {reason_of('', recorded).text}"
                    yield reason_of("left", recorded, text=text)
                is_there = False
            elif not is_there:
                yield from _origin_reasons(core, recorded, at, "returned" if came else "came")
                came, is_there = True, not recorded.stamp.erased
            else:
                yield reason_of("changed", recorded, text=_decay_text(event, subject.key))
    if subject.kind == "memory":
        yield from _filter_reasons(core, subject, at)


def _has_text_after(core: Core, subject: Subject, recorded: Recorded, *, had_text: bool) -> bool:
    """Return whether a thing holds the text that the question is about after an event that names it."""
    if not _words(subject):
        return True
    if subject.kind != "memory":
        return _is_there_after(core, subject, recorded)
    is_set = sets_content(recorded.event, subject.key)
    return holds_text(recorded.event, subject.key, subject.text) if is_set else had_text


def _names(event: Event, key: str) -> bool:
    own = (getattr(event, field, None) for field in ("id", "other", "name"))
    return bool(key) and (key in own or key in getattr(event, "ids", ()))


def _merge_text(event: Any, key: str) -> str:
    return (
        f"it was merged into memory {event.id} at a cosine of {event.cosine:.3g}"
        if hasattr(event, "cosine") and key
        else ""
    )


def _decay_text(event: Event, key: str) -> str:
    if not isinstance(event, MemoriesDecayed):
        return ""
    return f"its importance fell to {event.importances[event.ids.index(key)]:.3g} with the days"


def _filter_reasons(core: Core, subject: Subject, at: int) -> Iterator[Reason]:
    """Yield why default searches skip a memory that exists."""
    entry = core.read_written(subject.stream, lambda state: state.part(FACTS).entries.get(subject.key), at)
    if entry is None:
        return
    if entry.status != ACTIVE:
        yield Reason("hidden", f"searches pass over it: its status is {entry.status}")
    least = _IMPORTANCE_MIN
    if entry.importance < least:
        yield Reason("hidden", f"searches pass over it: its importance of {entry.importance:.3g} is under {least}")


def _words(subject: Subject) -> str:
    """Return the text that a thing must hold to be present, empty if it only has to exist."""
    return "" if subject.is_whole else subject.text


def _has_skill(skill: LearnedSkill | None, text: str) -> bool:
    return skill is not None and text in "\n".join((skill.name, skill.description, skill.body, *skill.tags))


def _has_file(tree: Tree, file_id: str, text: str) -> bool:
    path = tree.places.get(file_id)
    return path is not None and (text in path or text in (tree.nodes[path].text or ""))


_PRESENT: Final[dict[str, Callable[[State, Subject], bool]]] = {
    "skill": lambda state, subject: _has_skill(state.part(SKILLS).learned.get(subject.key), _words(subject)),
    "file": lambda state, subject: _has_file(state.part(FILES), subject.key, _words(subject)),
    "episode": lambda state, subject: subject.key in state.part(EPISODES).ids,
    "note": lambda state, subject: subject.seq in [seq for seq, _ in state.part(SCRATCH).notes],
    "journal": lambda state, subject: any(
        subject.seq == seq for notes in state.part(JOURNAL).days.values() for seq, _ in notes
    ),
    "board message": lambda state, subject: any(
        posted.seq == subject.seq and posted.packed
        for listing in state.part(BOARD).listings.values()
        for posted in listing.rows
    ),
    "work": lambda state, subject: (
        subject.seq
        in (
            state.part(WORK).task_seq,
            *(seq for seq, _ in state.part(WORK).files.values()),
            *state.part(WORK).findings.values(),
        )
    ),
}
"""By kind of subject, whether a state holds it."""


def _is_there(core: Core, subject: Subject, at: int) -> bool:
    """Return whether a subject is present at a seq: a message in the window, a key with its value."""
    if subject.kind == "message":
        is_held = is_in_window(core, subject.stream, subject.key, at)
        return is_held and not replacement_of_words(core, subject, at)
    if subject.kind in KEY_KINDS:
        seq = core.read_written(subject.stream, partial(setter_of, subject.kind, subject.key, known=-1), at)
        if seq >= 0 or not subject.seq:  # Otherwise the state does not say which event set it.
            return seq == subject.seq if subject.seq else seq != 0
        values = revisions(core, subject.stream, subject.kind, subject.key, at)
        return bool(values) and values[-1].seq == subject.seq and not values[-1].removed
    if subject.kind == "memory":
        return holds_now(core, subject, at)
    present = _PRESENT.get(subject.kind)
    if present is None:
        return not event_at(core, subject.seq, at).stamp.erased
    return core.read_written(subject.stream, lambda state: present(state, subject), at)


def _is_there_after(core: Core, subject: Subject, recorded: Recorded) -> bool:
    """Return whether a subject is present after an event of its stream, or of one that its stream was forked from."""
    return _is_there(core, subject._replace(stream=recorded.stamp.stream), recorded.stamp.seq)


def _events_of(core: Core, sought: EventFilter, stream: str, after: int, at: int) -> Iterator[Recorded]:
    """Yield the events of a stream, and before them those of the streams that it was forked from."""
    for own, until in reversed(list(origins(core, stream, at))):
        yield from core.events(sought, own, after=after, until=until)


# Absence: why a search, a recall or a context did not show a subject.


def _absence(core: Core, frozen: int | None, subject: Subject, missing_from: object, at: int) -> Iterator[Reason]:
    if isinstance(missing_from, str):
        yield from _search_absence(core, frozen, subject, missing_from, {})
    elif isinstance(missing_from, Hits):
        options = {"top_k": max(len(missing_from), 1), "ranking": missing_from.ranking}
        yield from _search_absence(core, frozen, subject, missing_from.query, options)
    else:
        recorded = event_at(core, checks.integer(missing_from, "missing_from", 1, at, "the head"), at)
        event, stamp = recorded
        if isinstance(event, (MemoriesRecalled, MessagesRecalled)):
            yield from _recall_absence(core, subject, event, stamp)
        elif isinstance(event, ContextShown):
            yield _context_absence(core, subject, recorded)
        else:
            raise InvalidInput(
                f"seq {stamp.seq} is no recall and no context that was shown; give one of those, or a query"
            )


def _recall_absence(
    core: Core, subject: Subject, event: MemoriesRecalled | MessagesRecalled, stamp: Stamp
) -> Iterator[Reason]:
    """Yield why a recall did not find a subject."""
    options: dict[str, Any] = {"top_k": max(len(event.ids), 1)}
    if isinstance(event, MemoriesRecalled):
        options |= {"ranking": event.ranking, "now": clock_of(stamp)}
    if stamp.erased:
        yield Reason("hidden", f"the recall at seq {stamp.seq} was erased: what it looked for is not known")
    elif subject.stream != stamp.stream:
        yield Reason("hidden", f"the recall at seq {stamp.seq} was one of {stamp.stream}, and looked nowhere else")
    else:
        yield from _search_absence(core, stamp.seq - 1, subject, event.query, options)


def _search_absence(
    core: Core, at: int | None, subject: Subject, query: str, options: dict[str, Any]
) -> Iterator[Reason]:
    """Yield the reasons that kept a subject out of the hits of a query: a filter, the floor, or its rank."""
    top_k: int = options.get("top_k", 10)
    if subject.kind == "message":
        if seq := replacement_of_words(core, subject, core.engine.reader.current_head() if at is None else at):
            yield Reason("hidden", _PLACE_TAKEN.format(seq))
            return
        hits = messages.search(core, subject.stream, at, query, top_k=_EVERY, roles=None, explain=True)
        yield _rank(hits, top_k, [place for place, hit in enumerate(hits) if hit.entry.id == subject.key], {})
    elif subject.kind == "memory":
        project = Project(core, subject.stream.partition("/")[2], at)
        entry = project.get(subject.key)
        if entry is None or entry.erased:
            head = core.engine.reader.current_head() if at is None else at
            yield Reason("hidden", f"the search could not find it: it was not in the project at seq {head}")
            return
        least = _IMPORTANCE_MIN
        if entry.status != ACTIVE or entry.importance < least:
            yield Reason(
                "hidden",
                f"the filters left it out: its status is {entry.status} and its importance {entry.importance:.3g}; "
                f"those that are {ACTIVE} and have {least} or more are searched",
            )
            return
        ranking = options.get("ranking", DEFAULT)
        now = {"now": options["now"]} if "now" in options else {}
        found = project.search(query, top_k=top_k, ranking=ranking, **now)
        hits = project.search(query, top_k=_EVERY, ranking=ranking, explain=True, floor=0.0, **now)
        places = [place for place, hit in enumerate(hits) if hit.entry.id == subject.key]
        if ranking_of(ranking) == ranking_of(DEFAULT) and places and hits[places[0]].score <= 0:
            score = hits[places[0]].score
            yield Reason("hidden", f"it has nothing to do with {shorten(query)!r}: its score is {score:.3g}")
            return
        if not found and hits:
            yield Reason(
                "hidden",
                f"nothing was found: the best score of {hits[0].score:.3g} is below the floor of {found.floor:.3g}",
            )
            return
        yield _rank(hits, top_k, places, ranking_of(ranking).weights())
    elif subject.kind == "skill":
        yield Reason("hidden", _verdict(core, at, skill_name(core, subject), query))
    else:
        yield Reason(
            "hidden", f"searches find messages, memories and skills, and this is {_with_article(subject.kind)}"
        )


def _rank(hits: Hits, top_k: int, places: Sequence[int], weights: dict[str, float]) -> Reason:
    if not places:
        return Reason("hidden", f"it shares nothing with the query {shorten(hits.query)!r}: it has no score")
    place = places[0]
    if place < top_k:
        return Reason(
            "shown", f"it is hit {place + 1} of {shorten(hits.query)!r}, with a score of {hits[place].score:.3g}"
        )
    own, last = hits[place], hits[top_k - 1]
    losses = {
        signal: weights.get(signal, 1.0) * (last.parts.get(signal, 0.0) - own.parts.get(signal, 0.0))
        for signal in own.parts.keys() | last.parts.keys()
        if not weights or signal in weights
    }
    worst = max(sorted(losses), key=losses.__getitem__, default="")
    cost = f"; {worst} cost it most, {losses[worst]:.3g} behind hit {top_k}" if worst else ""
    return Reason(
        "hidden",
        f"it is ranked {place + 1} of {len(hits)} for {shorten(hits.query)!r}, and {top_k} are shown: its score is "
        f"{own.score:.3g}, that of the last one shown {last.score:.3g}{cost}",
    )


def _context_absence(core: Core, subject: Subject, recorded: Recorded) -> Reason:
    """Return why a context that was shown lacks a subject, or a step that says that it has it."""
    where = f"the context at seq {recorded.stamp.seq}"
    if recorded.stamp.erased:
        return reason_of("hidden", recorded, text=f"{where} was erased: only that there was one is known")
    display = Display.of(core, recorded)
    part = PARTS.get(subject.kind, "")
    if subject.kind == "message" and (seq := replacement_of_words(core, subject, display.event.origin)):
        return reason_of("hidden", recorded, text=f"{where} lacks it: {_PLACE_TAKEN.format(seq)}")
    if part and display.shows(subject):
        rank = _rank_text(core, subject, display) if subject.kind == "memory" and display.event.query else ""
        return reason_of("shown", recorded, text=f"{where} shows it in its part {_part_of(subject, display)}{rank}")
    if subject.kind == "message" and display.quotes(subject.seq):
        marks = masked_words(core, subject, subject.seq)
        text = f"{where} shows the message in its part messages, with {marks} in place of it: contexts mask secrets"
        return reason_of("hidden", recorded, text=text)
    if subject.kind == "message" and (seq := display.replacement_of(subject)):
        return reason_of("shown", recorded, text=f"{where} shows the content of seq {seq} in its place")
    if subject.kind.startswith("board"):  # Its part is not searched for the text of one field.
        shown = f"has a part board; memory.rebuild({display.seq}) shows what it has of one"
        text = f"{where} {shown if 'board' in display.event.names else 'lacks it: it has no part board'}"
        return reason_of("hidden", recorded, text=text)
    room = display.plan.get("tokens", {}).get(part, 0)
    if subject.kind == "memory":
        text = _memory_absence(core, subject, display, room)
    elif subject.kind == "message":
        text = _message_absence(core, subject, display, room)
    elif subject.kind == "skill":
        text = _skill_absence(core, subject, display, room)
    else:
        text = _value_absence(subject, display, part, room)
    return reason_of("hidden", recorded, text=f"{where} lacks it: {text}")


def _value_absence(subject: Subject, display: Display, part: str, room: int) -> str:
    """Return why a key, a note or an episode is not in a context: another owner, another time, no part, no room."""
    if not part:
        return f"contexts have no part for {_with_article(subject.kind)}"
    if not display.has_owner(subject):
        return f"it shows {display.owner(subject)}"
    if not display.as_seen(subject).seq:
        return f"it had no value at seq {display.event.origin}"
    is_there = part in display.event.names
    return f"its part {part} has room for {room} tokens" if is_there else f"it has no part {part}"


def _message_absence(core: Core, subject: Subject, display: Display, room: int) -> str:
    """Return why a message is not in a context: no room in the window, or no place among the earlier messages."""
    at = display.event.origin
    if is_in_window(core, display.stream, subject.key, at):
        place = f"the part window has room for {room} tokens, and the oldest messages were left out"
        return f"{place}; {_earlier_absence(core, subject, display)}"
    is_own = subject.stream == display.stream
    place = f"it was not in the window at seq {at}" if is_own else f"it is a message of {subject.stream}"
    return f"{place}; {_earlier_absence(core, subject, display)}"


def _earlier_absence(core: Core, subject: Subject, display: Display) -> str:
    """Return why a message is not among the earlier messages of a context."""
    from refold.memory.earlier import (  # noqa: PLC0415 - as above
        Earlier,
        EarlierMessages,
        EarlierQuery,
        meaning_of,
    )
    from refold.memory.questioner import asker_of, questions_of  # noqa: PLC0415 - loaded only for contexts
    from refold.memory.turns import open_turn_of, shown_seqs  # noqa: PLC0415 - as above

    window = open_turn_of(core, display.stream, display.event.origin).messages
    most = display.budget.get("messages_count")
    questions = questions_of(display.event.query, window)
    if not Settings(core, display.event.origin).get("memory_enabled"):
        return "the setting memory_enabled was off"
    if not most:
        return "the budget of earlier messages, messages_count, was 0"
    if not questions[-1].text.strip():
        return "the context had no query"
    own = enumerate(messages_by(core.event(subject.seq)))
    earlier = next((Earlier(message, place) for place, message in own if message.id == subject.key), None)
    if earlier is None or earlier.message.erased:
        return "its content was erased, so what would have found it is unknown"
    # As of the context's own event: it may have opened the conversation.
    embeds = core.read_written(display.stream, lambda state: state.part(SESSION).embed, display.seq)
    searches = [
        EarlierQuery(
            core.branch,
            display.event.origin,
            display.stream,
            display.event.project,
            question.text,
            meaning=meaning_of(core, question.text) if embeds else None,
            shown=shown_seqs(window, display.plan.get("kept_tokens")),
            top_k=most,
            asker=asker_of(window, display.event.query, display.event.profile),
            opens=question.opens,
        )
        for question in questions
    ]
    reasons = [core.part(EarlierMessages).absence(search, earlier) for search in searches]
    if all(reasons):
        return "; ".join(dict.fromkeys(reasons))
    left_out = display.plan.get("messages_left_out", 0)
    if not left_out:
        return "a search finds it, but texts that another message or memory says already are not shown"
    room = display.plan.get("tokens", {}).get(PARTS["memory"], 0)
    return (
        f"a search finds it, but memories and earlier messages have room for {room} tokens together, and "
        f"{pluralize(left_out, 'earlier message')} did not fit"
    )


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _rank_text(core: Core, subject: Subject, display: Display) -> str:
    place, hits = _search_rank(core, subject, display)
    if not place:
        return ""
    most = display.budget.get("memories_count") or 0
    score = f"{hits[place - 1].score:.3g}"
    return f": it is ranked {place} of {len(hits)}, with a score of {score}, and {most} at most are taken"


def _search_rank(core: Core, subject: Subject, display: Display) -> tuple[int, Hits]:
    """Return the rank of a memory for the query of a context, or 0, and all hits."""
    past = Project(core, display.event.project, display.event.origin)
    hits = past.search(display.event.query or "", top_k=_EVERY, floor=0.0)
    return next((place for place, hit in enumerate(hits, 1) if hit.entry.id == subject.key), 0), hits


def _memory_absence(core: Core, subject: Subject, display: Display, room: int) -> str:
    """Return why a memory is not in a context: another project, its rank, or lack of room in the part."""
    event, most = display.event, display.budget.get("memories_count") or 0
    if subject.stream != f"project/{event.project}":
        return f"it shows memories of project {event.project!r}"
    past = Project(core, event.project, event.origin)
    entry = past.get(subject.key)
    if entry is None or entry.erased:
        return f"it was not in the project at seq {event.origin}"
    if event.query is None:
        return f"{most} memories at most are taken, and the part memories has room for {room} tokens"
    place, _ = _search_rank(core, subject, display)
    query = shorten(event.query)
    if not place:
        return f"a search for {query!r} does not find it: its status or its importance is filtered out"
    if place > most:
        return f"it is ranked {place} for {query!r}, and {most} memories at most are taken"
    count = len(event.ids)
    return f"it is ranked {place} for {query!r}; the part memories has room for {room} tokens and shows {count}"


def _skill_absence(core: Core, subject: Subject, display: Display, room: int) -> str:
    """Return why a skill is not in a context: its share of the budget cut it, or the selection skipped it."""
    name, names = skill_name(core, subject), [each for each, _, _ in display.skills]
    if name in names:
        place = names.index(name)
        shown, score = display.list_skills(), display.skills[place][2]
        text = f"with a score of {score:.3g} it was skill {place + 1} of {len(names)}"
        if not shown and display.plan.get("skills_chars", 1):
            return f"{text}, and as not all fits the budget of {display.budget.get('tokens')} tokens, skills went first"
        return f"{text}; the part skills has room for {room} tokens and shows {', '.join(shown) or 'none'}"
    chosen = f"it was not selected; {', '.join(names) or 'none'} were"
    selection = _last_selection(core, display)
    query = display.event.query if selection is None else selection.query
    if not query:
        return chosen
    return f"{chosen}; {_verdict(core, display.event.origin, name, query)}"


def _last_selection(core: Core, display: Display) -> SkillsSelected | None:
    """Return the last selection recorded for the conversation of a context."""
    stream = core.event(display.seq).stamp.stream
    found = core.events(EventFilter((), (SkillsSelected,)), until=display.event.origin, backwards=True)
    conversation = stream.partition("/")[2]
    selections = (each.event for each in found if isinstance(each.event, SkillsSelected))
    return next((each for each in selections if each.conversation == conversation), None)


def _verdict(core: Core, at: int | None, name: str, query: str) -> str:
    """Return how a skill scores for a query; the memory does not know the text of skills in files."""
    try:
        return str(call_extension("skills", core, at).explain(name, query))
    except NotFound:
        return (
            f"it is no learned skill, so ask the handle that reads its file: skills.explain({name!r}, "
            f"{shorten(query)!r})"
        )
