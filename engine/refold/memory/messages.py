"""Searches of messages, by words and by meaning: of all that a conversation ever held, or of all conversations."""

from collections.abc import Collection, Sequence
from typing import Any, Final, cast

from refold import checks
from refold.embedders import NotEmbedded
from refold.engine import batch as batches
from refold.engine.streams import name_of, split_key
from refold.errors import StoreBusy
from refold.event import Recorded
from refold.index import messages as index
from refold.index.messages import Match, MessageIndex
from refold.index.project import unit
from refold.limits import REDO_COUNT_MAX
from refold.memory.message_indexes import (
    ROLE_NUMBERS,
    add_messages,
    bases_of,
    branch_key,
    messages_of,
)
from refold.memory.message_vectors import embeddable, model_of
from refold.memory.options import Core
from refold.memory.snapshot import is_embedded
from refold.message import ROLES, Message, MessageAppended
from refold.results import Hit, Hits

_TOP_COUNT_MAX: Final = 1_000_000
_PENDING: Final = 2**62
"""Added to the places of events of an open batch, which come after all that have a seq."""


def search(
    core: Core, stream: str | None, at: int | None, query: object, *, top_k: object, roles: object, explain: object
) -> Hits:
    """Search the messages of a conversation, or of all of them, those of an open batch too."""
    text = checks.text(query, "query")
    if not text.strip():
        checks.invalid("query is empty; give some words of the messages to find")
    count = checks.integer(top_k, "top_k", 1, _TOP_COUNT_MAX, "the most hits of a search")
    numbers, explains = _checked_roles(roles), checks.flag(explain, "explain")
    reader, key = core.engine.reader, branch_key(core.branch) if stream is None else core.key(stream)
    pending = [] if at is not None else _pending(core, stream)
    starts = [(key, at)]
    fresh = MessageIndex()
    for place, recorded in enumerate(pending):
        add_messages(fresh, recorded, _PENDING + place)
        if stream is not None:
            starts += [(base.key, base.base_seq) for base in bases_of(reader, key, recorded)]
    embeds = stream is None or core.read_lightly(stream, is_embedded, at)
    model = model_of(core) if embeds else None
    for _ in range(REDO_COUNT_MAX):
        written = core.message_indexes.looks(reader, core.branch, starts, model)
        looks = [*written, fresh.look(None)]
        bare_count = sum(look.pending_count for look in written) if embeds else 0
        if bare_count:
            core.message_vectors.want(key)
        embedded_count = sum(look.embedded_count for look in written) if embeds else 0
        vector = _vector_of(core, text) if embedded_count else None
        matches = index.search(
            looks, text, numbers, count, explain=explains, vector=vector, floor_rate=core.embedding.floor_rate
        )
        messages = _found(core, pending, matches)
        if not any(message.erased for message in messages):
            hits = tuple(
                Hit(message, match.score, match.parts) for message, match in zip(messages, matches, strict=True)
            )
            bare_count += len(fresh) if embeds and stream is not None else 0
            bare_count += embedded_count if vector is None else 0
            return Hits(hits, exact=True, query=text, ranking=index.RANKING.name, pending=bare_count)
    raise StoreBusy("the log was erased from faster than its messages could be found; let that end and call again")


def _vector_of(core: Core, query: str) -> Any:
    """Return the vector of a query, of length 1; ``None`` where the embedder fails, which its owner is told of."""
    try:
        return unit(core.embedding.of(embeddable(query)).packed)
    except NotEmbedded:
        raise
    except Exception as error:  # noqa: BLE001 - whatever an embedder raises: there are the words
        core.message_vectors.report(error)
        return None


def _checked_roles(roles: object) -> Collection[int] | None:
    if roles is None:
        return None
    given = (roles,) if isinstance(roles, str) else roles
    if not isinstance(given, (list, tuple, set, frozenset)):
        checks.invalid(f"roles must be a list of str, not {type(roles).__name__} ({checks.shown(roles)})")
    unknown = [role for role in cast("Collection[object]", given) if role not in ROLES]
    if unknown:
        checks.invalid(f"roles holds {checks.shown(unknown[0])}; give some of {', '.join(ROLES)}")
    return [number for role, number in ROLE_NUMBERS.items() if role in given]


def _pending(core: Core, stream: str | None) -> list[Recorded]:
    """Return the events that this context's open batch has added, which counts as a read of their conversation."""
    batch = batches.active(core.engine)
    if batch is None:
        return []
    if stream is not None:
        core.read(stream, lambda _: None, None)
    keys = enumerate(batch.transaction.keys)
    own = [place for place, key in keys if split_key(key)[0] == core.branch and stream in (None, name_of(key))]
    return [batch.transaction.recorded(place) for place in own]


def _found(core: Core, pending: Sequence[Recorded], matches: Sequence[Match]) -> list[Message]:
    reader = core.engine.reader
    with reader.state_lock:
        written = iter(reader.loader.recorded([match.seq for match in matches if match.seq < _PENDING]))
    messages: list[Message] = []
    for match in matches:
        if match.seq < _PENDING:
            messages.append(list(messages_of(next(written)))[match.place])
            continue
        recorded = pending[match.seq - _PENDING]
        messages.append(list(messages_of(recorded))[match.place])
        if isinstance(recorded.event, MessageAppended):
            core.expect_stamp(messages[-1])
    return messages
