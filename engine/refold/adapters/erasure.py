"""The erasure of what an adapter stores for one user, session or thread."""

from collections.abc import Sequence
from typing import TypeAlias

from refold import Memory, Receipt

Receipts: TypeAlias = list[Receipt]


def erase(
    memory: Memory,
    actor: str,
    *,
    chats: Sequence[str] = (),
    forks: str = "refuse",
    table: str,
    keys: Sequence[str | tuple[str, ...]] | None = None,
    projects: Sequence[str] = (),
) -> Receipts:
    """Erase conversations, projects and a table, or those of its items whose keys begin with one of ``keys``.

    The items are an erasure of their own, the second one. If it fails, another call completes it.
    """
    handles = [*map(memory.conversation, chats), *map(memory.project, projects)]
    with memory.acting(actor):
        if keys is None:
            return [memory.erase([*handles, memory.table(table)], forks=forks)]
        receipts = [memory.erase(handles, forks=forks)] if handles else []
        return [*receipts, memory.table(table).erase(list(keys), forks=forks)]
