"""Contexts that were shown to a model: recorded with hashes, counts and ids, and rebuilt from the log byte for byte."""

from typing import Final, cast

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, astuple

from refold import checks
from refold.agent.attachments import NamedSkill
from refold.agent.candidates import tokens_of
from refold.agent.context import (
    Context,
    ContextSource,
    assemble,
    last_context,
    listed_parts,
    read_memories,
    summary_id_of,
)
from refold.agent.recipe import ContextBudget, ContextPlan, Recipe
from refold.engine import batch as batches
from refold.engine.streams import STORE_STREAM
from refold.entry import MemoriesRecalled
from refold.errors import InvalidInput, NotFound
from refold.event import Recorded, Stamp, pack_json, unpack_json
from refold.memory import turns
from refold.memory.core import Core, core_of
from refold.memory.earlier import EarlierMessages
from refold.memory.exposure import ground_of
from refold.memory.memory import Memory
from refold.message import MessageAppended
from refold.text import sha256
from refold.views.session import ContextShown
from refold.views.store import ContextHashed

RENDERER: Final = 20  # Increase for any changed byte: a shown context can only be rebuilt by its own renderer.


def show(memory: Memory, core: Core, context: Context) -> int:
    """Record in its conversation that a context was shown to a model, and return the seq of that event."""
    if not isinstance(cast("object", context), Context):
        checks.invalid(f"show takes a Context, not {type(context).__name__}; make one with memory.context(chat)")
    recipe = context.recipe
    rows = [*((part.name, part.digest, part.tokens) for part in context.parts), _window_row(context)]
    # The query usually repeats the user's last message, and the skills were attached to it by hooks.
    cites_user = recipe.query or recipe.skills or recipe.plan.question
    sources = [message.seq for message in context.window if turns.is_question(message)][-1:] if cites_user else ()
    event = ContextShown(
        (*sources, *recipe.seqs),
        context.seq,
        RENDERER,
        tuple(tokens for _, _, tokens in rows),
        tuple(name for name, _, _ in rows),
        recipe.ids,
        recipe.project,
        recipe.query,
        recipe.day,
        recipe.profile,
        recipe.journal,
        pack_json([list(skill) for skill in recipe.skills]),
        pack_json([asdict(recipe.budget), asdict(recipe.plan)]),
        recipe.timezone,
    )
    batches.check_no_batch(core.engine, "a context that is shown")
    if recipe.seq > core.engine.reader.head:
        core.engine.refresh()  # Another process may have built it.
    if recipe.seq > core.engine.reader.head:
        checks.invalid(f"this log has no seq {recipe.seq}, at which the context was built; show it where it was made")
    seqs: list[int] = []
    stream = f"conversation/{context.conversation}"
    new_ids = _new_ids(core, stream, recipe)
    with memory.batch():
        if new_ids:
            memory.settings.count_usage(
                "memory_injected", len(new_ids), conversation=context.conversation, project=recipe.project
            )
        recorded = core.write(stream, event, at=None, call=(), opening=core.opening(*recipe.opening))
        batch = batches.active_batch(core.engine)
        assert recorded is not None, "showing a context always is an event"
        assert batch is not None, "the batch was opened right here"
        hashes = tuple(bytes.fromhex(digest) for _, digest, _ in rows)
        core.write(STORE_STREAM, ContextHashed(core.sources([Recorded(*recorded)]), hashes), at=None, call=())
        if new_ids:
            recalled = MemoriesRecalled((), new_ids, exact=True, ranking="shown", conversation=context.conversation)
            core.write(f"project/{recipe.project}", recalled, at=None, call=())
        # Not the state's last seq: another thread could show the next context before this one reads it.
        batch.transaction.callbacks.append((recorded[1].seq, lambda stamp: seqs.append(stamp.seq)))
    return seqs[0]


def _new_ids(core: Core, stream: str, recipe: Recipe) -> tuple[str, ...]:
    """Return the memories that count as used now: those not in the last context shown here on this day and project."""
    ids, last = (*recipe.ids, *recipe.plan.pieces), last_context(core, stream)
    if last is None or (last.day, last.project) != (recipe.day, recipe.project):
        return ids
    before = {*last.ids, *recorded_budget(last)[1].pieces}
    return tuple(entry_id for entry_id in ids if entry_id not in before)


def _window_row(context: Context) -> tuple[str, str, int]:
    """Return the name, digest and tokens of the window as one part; the digest does not depend on seqs."""
    window, days = context.window, {mark.message: mark.text for mark in context.days}
    fields = [(*astuple(message.event)[_WORDS:], message.erased, days.get(message.id)) for message in window]
    return "window", sha256(_ENCODE(fields)).hex(), tokens_of([*window, *context.days])


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_WORDS: Final = 2  # Skips the sources and the id of a message, which differ between logs.


class Rebuilt(Struct, frozen=True):
    """A rebuilt context, whether it equals the shown one, and the names of the parts that differ.

    `matches` is `None` if the hashes were erased together with data that the context might have shown.
    """

    context: Context
    matches: bool | None
    differing: tuple[str, ...]
    seq: int = 0
    """The seq at which it was shown."""


def rebuild(core: Core, at: int | None, seq: int) -> Rebuilt:
    """Rebuild the context that was shown at a seq, or for the answer at a seq, and compare it with its hashes.

    Raises `NotFound` if no context was shown at the seq or it was erased, `InvalidInput` if another renderer made it.
    """
    memory = Memory._from_core(core, at)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    event, stamp = _shown_at(core, memory, checks.count(seq, "seq"))
    seq = stamp.seq
    if stamp.erased:
        by = "".join(f" at seq {step.seq}" for step in memory.why(seq).of("erased")[-1:])
        raise NotFound(f"the context that was shown at seq {seq} was erased{by}; only that there was one is known")
    if event.renderer != RENDERER:
        raise InvalidInput(
            f"the context at seq {seq} is of renderer {event.renderer}, and this program has {RENDERER}; to see what "
            f"was known then, build one with memory.context(memory.at({event.origin}).conversation(...))"
        )
    past = memory.at(event.origin)
    chat = past.conversation(stamp.stream.partition("/")[2])
    budget, plan = recorded_budget(event)
    recipe = Recipe(
        seq=event.origin,
        project=event.project,
        query=event.query,
        day=event.day,
        timezone=event.timezone,
        profile=event.profile,
        journal=event.journal,
        skills=recorded_skills(event),
        budget=budget,
        opening=(chat.project, chat.window_tokens, chat.embed),
        plan=plan,
        ids=event.ids,
        seqs=event.sources[len(event.sources) - len(plan.places) :],
    )
    turn = turns.open_turn_of(core, chat.place[0], core_of(chat)[1])
    source = ContextSource(past, core, chat, turn.messages, recipe, summary_id_of(chat))
    entries = read_memories(past.project(event.project), event.ids)
    places = list(zip(recipe.seqs, plan.places, strict=True))
    messages = core.part(EarlierMessages).read(core.branch, event.origin, places)
    context = assemble(source, entries, messages, tuple(listed_parts(source)))
    hashes = _read_hashes(core, seq)
    if hashes is None:
        return Rebuilt(context, None, (), seq)
    digests = {part.name: part.digest for part in context.parts} | dict([_window_row(context)[:2]])
    recorded = dict(zip(event.names, (digest.hex() for digest in hashes.digests), strict=True))
    names = dict.fromkeys([*recorded, *digests])
    differing = tuple(name for name in names if recorded.get(name) != digests.get(name))
    return Rebuilt(context, not differing, differing, seq)


def _shown_at(core: Core, memory: Memory, seq: int) -> tuple[ContextShown, Stamp]:
    """Return the context at a seq, or the one for the answer at a seq."""
    recorded = next(iter(memory.events(after=seq - 1 if seq else 0, until=seq)), None)
    more = ""
    if recorded is not None and isinstance(recorded.event, MessageAppended) and recorded.event.role == "assistant":
        recorded, more = ground_of(core, recorded).context, f", nor for the answer at seq {seq}"
    if recorded is None or not isinstance(recorded.event, ContextShown):
        raise NotFound(
            f"no context was shown at seq {seq}{more}; events of kind context_shown have the seqs of those that were"
        )
    return recorded.event, recorded.stamp


def _read_hashes(core: Core, seq: int) -> ContextHashed | None:
    """Return the hashes of a context, recorded in the event after it, or `None` if they were erased."""
    if seq == core.engine.reader.current_head():  # The log was cut off right after it.
        return None
    event, stamp = core.event(seq + 1)
    return event if isinstance(event, ContextHashed) and event.sources == (seq,) and not stamp.erased else None


def recorded_budget(event: ContextShown) -> tuple[ContextBudget, ContextPlan]:
    """Return the budget and the plan of a shown context."""
    budget, plan = unpack_json(event.budget)
    return msgspec.convert(budget, ContextBudget), msgspec.convert(plan, ContextPlan)


def recorded_skills(event: ContextShown) -> tuple[NamedSkill, ...]:
    """Return the skills that were offered to a shown context."""
    return tuple((name, body, float(score)) for name, body, score in unpack_json(event.skills))
