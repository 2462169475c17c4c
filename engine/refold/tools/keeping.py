"""What was learnt of a conversation is written in one commit, unless more of that was erased while a model read it."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any

from refold.errors import StoreBusy, WrongVersion
from refold.limits import REDO_COUNT_MAX
from refold.memory.conversation import Conversation
from refold.memory.memory import Memory
from refold.memory.project import Project
from refold.message import Message
from refold.tools.learning import Learnt


def erased_of(chat: Conversation) -> frozenset[int]:
    """Return the events of a conversation that were erased."""
    return frozenset(stamp.seq for _, stamp in chat.events() if stamp.erased)


def left_of(page: Sequence[Message], erased: AbstractSet[int]) -> list[Message]:
    """Return the messages of a page that are still there."""
    return [message for message in page if message.seq not in erased]


def written(
    memory: Memory,
    project: Project,
    chat: Conversation,
    learnt: Learnt,
    *,
    erased: AbstractSet[int],
    sources: Sequence[int],
    until: int,
    provider: str,
) -> tuple[str, ...] | None:
    """Write what was learnt, and up to where the conversation was read; return the ids of the memories.

    Returns ``None`` and writes nothing where other events of the conversation are erased by now than those that the
    model did not see. Raises ``StoreBusy`` where others write to the project all the time.
    """
    for _ in range(REDO_COUNT_MAX):
        with suppress(WrongVersion), memory.batch():
            # Read before the look: from here on the batch is refused if anything is erased before its commit.
            review = bool(memory.settings.get("memory_review_extracted"))
            if erased_of(chat) != erased:
                return None
            ids = _added(project, chat, learnt, sources, review=review)
            chat.session.record_extraction(provider, ids, learnt.dropped, seq=until, sources=sources)
            memory.settings.count_usage("memory_extracted", len(ids), conversation=chat.id, project=project.name)
            return tuple(ids)
    message = f"what was learnt of {chat.id!r} met other writes to {project.name!r} {REDO_COUNT_MAX} times; try again"
    raise StoreBusy(message)


def _added(project: Project, chat: Conversation, learnt: Learnt, sources: Sequence[int], *, review: bool) -> list[str]:
    """Add what was learnt to the open batch."""
    ids: list[str] = []
    status = "pending_review" if review else "active"
    for item in learnt.items:
        said = {"category": item.category, "keywords": item.keywords, "importance": item.importance}
        options: dict[str, Any] = {"source": chat.id, "status": status, "sources": sources, **said}
        if review:
            ids.append(project.add(item.content, **options).id)
            continue
        upserted = project.upsert(item.content, **options)
        if upserted.entry is not None and upserted.outcome != "skipped":
            ids.append(upserted.entry.id)
    return ids
