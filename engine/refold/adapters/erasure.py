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
    """Erase conversations, then a table or those of its items whose keys begin with one of ``keys``, then projects.

    Each is an erasure of its own, with a receipt: those of conversations, that of the table, those of projects. If one
    fails, another call completes it.
    """
    with memory.acting(actor):
        receipts = [memory.conversation(chat).erase(forks=forks) for chat in chats]
        receipts.append(memory.table(table).erase("" if keys is None else list(keys), forks=forks))
        return receipts + [memory.project(project).erase() for project in projects]
