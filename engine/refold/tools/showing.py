"""What was shown: a context recorded as digests, counts and ids, and built again from the log."""

from collections.abc import Sequence
from typing import cast

from msgspec import Struct

from refold import checks
from refold.engine import batch as batches
from refold.errors import InvalidInput, NotFound
from refold.event import pack_json, unpack_json
from refold.hashing import sha256
from refold.memory.door import Door
from refold.memory.memory import Memory
from refold.message import Message, plain_message
from refold.tools import rendering
from refold.tools.budgets import ContextBudget, Trim
from refold.tools.contexts import Context, Made, fixed_parts, trimmed
from refold.views.contexts import ContextShown


def show(memory: Memory, door: Door, shown: Context) -> int:
    """Record that a context was shown to a model, in its conversation; return the seq of that."""
    if not isinstance(cast("object", shown), Context):
        checks.invalid(f"show takes a Context, not {type(shown).__name__}; make one with memory.context(chat)")
    made = shown.made
    parts = [*((part.name, part.digest, part.tokens) for part in shown.parts), _window_row(shown.window)]
    event = ContextShown(
        _asked_in(shown),
        shown.seq,
        rendering.RENDERER,
        tuple(tokens for _, _, tokens in parts),
        tuple(name for name, _, _ in parts),
        tuple(bytes.fromhex(digest) for _, digest, _ in parts),
        made.ids,
        made.project,
        made.query,
        made.day,
        made.profile,
        made.journal,
        pack_json([list(skill) for skill in made.skills]),
        pack_json({field: getattr(made.budget, field) for field in made.budget.__struct_fields__}),
    )
    batches.refuse(door.engine, "a context that is shown")
    if made.seq > door.engine.head:
        checks.invalid(
            f"the context was built at seq {made.seq}, which this log does not have; show it where it was made"
        )
    seqs: list[int] = []
    with memory.batch():
        memory.settings.count_usage(
            "memory_injected", len(made.ids), conversation=shown.conversation, project=made.project
        )
        opening = door.opening(*made.opening)
        stream = f"conversation/{shown.conversation}"
        noted = door.note(stream, event, at=None, asked=(), opening=opening)
        batch = batches.active(door.engine)
        assert noted is not None, "showing a context always is an event"
        assert batch is not None, "the batch was opened right here"
        # Another thread may show the next one before this one looks, so the state's last seq is no answer.
        batch.pending.later.append((noted[1].seq, lambda stamp: seqs.append(stamp.seq)))
    return seqs[0]


def _asked_in(shown: Context) -> tuple[int, ...]:
    """Return the user's last message as the source of the query, which mostly says the same."""
    said = [message.seq for message in shown.window if message.role == "user"]
    return tuple(said[-1:]) if shown.made.query else ()


def _window_row(window: Sequence[Message]) -> tuple[str, str, int]:
    """Return the row of the window: one part, whose digest covers all that its messages say, wherever they stand."""
    said = pack_json([plain_message(message) | {"seq": 0} for message in window])
    return "window", sha256(said).hex(), sum(message.tokens for message in window)


class Rebuilt(Struct, frozen=True):
    """A context that was built again: whether it is what was shown, and by name which parts are not."""

    context: Context
    matches: bool
    differing: tuple[str, ...]


def rebuild(memory: Memory, door: Door, seq: int) -> Rebuilt:
    """Return the context that was shown at a seq, built again from the log and held against its digests.

    Raises ``NotFound`` where no context was shown at the seq, ``InvalidInput`` for one of another renderer.
    """
    event, stream = _shown_at(memory, seq)
    if event.renderer != rendering.RENDERER:
        message = f"the context at seq {seq} is of renderer {event.renderer}, and this program has {rendering.RENDERER}"
        raise InvalidInput(message)
    past = memory.at(event.origin)
    chat = past.conversation(stream.partition("/")[2])
    skills = tuple((name, body, float(score)) for name, body, score in unpack_json(event.skills))
    budget = ContextBudget(**unpack_json(event.budget))
    opening = (chat.project, chat.window_tokens)
    said = (event.origin, event.project, event.query, event.day, event.profile, event.journal)
    made = Made(*said, skills, budget, event.ids, opening)
    found = [entry for entry in map(past.project(event.project).get, event.ids) if entry is not None]
    trim = Trim(len(skills), len(found), budget.skills_chars or 0)
    parts, _ = trimmed(door, fixed_parts(past, door, chat, made), made, found, trim)
    again = Context(chat.id, event.origin, tuple(parts), tuple(chat.window()), made)
    rows = [*((part.name, part.digest) for part in again.parts), _window_row(again.window)[:2]]
    known = dict(zip(event.names, (digest.hex() for digest in event.digests), strict=True))
    names = dict.fromkeys([*known, *(name for name, _ in rows)])
    differing = tuple(name for name in names if known.get(name) != dict(rows).get(name))
    return Rebuilt(again, not differing, differing)


def _shown_at(memory: Memory, seq: int) -> tuple[ContextShown, str]:
    for event, stamp in memory.events(after=checks.count(seq, "seq") - 1 if seq else 0, until=seq):
        if isinstance(event, ContextShown) and stamp.seq == seq and not stamp.erased:
            return event, stamp.stream
    message = f"no context was shown at seq {seq}; events of kind context_shown have the seqs of those that were"
    raise NotFound(message)
