"""The same handles for asyncio: reads answer at once, mutations are awaited and return when they are durable.

``memory.aio`` is an ``AsyncMemory``. Its handles have the verbs of the plain ones under the same names; those that
write are coroutines. What many tasks write at the same time travels together: one flush, one hop to a thread.
"""

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, Self, TypeVar, Unpack

from refold.engine import batch as batches
from refold.engine.batch import Batch
from refold.memory import memory
from refold.memory.board import Board
from refold.memory.conversation import Conversation, Scratchpad
from refold.memory.files import Files
from refold.memory.handles import Journal, Profile, ScopedState, SessionMemory, Settings
from refold.memory.options import Door, MutationOptions, mutation, refuse_attribute
from refold.memory.project import ManyHits, Project
from refold.memory.snapshot import Snapshot

if TYPE_CHECKING:
    import datetime
    from collections.abc import Sequence


# Verbs of plain handles made into those of handles for asyncio: written, done by a thread, or answered at once.

H = TypeVar("H")
P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")


class AsyncHandle(Generic[H]):
    """What every handle for asyncio shares: the plain one, and the door to the engine."""

    __slots__ = ("door", "plain")

    def __init__(self, door: Door, plain: H) -> None:
        self.door = door
        self.plain = plain

    def __repr__(self) -> str:
        """Return the handle with its counts."""
        return f"Async{self.plain!r}"

    if not TYPE_CHECKING:  # Type checkers would take it that every name is there.

        def __getattr__(self, name: str) -> NoReturn:
            """Say what a verb is called now."""
            refuse_attribute(self, name, getattr(self.plain, "_FORMER", {}))


def writing(verb: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[AsyncHandle[H], P], Coroutine[Any, Any, R]]:
    """Return a verb of a plain handle as a coroutine of the handle for asyncio, under the same name."""

    @wraps(verb)
    async def write(self: AsyncHandle[H], /, *arguments: P.args, **options: P.kwargs) -> R:
        door = self.door
        if batches.active(door.engine) is not None:
            return verb(self.plain, *arguments, **options)  # The block's end writes it.
        result: R = await door.async_writer.submit(partial(verb, self.plain, *arguments, **options))
        return result

    return write


def hopping(
    verb: Callable[Concatenate[H, P], R], what: str = ""
) -> Callable[Concatenate[AsyncHandle[H], P], Coroutine[Any, Any, R]]:
    """Return a verb that takes long, or that no batch can hold, as a coroutine that waits for a thread to do it.

    ``what`` names it where an open batch refuses it.
    """

    @wraps(verb)
    async def hop(self: AsyncHandle[H], /, *arguments: P.args, **options: P.kwargs) -> R:
        # Before the hop: the thread knows no batch of this task.
        batches.refuse(self.door.engine, what or f"a {verb.__name__}")
        result: R = await self.door.async_writer.run(partial(verb, self.plain, *arguments, **options))
        return result

    return hop


def reading(verb: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[AsyncHandle[H], P], R]:
    """Return a verb that only reads: it answers at once, from RAM, and is not awaited."""

    @wraps(verb)
    def read(self: AsyncHandle[H], /, *arguments: P.args, **options: P.kwargs) -> R:
        return verb(self.plain, *arguments, **options)

    return read


def opening(
    kind: Callable[[Door, R], A], verb: Callable[Concatenate[H, P], R]
) -> Callable[Concatenate[AsyncHandle[H], P], A]:
    """Return a verb that returns a handle as one that returns the handle for asyncio."""

    @wraps(verb)
    def open_(self: AsyncHandle[H], /, *arguments: P.args, **options: P.kwargs) -> A:
        return kind(self.door, verb(self.plain, *arguments, **options))

    return open_


def embedding(verb: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[AsyncHandle[H], P], Coroutine[Any, Any, R]]:
    """Return a verb that needs the vector of its first argument: a thread embeds that before it is written."""
    write = writing(verb)

    @wraps(verb)
    async def embed(self: AsyncHandle[H], /, *arguments: P.args, **options: P.kwargs) -> R:
        text: Any = arguments[0] if arguments else options.get("content", options.get("query"))
        if options.get("vector") is None and text:
            await self.door.async_writer.run(partial(self.door.embedding.of, text))  # Where the verb looks for it.
        return await write(self, *arguments, **options)

    return embed


# The files of a model for asyncio.


class AsyncFiles(AsyncHandle[Files]):
    """A tree of files: reads answer at once, what changes it is awaited."""

    __slots__ = ()

    create = writing(Files.create)
    str_replace = writing(Files.str_replace)
    insert = writing(Files.insert)
    delete = writing(Files.delete)
    rename = writing(Files.rename)
    list = reading(Files.list)
    read = reading(Files.read)
    view = reading(Files.view)

    @property
    def name(self) -> str:
        """The name of the tree."""
        return self.plain.name


# The board for asyncio: reads answer at once, what changes it is awaited.


class AsyncBoard(AsyncHandle[Board]):
    """A board: reads answer at once, mutations are awaited and return when they are durable."""

    __slots__ = ()

    set = writing(Board.set)
    initialise = writing(Board.initialise)
    set_session = writing(Board.set_session)
    set_project_graph = writing(Board.set_project_graph)
    set_elements_graph = writing(Board.set_elements_graph)
    set_project_structure = writing(Board.set_project_structure)
    set_node_context = writing(Board.set_node_context)
    set_fetched_context = writing(Board.set_fetched_context)
    set_working_history = writing(Board.set_working_history)
    set_messages = writing(Board.set_messages)
    set_messages_meta = writing(Board.set_messages_meta)
    set_last_user_message = writing(Board.set_last_user_message)
    append_message = writing(Board.append_message)
    update_settings = writing(Board.update_settings)
    hydrate = writing(Board.hydrate)
    erase = hopping(Board.erase)
    get = reading(Board.get)
    get_settings = reading(Board.get_settings)
    to_dict = reading(Board.to_dict)
    to_json = reading(Board.to_json)
    bundle = reading(Board.bundle)
    events = reading(Board.events)
    subscribe = reading(Board.subscribe)
    subscribe_settings = reading(Board.subscribe_settings)

    @property
    def session(self) -> str | None:
        """The session that the board is of, ``None`` for that of a node."""
        return self.plain.session

    @property
    def project(self) -> str | None:
        """The project that the handle names, ``None`` where it is what the session recorded."""
        return self.plain.project

    @property
    def node(self) -> str | None:
        """The node that the handle names, ``None`` where it is what the session recorded."""
        return self.plain.node

    @property
    def version(self) -> int:
        """The version of the board's stream."""
        return self.plain.version

    @property
    def place(self) -> tuple[str, int]:
        """The board's stream and the seq of the handle."""
        return self.plain.place

    def at(self, at: "int | datetime.datetime") -> "AsyncBoard":
        """Return the board as it was at a seq or an aware datetime."""
        return AsyncBoard(self.door, self.plain.at(at))


# Settings and what a session has worked on, for asyncio: reads answer at once, mutations are awaited.


class AsyncSettings(AsyncHandle[Settings]):
    """The settings of a store: reads answer at once, ``set`` and ``count_usage`` are awaited."""

    __slots__ = ()

    set = writing(Settings.set)
    count_usage = writing(Settings.count_usage)
    get = reading(Settings.get)
    items = reading(Settings.items)


class AsyncSession(AsyncHandle[SessionMemory]):
    """What one conversation has worked on: reads answer at once, what is noted is awaited."""

    __slots__ = ()

    describe_task = writing(SessionMemory.describe_task)
    note_file = writing(SessionMemory.note_file)
    note_finding = writing(SessionMemory.note_finding)
    record_call = writing(SessionMemory.record_call)
    record_extraction = writing(SessionMemory.record_extraction)
    provenance = writing(SessionMemory.provenance)
    check_writable = reading(SessionMemory.check_writable)
    summary = reading(SessionMemory.summary)
    to_text = reading(SessionMemory.to_text)
    extracted_seq = reading(SessionMemory.extracted_seq)
    now_ns = reading(SessionMemory.now_ns)
    task = reading(SessionMemory.task)
    files = reading(SessionMemory.files)
    findings = reading(SessionMemory.findings)
    calls = reading(SessionMemory.calls)


# The project for asyncio: what needs a vector is embedded by a thread before it is written.


class AsyncProject(AsyncHandle[Project]):
    """A project: reads answer at once, mutations are awaited; what is embedded for them is embedded in a thread."""

    __slots__ = ()

    async def search_many(self, queries: "Sequence[str]", **options: Any) -> ManyHits:
        """Answer many queries in a thread, in a batch at once; takes what ``Project.search_many`` takes."""
        verb = partial(self.plain.search_many, queries, **options)
        return verb() if batches.active(self.door.engine) is not None else await self.door.async_writer.run(verb)

    add = embedding(Project.add)
    upsert = embedding(Project.upsert)
    recall = embedding(Project.recall)
    unmerge = writing(Project.unmerge)
    update = writing(Project.update)
    delete = writing(Project.delete)
    clear = writing(Project.clear)
    review = writing(Project.review)
    approve = writing(Project.approve)
    reject = writing(Project.reject)
    archive = writing(Project.archive)
    record_episode = writing(Project.record_episode)
    decay = hopping(Project.decay)
    prune = hopping(Project.prune)
    compact = hopping(Project.compact)
    erase = hopping(Project.erase)
    search = reading(Project.search)
    search_episodes = reading(Project.search_episodes)
    get = reading(Project.get)
    list = reading(Project.list)
    count = reading(Project.count)
    stats = reading(Project.stats)
    history = reading(Project.history)
    events = reading(Project.events)

    @property
    def name(self) -> str:
        """The project's name."""
        return self.plain.name

    @property
    def place(self) -> tuple[str, int]:
        """The project's stream and the seq of the handle."""
        return self.plain.place

    def at(self, at: "int | datetime.datetime") -> "AsyncProject":
        """Return the project as it was at a seq or an aware datetime."""
        return AsyncProject(self.door, self.plain.at(at))


class AsyncState(AsyncHandle[ScopedState]):
    """The state of a conversation: reads answer at once, ``set`` and ``delete`` are awaited."""

    __slots__ = ()

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


class AsyncProfile(AsyncHandle[Profile]):
    """A profile: reads answer at once, ``set`` and ``delete`` are awaited."""

    __slots__ = ()

    set = writing(Profile.set)
    delete = writing(Profile.delete)
    get = reading(Profile.get)
    items = reading(Profile.items)


class AsyncJournal(AsyncHandle[Journal]):
    """A journal: reads answer at once, ``append`` is awaited."""

    __slots__ = ()

    append = writing(Journal.append)
    day = reading(Journal.day)
    recent = reading(Journal.recent)


class AsyncScratchpad(AsyncHandle[Scratchpad]):
    """The scratchpad of a conversation: reads answer at once, mutations are awaited."""

    __slots__ = ()

    set = writing(Scratchpad.set)
    delete = writing(Scratchpad.delete)
    note = writing(Scratchpad.note)
    clear = writing(Scratchpad.clear)
    get = reading(Scratchpad.get)
    keys = reading(Scratchpad.keys)
    items = reading(Scratchpad.items)
    notes = reading(Scratchpad.notes)
    to_dict = reading(Scratchpad.to_dict)
    to_json = reading(Scratchpad.to_json)


class AsyncConversation(AsyncHandle[Conversation]):
    """A conversation: reads answer at once, mutations are awaited and return when they are durable."""

    __slots__ = ()

    append = writing(Conversation.append)
    set_window_tokens = writing(Conversation.set_window_tokens)
    clear_window = writing(Conversation.clear_window)
    remove = writing(Conversation.remove)
    pin = writing(Conversation.pin)
    unpin = writing(Conversation.unpin)
    end_round = writing(Conversation.end_round)
    end = writing(Conversation.end)
    _fork = hopping(Conversation.fork)
    _restore = writing(Conversation.restore)
    _restore_and_resize = hopping(Conversation.restore)
    close = writing(Conversation.close)
    snapshot = hopping(Conversation.snapshot)
    erase = hopping(Conversation.erase)
    window = reading(Conversation.window)
    messages = reading(Conversation.messages)
    token_count = reading(Conversation.token_count)
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
    def scratchpad(self) -> AsyncScratchpad:
        """The keys and notes of the conversation."""
        return AsyncScratchpad(self.door, self.plain.scratchpad)

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

    @mutation
    async def restore(
        self, snapshot: Snapshot | str, *, keep_budget: bool = False, **options: Unpack[MutationOptions]
    ) -> None:
        """Go on from an earlier state, as ``Conversation.restore`` does."""
        # Two events make a batch, which a thread has to write; where one is open already, its end writes both.
        if keep_budget and batches.active(self.door.engine) is None:
            await self._restore_and_resize(snapshot, keep_budget=True, **options)
        else:
            await self._restore(snapshot, keep_budget=keep_budget, **options)

    @mutation
    async def fork(
        self, new_id: str, *, at: "int | datetime.datetime | None" = None, **options: Unpack[MutationOptions]
    ) -> "AsyncConversation":
        """Begin another conversation from this one's state, as ``Conversation.fork`` does."""
        return AsyncConversation(self.door, await self._fork(new_id, at=at, **options))


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
            await self.door.async_writer.run(partial(self.door.engine.commit, self._batch.transaction))


class AsyncMemory(AsyncHandle[memory.Memory]):
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

    __slots__ = ()

    async def __aenter__(self) -> Self:
        """Return the memory; leaving the block closes it."""
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close the memory."""
        await self.close()

    conversation = opening(AsyncConversation, memory.Memory.conversation)
    project = opening(AsyncProject, memory.Memory.project)
    profile = opening(AsyncProfile, memory.Memory.profile)
    journal = opening(AsyncJournal, memory.Memory.journal)
    board = opening(AsyncBoard, memory.Memory.board)
    files = opening(AsyncFiles, memory.Memory.files)
    batch = opening(AsyncBatch, memory.Memory.batch)
    forks = reading(memory.Memory.forks)
    show = hopping(memory.Memory.show, "showing a context")
    rebuild = hopping(memory.Memory.rebuild, "building a context again")
    snapshot = hopping(memory.Memory.snapshot)
    restore = hopping(memory.Memory.restore, "a restore of the whole memory")
    erase = hopping(memory.Memory.erase, "an erasure")
    backup = hopping(memory.Memory.backup)
    reembed = hopping(memory.Memory.reembed, "embedding a memory anew")
    _fork = hopping(memory.Memory.fork, "a fork of the memory")

    @property
    def settings(self) -> AsyncSettings:
        """What is turned on and off for this store."""
        return AsyncSettings(self.door, self.plain.settings)

    @property
    def hooks(self) -> Any:
        """The functions that are called at eight points of a session; the points are awaited."""
        return memory.call_extension("async_hooks", self.plain)

    async def context(self, chat: AsyncConversation, **options: Any) -> Any:
        """Build what a model is to be shown, as ``Memory.context`` does; a thread embeds the query."""
        batches.refuse(self.door.engine, "building a context")
        return await self.door.async_writer.run(partial(self.plain.context, chat.plain, **options))

    @mutation
    async def fork(
        self, name: str, *, at: "int | datetime.datetime | None" = None, **options: Unpack[MutationOptions]
    ) -> "AsyncMemory":
        """Return the fork of that name, or begin it, as ``Memory.fork`` does."""
        return (await self._fork(name, at=at, **options)).aio

    @property
    def head(self) -> int:
        """The seq of the last event."""
        return self.plain.head

    async def flush(self) -> None:
        """Store the checkpoints of all that was touched."""
        await self.door.async_writer.run(self.plain.flush)

    async def close(self) -> None:
        """Flush and release the store, once what was asked for is written."""
        await self.door.async_writer.run(self.plain.close)
