"""The same handles for asyncio: reads answer at once, mutations are awaited and return when they are durable.

``memory.aio`` is an ``AsyncMemory``. Its handles have the verbs of the plain ones under the same names; those that
write are coroutines. What many tasks write at the same time travels together: one flush, one hop to a thread.
"""

from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from refold.engine import batch as batches
from refold.engine.batch import Batch
from refold.memory import upstairs
from refold.memory.aio_board import AsyncBoard
from refold.memory.aio_files import AsyncFiles
from refold.memory.aio_project import AsyncProject
from refold.memory.aio_session import AsyncSession, AsyncSettings
from refold.memory.awaiting import hopping, reading, writing
from refold.memory.conversation import Conversation
from refold.memory.door import Door
from refold.memory.handles import Journal, Profile
from refold.memory.scopes import ScopedState
from refold.memory.snapshot import Snapshot
from refold.results import Backup, Receipt, Reembedded

if TYPE_CHECKING:
    import datetime
    import os

    from refold.embedders import Embedder
    from refold.memory.memory import Memory
    from refold.tools.contexts import Context
    from refold.tools.hooks_async import AsyncHooks
    from refold.tools.showing import Rebuilt

R = TypeVar("R")


class AsyncState:
    """The state of a conversation: reads answer at once, ``set`` and ``delete`` are awaited."""

    __slots__ = ("door", "plain")

    def __init__(self, door: Door, plain: ScopedState) -> None:
        self.door = door
        self.plain = plain

    set = writing(ScopedState.set)
    delete = writing(ScopedState.delete)
    get = reading(ScopedState.get)
    keys = reading(ScopedState.keys)
    items = reading(ScopedState.items)
    values = reading(ScopedState.values)

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key; ``KeyError`` where there is none."""
        return self.plain[key]

    def __contains__(self, key: object) -> bool:
        """Return whether a key has a value."""
        return key in self.plain

    def __len__(self) -> int:
        """Return how many keys there are."""
        return len(self.plain)

    def __repr__(self) -> str:
        """Return the handle with its counts."""
        return f"Async{self.plain!r}"


class AsyncProfile:
    """A profile: reads answer at once, ``set`` and ``delete`` are awaited."""

    __slots__ = ("door", "plain")

    def __init__(self, door: Door, plain: Profile) -> None:
        self.door = door
        self.plain = plain

    set = writing(Profile.set)
    delete = writing(Profile.delete)
    get = reading(Profile.get)
    items = reading(Profile.items)

    def __repr__(self) -> str:
        """Return the handle with its count."""
        return f"Async{self.plain!r}"


class AsyncJournal:
    """A journal: reads answer at once, ``append`` is awaited."""

    __slots__ = ("door", "plain")

    def __init__(self, door: Door, plain: Journal) -> None:
        self.door = door
        self.plain = plain

    append = writing(Journal.append)
    day = reading(Journal.day)
    recent = reading(Journal.recent)

    def __repr__(self) -> str:
        """Return the handle with its counts."""
        return f"Async{self.plain!r}"


class AsyncConversation:
    """A conversation: reads answer at once, mutations are awaited and return when they are durable."""

    __slots__ = ("door", "plain")

    def __init__(self, door: Door, plain: Conversation) -> None:
        self.door = door
        self.plain = plain

    append = writing(Conversation.append)
    set_window_tokens = writing(Conversation.set_window_tokens)
    clear_window = writing(Conversation.clear_window)
    set = writing(Conversation.set)
    delete = writing(Conversation.delete)
    note = writing(Conversation.note)
    clear = writing(Conversation.clear)
    end_round = writing(Conversation.end_round)
    end = writing(Conversation.end)
    restore = writing(Conversation.restore)
    close = writing(Conversation.close)
    snapshot = hopping(Conversation.snapshot)
    erase = hopping(Conversation.erase)
    window = reading(Conversation.window)
    messages = reading(Conversation.messages)
    token_count = reading(Conversation.token_count)
    get = reading(Conversation.get)
    keys = reading(Conversation.keys)
    notes = reading(Conversation.notes)
    scratchpad = reading(Conversation.scratchpad)
    events = reading(Conversation.events)
    replay = reading(Conversation.replay)

    @property
    def id(self) -> str:
        """The conversation's id."""
        return self.plain.id

    @property
    def window_tokens(self) -> int:
        """The token budget of the window."""
        return self.plain.window_tokens

    @property
    def project(self) -> str | None:
        """The project that the conversation belongs to, or would be opened in."""
        return self.plain.project

    @property
    def version(self) -> int:
        """The version of the conversation's stream."""
        return self.plain.version

    @property
    def state(self) -> AsyncState:
        """The JSON values under ``temp:``, ``session:`` and ``project:`` keys."""
        return AsyncState(self.door, self.plain.state)

    @property
    def session(self) -> AsyncSession:
        """What this conversation has worked on: its task, files, findings and calls of tools."""
        return AsyncSession(self.door, self.plain.session)

    def at(self, at: "int | datetime.datetime") -> "AsyncConversation":
        """Return the conversation as it was at a seq or an aware datetime."""
        return AsyncConversation(self.door, self.plain.at(at))

    async def fork(self, new_id: str, **options: Any) -> "AsyncConversation":
        """Begin another conversation from this one's state; takes what ``Conversation.fork`` takes."""
        batches.refuse(self.door.engine, "a fork")
        return AsyncConversation(self.door, await self.door.ticks.hop(partial(self.plain.fork, new_id, **options)))

    def __repr__(self) -> str:
        """Return the handle with its counts."""
        return f"Async{self.plain!r}"


class AsyncBatch:
    """The mutations of one task's block, written as one commit when it is left; an exception discards them all."""

    __slots__ = ("_batch", "door")

    def __init__(self, door: Door, batch: Batch) -> None:
        self.door = door
        self._batch = batch

    async def __aenter__(self) -> Self:
        """Collect the mutations of this task from here on."""
        self._batch.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Write everything as one commit, or nothing if the block raised."""
        self._batch.leave()
        if kind is None:
            await self.door.ticks.hop(partial(self.door.engine.commit_batch, self._batch.pending))


class AsyncMemory:
    """A memory for asyncio, over the same store and the same states as the plain handle.

    >>> import asyncio
    >>> from refold import Memory
    >>> async def talk(memory):
    ...     chat = memory.conversation("chat-42")
    ...     await asyncio.gather(*(chat.append("user", text) for text in ("Hello!", "Are you there?")))
    ...     return len(chat.window())
    >>> asyncio.run(talk(Memory().aio))
    2
    """

    __slots__ = ("door", "plain")

    def __init__(self, door: Door, plain: "Memory") -> None:
        self.door = door
        self.plain = plain

    async def __aenter__(self) -> Self:
        """Return the memory; leaving the block closes it."""
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close the memory."""
        await self.close()

    def conversation(self, conversation_id: str, **options: Any) -> AsyncConversation:
        """Return a handle on a conversation; takes what ``Memory.conversation`` takes."""
        return AsyncConversation(self.door, self.plain.conversation(conversation_id, **options))

    def project(self, name: str = "default") -> AsyncProject:
        """Return a handle on a project."""
        return AsyncProject(self.door, self.plain.project(name))

    def profile(self, name: str = "default") -> AsyncProfile:
        """Return a handle on a profile."""
        return AsyncProfile(self.door, self.plain.profile(name))

    def journal(self, name: str = "default") -> AsyncJournal:
        """Return a handle on a journal."""
        return AsyncJournal(self.door, self.plain.journal(name))

    def board(self, **whose: str | None) -> AsyncBoard:
        """Return a handle on a board; takes what ``Memory.board`` takes."""
        return AsyncBoard(self.door, self.plain.board(**whose))

    def files(self, name: str = "default") -> AsyncFiles:
        """Return a handle on the files that a model keeps."""
        return AsyncFiles(self.door, self.plain.files(name))

    @property
    def settings(self) -> AsyncSettings:
        """What is turned on and off for this store."""
        return AsyncSettings(self.door, self.plain.settings)

    @property
    def hooks(self) -> "AsyncHooks":
        """The functions that are called at eight points of a session; the points are awaited."""
        return cast("AsyncHooks", upstairs.call("async_hooks", self.plain))

    async def context(self, chat: AsyncConversation, **options: Any) -> "Context":
        """Return what a model is to be shown; takes what ``Memory.context`` takes. A thread embeds the query."""
        return await self._hop("building a context", partial(self.plain.context, chat.plain, **options))

    async def show(self, context: "Context") -> int:
        """Record that a context was shown to a model; return the seq of that."""
        return await self._hop("showing a context", partial(self.plain.show, context))

    async def rebuild(self, seq: int) -> "Rebuilt":
        """Return the context that was shown at a seq, built again from the log."""
        return await self._hop("building a context again", partial(self.plain.rebuild, seq))

    async def snapshot(self, name: str | None = None, **options: Any) -> Snapshot:
        """Return a pointer to the present state of everything; takes what ``Memory.snapshot`` takes."""
        return await self._hop("a snapshot", partial(self.plain.snapshot, name, **options))

    async def restore(self, snapshot: Snapshot | str, **options: Any) -> None:
        """Bring everything back to a snapshot; takes what ``Memory.restore`` takes."""
        await self._hop("a restore of the whole memory", partial(self.plain.restore, snapshot, **options))

    async def fork(self, name: str, **options: Any) -> "AsyncMemory":
        """Return the fork of that name, or a new one; takes what ``Memory.fork`` takes."""
        fork = await self._hop("a fork of the memory", partial(self.plain.fork, name, **options))
        return fork.aio

    def forks(self, **options: Any) -> list[str]:
        """Return the names of the memories that were forked from this one."""
        return self.plain.forks(**options)

    async def _hop(self, what: str, call: Callable[[], R]) -> R:
        """Return what a verb of the whole memory returns; its thread would not know of this task's batch."""
        batches.refuse(self.door.engine, what)
        result: R = await self.door.ticks.hop(call)
        return result

    async def erase(self, seqs: Iterable[Any], **options: Any) -> Receipt:
        """Erase the bytes of events; takes what ``Memory.erase`` takes."""
        return await self._hop("an erasure", partial(self.plain.erase, seqs, **options))

    def batch(self) -> AsyncBatch:
        """Return a context for ``async with`` in which this task's mutations are collected into one commit."""
        return AsyncBatch(self.door, self.plain.batch())

    @property
    def head(self) -> int:
        """The seq of the last event."""
        return self.plain.head

    async def backup(self, path: "str | os.PathLike[str]") -> Backup:
        """Copy the whole store to a path where nothing is; what this loop writes waits for it."""
        return await self._hop("a backup", partial(self.plain.backup, path))

    async def reembed(self, embedder: "Embedder | None" = None) -> Reembedded:
        """Give everything a vector of an embedder; what this loop writes waits for it."""
        return await self._hop("embedding a memory anew", partial(self.plain.reembed, embedder))

    async def flush(self) -> None:
        """Store the checkpoints of all that was touched."""
        await self.door.ticks.hop(self.plain.flush)

    async def close(self) -> None:
        """Flush and release the store, once what was asked for is written."""
        await self.door.ticks.hop(self.plain.close)

    def __repr__(self) -> str:
        """Return the memory with its counts."""
        return f"Async{self.plain!r}"
