"""Handles for asyncio: reads return at once, searches are awaited, and mutations are awaited until they are durable.

The writes of many tasks are grouped: one flush, one hop to a thread. What takes long runs on other threads.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, cast

from refold import checks
from refold.embedders import MissingVectors, PreparedCall
from refold.engine import batch as batches
from refold.engine.batch import Batch
from refold.errors import WrongVersion
from refold.limits import REDO_COUNT_MAX
from refold.memory import memory
from refold.memory.board import Board
from refold.memory.conversation import Conversation, with_former_verbs
from refold.memory.core import Core
from refold.memory.extensions import call_extension
from refold.memory.files import Files
from refold.memory.handles import Journal, Profile, ScopedState, SessionMemory, Settings
from refold.memory.options import MutationOptions, mutation
from refold.memory.project import Project
from refold.memory.scratchpad import Scratchpad
from refold.memory.snapshot import Snapshot
from refold.memory.table import Table
from refold.memory.transactions import Attempt

if TYPE_CHECKING:
    import datetime


H = TypeVar("H")
P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")


class AsyncHandle(Generic[H]):
    """An asyncio handle that wraps a plain one."""

    __slots__ = ("core", "plain")

    def __init__(self, core: Core, plain: H) -> None:
        self.core = core
        self.plain = plain

    def __repr__(self) -> str:
        return f"Async{self.plain!r}"


def write_verb(
    verb: Callable[Concatenate[H, P], R],
) -> Callable[Concatenate[AsyncHandle[H], P], Coroutine[Any, Any, R]]:
    """Wrap a writing method of a plain handle as a coroutine function of the same name."""

    @wraps(verb)
    async def write(self: AsyncHandle[H], /, *arguments: P.args, **options: P.kwargs) -> R:
        core = self.core
        if batches.active_batch(core.engine) is not None:
            return verb(self.plain, *arguments, **options)  # Written when the batch ends.
        result: R = await core.async_writer.submit(partial(verb, self.plain, *arguments, **options))
        return result

    return write


def thread_verb(
    verb: Callable[Concatenate[H, P], R], name: str = ""
) -> Callable[Concatenate[AsyncHandle[H], P], Coroutine[Any, Any, R]]:
    """Wrap a method that is slow, or that cannot be part of a batch, as a coroutine function.

    It runs on a thread of its own, so that no other task waits for it. ``name`` is the name of the method in the error
    that an open batch raises.
    """

    @wraps(verb)
    async def hop(self: AsyncHandle[H], /, *arguments: P.args, **options: P.kwargs) -> R:
        # Before the hop, because the thread cannot see this task's batch.
        batches.check_no_batch(self.core.engine, name or f"a {verb.__name__}")
        result: R = await self.core.async_writer.run_apart(partial(verb, self.plain, *arguments, **options))
        return result

    return hop


def read_verb(verb: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[AsyncHandle[H], P], R]:
    """Wrap a method that only reads: it returns at once, from RAM, and is not awaited."""

    @wraps(verb)
    def read(self: AsyncHandle[H], /, *arguments: P.args, **options: P.kwargs) -> R:
        return verb(self.plain, *arguments, **options)

    return read


def handle_verb(
    kind: Callable[[Core, R], A], verb: Callable[Concatenate[H, P], R]
) -> Callable[Concatenate[AsyncHandle[H], P], A]:
    """Wrap a method that returns a handle so that it returns the asyncio handle."""

    @wraps(verb)
    def open_(self: AsyncHandle[H], /, *arguments: P.args, **options: P.kwargs) -> A:
        return kind(self.core, verb(self.plain, *arguments, **options))

    return open_


class Attribute(Generic[R]):
    """A property of the plain handle, under the same name."""

    def __init__(self, source: Any) -> None:
        self._get: Callable[[Any], R] = source.fget
        self.__doc__ = source.__doc__

    def __get__(self, handle: Any, _: object = None) -> R:
        return cast("R", self) if handle is None else self._get(handle.plain)


async def _ask_with_vectors(call: PreparedCall[R], ask: Callable[[], Awaitable[R]]) -> R:
    """Call ``ask`` until ``call`` has the vectors it needs, which a thread makes, and return the result."""
    while True:
        try:
            return await ask()
        except MissingVectors as missing:
            await asyncio.to_thread(call.prepare, missing)


def embed_verb(
    verb: Callable[Concatenate[H, P], R],
) -> Callable[Concatenate[AsyncHandle[H], P], Coroutine[Any, Any, R]]:
    """Wrap a method that writes vectors as a coroutine function; a thread embeds the texts that need vectors."""

    @wraps(verb)
    async def embed(self: AsyncHandle[H], /, *arguments: P.args, **options: P.kwargs) -> R:
        core, call = self.core, PreparedCall(partial(verb, self.plain, *arguments, **options))

        async def ask() -> R:
            if batches.active_batch(core.engine) is not None:
                return call()
            result: R = await core.async_writer.submit(call)
            return result

        return await _ask_with_vectors(call, ask)

    return embed


def search_verb(
    verb: Callable[Concatenate[H, P], R],
) -> Callable[Concatenate[AsyncHandle[H], P], Coroutine[Any, Any, R]]:
    """Wrap a search, or a long read, as a coroutine function on a thread; in a batch, a thread only embeds."""

    @wraps(verb)
    async def search(self: AsyncHandle[H], /, *arguments: P.args, **options: P.kwargs) -> R:
        bound = partial(verb, self.plain, *arguments, **options)
        if batches.active_batch(self.core.engine) is None:
            return await asyncio.to_thread(bound)
        call = PreparedCall(bound)

        async def ask() -> R:
            return call()

        return await _ask_with_vectors(call, ask)

    return search


class AsyncFiles(AsyncHandle[Files]):
    """A tree of files: reads return at once, mutations are awaited."""

    __slots__ = ()

    create = write_verb(Files.create)
    str_replace = write_verb(Files.str_replace)
    insert = write_verb(Files.insert)
    delete = write_verb(Files.delete)
    rename = write_verb(Files.rename)
    erase = thread_verb(Files.erase)
    blame = thread_verb(Files.blame)
    list = read_verb(Files.list)
    read = read_verb(Files.read)
    seqs_shown = read_verb(Files.seqs_shown)
    view = read_verb(Files.view)

    @property
    def name(self) -> str:
        """The name of the tree."""
        return self.plain.name


class AsyncBoard(AsyncHandle[Board]):
    """A board: reads return at once, mutations are awaited and return when they are durable."""

    __slots__ = ()

    set = write_verb(Board.set)
    initialise = write_verb(Board.initialise)
    set_session = write_verb(Board.set_session)
    set_project_graph = write_verb(Board.set_project_graph)
    set_elements_graph = write_verb(Board.set_elements_graph)
    set_project_structure = write_verb(Board.set_project_structure)
    set_node_context = write_verb(Board.set_node_context)
    set_fetched_context = write_verb(Board.set_fetched_context)
    set_working_history = write_verb(Board.set_working_history)
    set_messages = write_verb(Board.set_messages)
    set_messages_meta = write_verb(Board.set_messages_meta)
    set_last_user_message = write_verb(Board.set_last_user_message)
    append_message = write_verb(Board.append_message)
    update_settings = write_verb(Board.update_settings)
    hydrate = write_verb(Board.hydrate)
    erase = thread_verb(Board.erase)
    blame = thread_verb(Board.blame)
    get = read_verb(Board.get)
    get_settings = read_verb(Board.get_settings)
    to_dict = read_verb(Board.to_dict)
    to_json = read_verb(Board.to_json)
    bundle = read_verb(Board.bundle)
    seqs_shown = read_verb(Board.seqs_shown)
    events = read_verb(Board.events)
    subscribe = read_verb(Board.subscribe)
    subscribe_settings = read_verb(Board.subscribe_settings)
    session = Attribute[str | None](Board.session)
    project = Attribute[str | None](Board.project)
    node = Attribute[str | None](Board.node)
    version = Attribute[int](Board.version)
    place = Attribute[tuple[str, int]](Board.place)
    at = handle_verb(lambda core, plain: AsyncBoard(core, plain), Board.at)  # noqa: PLW0108 - the class is not defined yet


class AsyncSettings(AsyncHandle[Settings]):
    """The settings of a store: reads return at once, ``set`` and ``count_usage`` are awaited."""

    __slots__ = ()

    set = write_verb(Settings.set)
    count_usage = write_verb(Settings.count_usage)
    blame = thread_verb(Settings.blame)
    get = read_verb(Settings.get)
    items = read_verb(Settings.items)


class AsyncSession(AsyncHandle[SessionMemory]):
    """The work of one conversation: reads return at once, mutations are awaited."""

    __slots__ = ()

    describe_task = write_verb(SessionMemory.describe_task)
    note_file = write_verb(SessionMemory.note_file)
    note_finding = write_verb(SessionMemory.note_finding)
    record_call = write_verb(SessionMemory.record_call)
    record_extraction = write_verb(SessionMemory.record_extraction)
    provenance = write_verb(SessionMemory.provenance)
    check_writable = read_verb(SessionMemory.check_writable)
    summary = read_verb(SessionMemory.summary)
    to_text = read_verb(SessionMemory.to_text)
    extracted_seq = read_verb(SessionMemory.extracted_seq)
    now_ns = read_verb(SessionMemory.now_ns)
    task = read_verb(SessionMemory.task)
    files = read_verb(SessionMemory.files)
    findings = read_verb(SessionMemory.findings)
    calls = read_verb(SessionMemory.calls)


class AsyncProject(AsyncHandle[Project]):
    """A project: reads return at once, searches and mutations are awaited; a thread embeds their texts."""

    __slots__ = ()

    add = embed_verb(Project.add)
    upsert = embed_verb(Project.upsert)
    recall = embed_verb(Project.recall)
    unmerge = write_verb(Project.unmerge)
    update = embed_verb(Project.update)
    delete = write_verb(Project.delete)
    clear = write_verb(Project.clear)
    review = write_verb(Project.review)
    approve = write_verb(Project.approve)
    reject = write_verb(Project.reject)
    archive = write_verb(Project.archive)
    record_episode = embed_verb(Project.record_episode)
    decay = thread_verb(Project.decay)
    prune = thread_verb(Project.prune)
    compact = thread_verb(Project.compact)
    erase = thread_verb(Project.erase)
    search = search_verb(Project.search)
    search_many = search_verb(Project.search_many)
    search_episodes = search_verb(Project.search_episodes)
    get = read_verb(Project.get)
    list = read_verb(Project.list)
    count = read_verb(Project.count)
    stats = read_verb(Project.stats)
    history = read_verb(Project.history)
    events = read_verb(Project.events)

    @property
    def name(self) -> str:
        """The project's name."""
        return self.plain.name

    place = Attribute[tuple[str, int]](Project.place)
    at = handle_verb(lambda core, plain: AsyncProject(core, plain), Project.at)  # noqa: PLW0108 - the class is not defined yet


class AsyncState(AsyncHandle[ScopedState]):
    """The state of a conversation: reads return at once, mutations are awaited."""

    __slots__ = ()

    set = write_verb(ScopedState.set)
    delete = write_verb(ScopedState.delete)
    pop = write_verb(ScopedState.pop)
    update = write_verb(ScopedState.update)
    setdefault = write_verb(ScopedState.setdefault)
    blame = thread_verb(ScopedState.blame)
    get = read_verb(ScopedState.get)
    keys = read_verb(ScopedState.keys)
    items = read_verb(ScopedState.items)
    values = read_verb(ScopedState.values)

    def __getitem__(self, key: str) -> Any:
        return self.plain[key]

    def __contains__(self, key: object) -> bool:
        return key in self.plain

    def __len__(self) -> int:
        return len(self.plain)


class AsyncProfile(AsyncHandle[Profile]):
    """A profile: reads return at once, ``set`` and ``delete`` are awaited."""

    __slots__ = ()

    set = write_verb(Profile.set)
    delete = write_verb(Profile.delete)
    erase = thread_verb(Profile.erase)
    blame = thread_verb(Profile.blame)
    get = read_verb(Profile.get)
    items = read_verb(Profile.items)

    @property
    def name(self) -> str:
        """The profile's name."""
        return self.plain.name


class AsyncJournal(AsyncHandle[Journal]):
    """A journal: reads return at once, ``append`` is awaited."""

    __slots__ = ()

    append = write_verb(Journal.append)
    erase = thread_verb(Journal.erase)
    day = read_verb(Journal.day)
    recent = read_verb(Journal.recent)

    @property
    def name(self) -> str:
        """The journal's name."""
        return self.plain.name


class AsyncTable(AsyncHandle[Table]):
    """A table: writes are awaited, and so are reads, which load values from disk."""

    __slots__ = ()

    put = write_verb(Table.put)
    set_expires = write_verb(Table.set_expires)
    delete = write_verb(Table.delete)
    delete_prefix = write_verb(Table.delete_prefix)
    expire = write_verb(Table.expire)
    _restore = write_verb(Table.restore)
    erase = thread_verb(Table.erase, "an erasure")
    get = search_verb(Table.get)
    item = search_verb(Table.item)
    get_many = search_verb(Table.get_many)
    seqs = search_verb(Table.seqs)
    scan = search_verb(Table.scan)
    keys = search_verb(Table.keys)
    count = search_verb(Table.count)
    history = search_verb(Table.history)

    @mutation
    async def restore(self, table: "AsyncTable | Table", **options: Unpack[MutationOptions]) -> None:
        """Restore the table, as ``Table.restore`` does."""
        await self._restore(table.plain if isinstance(table, AsyncTable) else table, **options)

    @property
    def name(self) -> str:
        """The table's name."""
        return self.plain.name


class AsyncScratchpad(AsyncHandle[Scratchpad]):
    """The scratchpad of a conversation: reads return at once, mutations are awaited."""

    __slots__ = ()

    set = write_verb(Scratchpad.set)
    delete = write_verb(Scratchpad.delete)
    note = write_verb(Scratchpad.note)
    clear = write_verb(Scratchpad.clear)
    blame = thread_verb(Scratchpad.blame)
    get = read_verb(Scratchpad.get)
    keys = read_verb(Scratchpad.keys)
    items = read_verb(Scratchpad.items)
    notes = read_verb(Scratchpad.notes)
    to_dict = read_verb(Scratchpad.to_dict)
    to_json = read_verb(Scratchpad.to_json)


@with_former_verbs
class AsyncConversation(AsyncHandle[Conversation]):
    """A conversation: reads return at once, mutations are awaited and return when they are durable."""

    __slots__ = ()

    append = write_verb(Conversation.append)
    set_window_tokens = write_verb(Conversation.set_window_tokens)
    set_embed = write_verb(Conversation.set_embed)
    clear_window = write_verb(Conversation.clear_window)
    remove = write_verb(Conversation.remove)
    pop = write_verb(Conversation.pop)
    replace = write_verb(Conversation.replace)
    pin = write_verb(Conversation.pin)
    unpin = write_verb(Conversation.unpin)
    end_round = write_verb(Conversation.end_round)
    end = write_verb(Conversation.end)
    _fork = thread_verb(Conversation.fork)
    _restore = write_verb(Conversation.restore)
    _restore_as_batch = thread_verb(Conversation.restore)
    close = write_verb(Conversation.close)
    drop = write_verb(Conversation.drop)
    snapshot = thread_verb(Conversation.snapshot)
    erase = thread_verb(Conversation.erase)
    window = read_verb(Conversation.window)
    messages = read_verb(Conversation.messages)
    token_count = read_verb(Conversation.token_count)
    events = read_verb(Conversation.events)
    replay = read_verb(Conversation.replay)
    search = search_verb(Conversation.search)
    bisect = thread_verb(Conversation.bisect)
    history = search_verb(Conversation.history)
    message = search_verb(Conversation.message)
    recall = embed_verb(Conversation.recall)
    rate = write_verb(Conversation.rate)
    summarize = thread_verb(Conversation.summarize, "a summary")

    @property
    def id(self) -> str:
        """The conversation's id."""
        return self.plain.id

    window_tokens = Attribute[int](Conversation.window_tokens)
    project = Attribute[str | None](Conversation.project)
    embed = Attribute[bool](Conversation.embed)
    eviction = Attribute[str](Conversation.eviction)
    version = Attribute[int](Conversation.version)
    place = Attribute[tuple[str, int]](Conversation.place)

    @property
    def scratchpad(self) -> AsyncScratchpad:
        """The keys and notes of the conversation."""
        return AsyncScratchpad(self.core, self.plain.scratchpad)

    @property
    def state(self) -> AsyncState:
        """The JSON values under ``temp:``, ``session:`` and ``project:`` keys."""
        return AsyncState(self.core, self.plain.state)

    @property
    def session(self) -> AsyncSession:
        """The work of this conversation: its task, files, findings and tool calls."""
        return AsyncSession(self.core, self.plain.session)

    at = handle_verb(lambda core, plain: AsyncConversation(core, plain), Conversation.at)  # noqa: PLW0108 - the class is not defined yet

    @mutation
    async def restore(
        self,
        snapshot: Snapshot | str,
        *,
        views: Collection[str] | None = None,
        keep_budget: bool = False,
        **options: Unpack[MutationOptions],
    ) -> None:
        """Continue from an earlier state, as ``Conversation.restore`` does."""
        # Several events make a batch, which a thread must write; if a batch is already open, its end writes them all.
        is_one = (views is None and not keep_budget) or batches.active_batch(self.core.engine) is not None
        restore = self._restore if is_one else self._restore_as_batch
        await restore(snapshot, views=views, keep_budget=keep_budget, **options)

    @mutation
    async def fork(
        self,
        new_id: str,
        *,
        at: "int | datetime.datetime | None" = None,
        replace: bool = False,
        **options: Unpack[MutationOptions],
    ) -> "AsyncConversation":
        """Start another conversation from this one's state, as ``Conversation.fork`` does."""
        return AsyncConversation(self.core, await self._fork(new_id, at=at, replace=replace, **options))


class AsyncBatch:
    """The mutations of one task's block, committed together when the block ends; an exception discards them all."""

    __slots__ = ("_batch", "core")

    def __init__(self, core: Core, batch: Batch) -> None:
        self.core = core
        self._batch = batch

    async def __aenter__(self) -> Self:
        self._batch.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        batches.leave(self._batch)
        if kind is None and not self._batch.is_part:
            await self.core.async_writer.run(partial(self.core.engine.commit, self._batch.transaction))


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
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    if TYPE_CHECKING:
        add = embed_verb(memory.Memory.add)
        upsert = embed_verb(memory.Memory.upsert)
        search = search_verb(memory.Memory.search)
        recall = embed_verb(memory.Memory.recall)
    else:
        add, upsert, search, recall = map(memory.Shortcut, ("add", "upsert", "search", "recall"))

    conversation = handle_verb(AsyncConversation, memory.Memory.conversation)
    project = handle_verb(AsyncProject, memory.Memory.project)
    profile = handle_verb(AsyncProfile, memory.Memory.profile)
    journal = handle_verb(AsyncJournal, memory.Memory.journal)
    board = handle_verb(AsyncBoard, memory.Memory.board)
    boards = handle_verb(lambda core, plains: [AsyncBoard(core, plain) for plain in plains], memory.Memory.boards)
    table = handle_verb(AsyncTable, memory.Memory.table)
    files = handle_verb(AsyncFiles, memory.Memory.files)
    acting = read_verb(memory.Memory.acting)
    batch = handle_verb(AsyncBatch, memory.Memory.batch)
    conversations = search_verb(memory.Memory.conversations)
    projects = search_verb(memory.Memory.projects)
    profiles = search_verb(memory.Memory.profiles)
    journals = search_verb(memory.Memory.journals)
    tables = search_verb(memory.Memory.tables)
    snapshots = search_verb(memory.Memory.snapshots)
    forks = read_verb(memory.Memory.forks)
    stats = search_verb(memory.Memory.stats)
    subscribe = read_verb(memory.Memory.subscribe)
    events = read_verb(memory.Memory.events)
    event = read_verb(memory.Memory.event)
    search_messages = search_verb(memory.Memory.search_messages)
    bisect = thread_verb(memory.Memory.bisect)
    watch = read_verb(memory.Memory.watch)
    at = handle_verb(lambda _, plain: plain.aio, memory.Memory.at)
    what_if = thread_verb(memory.Memory.what_if, "a scenario")
    sweep = thread_verb(memory.Memory.sweep)
    why = thread_verb(memory.Memory.why)
    blame = thread_verb(memory.Memory.blame)
    influence = thread_verb(memory.Memory.influence)
    diff = thread_verb(memory.Memory.diff)
    state_hash = thread_verb(memory.Memory.state_hash)
    replay_hash = thread_verb(memory.Memory.replay_hash)
    health = thread_verb(memory.Memory.health)
    verify = thread_verb(memory.Memory.verify, "a check of the store")
    show = thread_verb(memory.Memory.show, "showing a context")
    rebuild = thread_verb(memory.Memory.rebuild, "building a context again")
    snapshot = thread_verb(memory.Memory.snapshot)
    restore = thread_verb(memory.Memory.restore, "a restore of the whole memory")
    erase = thread_verb(memory.Memory.erase, "an erasure")
    backup = thread_verb(memory.Memory.backup)
    export = thread_verb(memory.Memory.export, "an export")
    load = thread_verb(memory.Memory.load)
    reembed = thread_verb(memory.Memory.reembed, "embedding a memory anew")
    _fork = thread_verb(memory.Memory.fork, "a fork of the memory")

    async def transact(self, function: Callable[[], Awaitable[R]], *, attempts: int = REDO_COUNT_MAX) -> R:
        """Run an async function in a batch until its commit has no conflict, as ``Memory.transact`` does."""
        attempt = Attempt(self.plain, function, attempts)
        while True:
            block = AsyncBatch(self.core, attempt.batch())
            try:
                async with block:
                    pending = function()
                    if not isinstance(cast("object", pending), Awaitable):
                        checks.invalid(
                            f"transact takes an async function, but {checks.brief(function)} returned "
                            f"{checks.brief(pending)}; call await asyncio.to_thread(memory.transact, function)"
                        )
                    result = await pending
                    attempt.has_run = True
            except WrongVersion as error:
                attempt.check(error)
            else:
                return result

    @property
    def settings(self) -> AsyncSettings:
        """The settings of this store."""
        return AsyncSettings(self.core, self.plain.settings)

    @property
    def hooks(self) -> Any:
        """The functions called at the eight points of a session; each point is awaited."""
        return call_extension("async_hooks", self.plain)

    async def context(self, chat: AsyncConversation | Conversation, **options: Any) -> Any:
        """Build a context for a model, as ``Memory.context`` does; a thread embeds the query."""
        batches.check_no_batch(self.core.engine, "building a context")
        plain = chat.plain if isinstance(chat, AsyncConversation) else chat
        return await asyncio.to_thread(partial(self.plain.context, plain, **options))

    @mutation
    async def fork(
        self, name: str, *, at: "int | datetime.datetime | None" = None, **options: Unpack[MutationOptions]
    ) -> "AsyncMemory":
        """Return the fork of that name, or create it, as ``Memory.fork`` does."""
        return (await self._fork(name, at=at, **options)).aio

    head = Attribute[int](memory.Memory.head)

    async def refresh(self) -> int:
        """Take in everything that other machines have written, as ``Memory.refresh`` does."""
        return await asyncio.to_thread(self.plain.refresh)

    async def flush(self) -> None:
        """Store checkpoints of changed states, as ``Memory.flush`` does."""
        await self.core.async_writer.run(self.plain.flush)

    async def close(self) -> None:
        """Flush and release the store, after pending writes."""
        await self.core.async_writer.run(self.plain.close)
