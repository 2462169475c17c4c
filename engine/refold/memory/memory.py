"""The memory handle: opens a store and gives access to its conversations, profiles, projects and past states."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar, Unpack

from refold import checks
from refold.engine import history
from refold.engine.origin import ActorBlock
from refold.errors import NotFound, ReadOnly
from refold.event import Recorded
from refold.limits import MEMORY_BYTES_DEFAULT, VERIFY_JOBS_COUNT_MAX, WINDOW_TOKENS_DEFAULT
from refold.memory import options, questions, store, transactions
from refold.memory.conversation import Conversation
from refold.memory.conversation_handle import Claims
from refold.memory.core import Core
from refold.memory.extensions import call_extension
from refold.memory.options import MutationOptions, Progress, mutation, parse_options, seq_at, zone
from refold.memory.references import cause_of
from refold.memory.share import Terms, open_core
from refold.memory.snapshot import Snapshot, bisect
from refold.results import Backup, Change, Hits, Loaded, Receipt, Report, Stats
from refold.text import ByteClassCounter, TokenCounter
from refold.views.window import POLICIES, POLICY

if TYPE_CHECKING:
    import datetime

    from refold.embedders import Embedder
    from refold.engine.subscriptions import Subscriber, Subscription
    from refold.index.ranking import Ranking
    from refold.memory.aio import AsyncMemory
    from refold.memory.board import Board
    from refold.memory.files import Files
    from refold.memory.handles import Journal, Profile, Settings
    from refold.memory.project import Project
    from refold.memory.scenario import Scenario
    from refold.memory.table import Table
    from refold.memory.watches import Departure, Watch
    from refold.message import Message
    from refold.results import Reembedded

    P = ParamSpec("P")
    R = TypeVar("R")

    def of_default(verb: Callable[Concatenate[Project, P], R]) -> Callable[Concatenate["Memory", P], R]:
        """Type a method of ``Project`` as a method of ``Memory``; ``Shortcut`` is its counterpart at runtime."""
        ...


class Shortcut:
    """A method of the default project as a method of the memory, with the signature and docstring of ``Project``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, memory: "Memory | None", _: object = None) -> Any:
        from refold.memory.project import Project

        return getattr(Project if memory is None else memory.project(), self._name)


class Memory:
    """An agent's memory, in a directory that is created or opened, or in RAM if no path is given.

    A memory in RAM persists nothing. ``path`` can also be the address of a log that several machines share:
    ``postgresql://user@host/database``, or ``nats://host:4222/NAME``.

    ``add``, ``upsert``, ``search`` and ``recall`` are those of ``project()``, the default project.

    ``durability`` is ``"durable"``: when a call returns, its writes survive a power loss; or ``"delayed"``: calls
    return at once, the writes reach the disk within 50 ms, and no other process can write to the store.
    ``window_tokens`` is the token budget of new conversations, ``timezone`` sets the days of notes and contexts, and
    ``memory_bytes`` bounds the RAM for states and vectors (at least 1 MiB). ``embedder`` and ``token_counter`` replace
    the built-in ones, which need no model. ``clear_scratchpads_on_open`` clears the scratchpads of all conversations.
    ``readonly`` opens an existing store and writes nothing. ``witness`` is a file outside the store that records the
    last link of the log, so that a truncated or replaced log is detected. ``cache`` is the directory for the local copy
    of a log on a server; the default is ``~/.cache/refold``, and ``":memory:"`` keeps the copy in RAM. ``clock_ns`` and
    ``random_bytes`` are the only inputs besides the calls: pass your own to make a run repeatable.

    Writable memories of one directory in one process share the store, each with its own budget, token counter and
    timezone. Closing a memory ends its subscriptions and watches; closing the last one closes the store.

    Raises ``NotFound`` if the parent directory does not exist, ``StoreVersion`` if the path is not a store,
    ``StoreBusy`` if another process has exclusive use of the store, or if this process has it open with other options,
    such as another ``durability``, or an ``embedder`` with another ``id``, and ``StoreCorrupt`` if the file of the
    store is damaged or gone, or the ``witness`` recorded another log.

    >>> with Memory() as memory:
    ...     chat = memory.conversation("chat-42")
    ...     _ = chat.append("user", "Hello!")
    ...     memory.conversations()
    ['chat-42']
    """

    __slots__ = ("_at", "_core", "_made")

    _at: int | None
    _core: Core
    _made: dict[str, Any]

    def __init__(
        self,
        path: "str | os.PathLike[str] | None" = None,
        *,
        durability: str = "durable",
        window_tokens: int = WINDOW_TOKENS_DEFAULT,
        memory_bytes: int = MEMORY_BYTES_DEFAULT,
        embedder: "Embedder | None" = None,
        token_counter: TokenCounter | None = None,
        timezone: str = "UTC",
        clear_scratchpads_on_open: bool = False,
        readonly: bool = False,
        witness: "str | os.PathLike[str] | None" = None,
        cache: "str | os.PathLike[str] | None" = None,
        clock_ns: Callable[[], int] = time.time_ns,  # noqa: TID251 - the one source of time
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        checks.window_tokens(window_tokens)
        zone(timezone)
        counter = ByteClassCounter() if token_counter is None else store.check_counter(token_counter)
        place = store.check_place(path, readonly=readonly, clears=clear_scratchpads_on_open)
        options.check_callables(clock_ns=clock_ns, random_bytes=random_bytes)
        terms = Terms(
            store.is_delayed(durability, place, readonly=readonly),
            store.check_bytes(memory_bytes),
            options.check_embedder(embedder),
            options.check_witness(witness, place),
            clock_ns,
            random_bytes,
        )
        self._core = open_core(
            place,
            terms,
            readonly=checks.flag(readonly, "readonly"),
            cache=options.check_cache(cache, place),
            counter=counter,
            timezone=timezone,
            window_tokens=window_tokens,
        )
        self._at, self._made = None, {}
        if clear_scratchpads_on_open:
            try:
                store.clear_scratchpads(self._core)
            except BaseException:
                self._core.close()
                raise

    @staticmethod
    def _from_core(core: Core, at: int | None) -> "Memory":
        memory = Memory.__new__(Memory)
        memory._core, memory._at, memory._made = core, at, {}  # noqa: SLF001 - same class
        return memory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        frozen = "" if self._at is None else f", at={self._at}"
        counts = self._core.counts(lambda: store.counts(self._core, self._at))
        return f"Memory({self._core.path!r}{frozen}, {counts})"

    def _refuse_frozen(self, verb: str) -> None:
        if self._at is not None:
            raise ReadOnly(f"this memory is frozen at seq {self._at}; {verb} the live one")

    # Handles.

    def conversation(
        self,
        conversation_id: str,
        *,
        project: str | None = None,
        window_tokens: int | None = None,
        embed: bool | None = None,
        eviction: str | None = None,
    ) -> Conversation:
        """Return a handle on a conversation; nothing is written before its first mutation.

        The first mutation records ``project``, ``window_tokens``, ``embed`` and ``eviction``; after that, other values
        raise ``InvalidInput``. With ``embed=True``, messages are embedded in the background, so that searches and
        contexts also match by meaning; ``set_embed`` changes this. ``eviction`` determines which messages leave a full
        window first: the oldest (``"fifo"``, the default), those not added or recalled for the longest time
        (``"least-recalled"``), or those rated lowest for their age (``"least-important"``). ``"fifo-recall"`` fills
        half of the budget and leaves the rest for messages that contexts find; ``"summary"`` keeps a summary of the
        messages that have left.

        >>> Memory().conversation("chat-42", project="acme/api", window_tokens=4_000).window_tokens
        4000
        """
        checks.name(conversation_id, "conversation_id")
        if project is not None:
            checks.name(project, "project")
        if window_tokens is not None:
            checks.window_tokens(window_tokens)
        if embed is not None and checks.flag(embed, "embed"):
            from refold.memory.message_vectors import follow

            follow(self._core)
        policy = None if eviction is None else POLICIES[checks.one_of(eviction, "eviction", tuple(POLICIES))]
        opening = self._core.opening(project, window_tokens, embed, policy or POLICY)
        given = (project, window_tokens, embed, policy)
        claims = None if given == (None, None, None, None) else Claims(*given)
        return Conversation(self._core, conversation_id, opening, self._at, claims)

    @property
    def aio(self) -> "AsyncMemory":
        """The same memory for asyncio: calls that write, embed or search are awaited, other reads return at once."""
        from refold.memory.aio import AsyncMemory

        return AsyncMemory(self._core, self)

    def profile(self, name: str = "default") -> "Profile":
        """Return a handle on a profile: facts about a user, as keys and values."""
        from refold.memory.handles import Profile

        return Profile(self._core, checks.name(name, "name"), self._at)

    def journal(self, name: str = "default") -> "Journal":
        """Return a handle on a journal: notes by day."""
        from refold.memory.handles import Journal

        return Journal(self._core, checks.name(name, "name"), self._at)

    def table(self, name: str) -> "Table":
        """Return a handle on a table: JSON values and bytes under keys, for a program's own records."""
        from refold.memory.table import Table

        return Table(self._core, checks.name(name, "name"), self._at)

    def files(self, name: str = "default") -> "Files":
        """Return a handle on the files that a model keeps under ``/memories``."""
        from refold.memory.files import Files

        return Files(self._core, checks.name(name, "name"), self._at)

    def project(self, name: str = "default") -> "Project":
        """Return a handle on a project: facts that outlive conversations, and episodes of what was tried."""
        from refold.memory.project import Project

        return Project(self._core, checks.name(name, "name"), self._at)

    def board(self, *, session: str | None = None, project: str | None = None, node: str | None = None) -> "Board":
        """Return a handle on the board of a session, or of a node of a project; ``InvalidInput`` for neither."""
        from refold.memory.board import Board

        return Board(self._core, session, project, node, self._at)

    @property
    def settings(self) -> "Settings":
        """The settings of this store; each change is recorded as an event."""
        from refold.memory.handles import Settings

        return Settings(self._core, self._at)

    if TYPE_CHECKING:
        add = of_default(Project.add)
        upsert = of_default(Project.upsert)
        search = of_default(Project.search)
        recall = of_default(Project.recall)
    else:
        add, upsert, search, recall = map(Shortcut, ("add", "upsert", "search", "recall"))

    def search_messages(
        self, query: str, *, top_k: int = 10, roles: Sequence[str] | None = None, explain: bool = False
    ) -> Hits:
        """Search the messages of all conversations, as ``Conversation.search`` does for one.

        ``hit.entry.stamp.stream`` names the conversation of a hit. What a restore took back is found, as in its
        history, and what was dropped if a fork goes on from it. The first search reads the whole log.

        >>> memory = Memory()
        >>> _ = memory.conversation("chat-42").append("user", "The port is 5432.")
        >>> [hit.entry.stamp.stream for hit in memory.search_messages("which port?")]
        ['conversation/chat-42']
        """
        from refold.memory import messages

        return messages.search(self._core, None, self._at, query, top_k=top_k, roles=roles, explain=explain)

    def conversations(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None, dropped: bool = False
    ) -> list[str]:
        """Return the ids of the conversations, sorted: those with ``prefix``, after ``after``, at most ``limit``.

        Dropped conversations are left out; with ``dropped``, only those are returned, until they are started again. An
        erased conversation is listed as ``erased-`` followed by a seq.
        """
        return store.conversations(self._core, self._at, prefix, after, limit, dropped)

    def projects(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> list[str]:
        """Return the ids of all projects ever written to, even emptied ones, sorted; paged like ``conversations``."""
        return store.names(self._core, self._at, "project", prefix, after, limit)

    def profiles(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> list[str]:
        """Return the names of all profiles ever written to, sorted; paged like ``conversations``."""
        return store.names(self._core, self._at, "profile", prefix, after, limit)

    def journals(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> list[str]:
        """Return the names of all journals ever written to, sorted; paged like ``conversations``."""
        return store.names(self._core, self._at, "journal", prefix, after, limit)

    def tables(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> list[str]:
        """Return the names of all tables ever written to, sorted; paged like ``conversations``."""
        return store.names(self._core, self._at, "table", prefix, after, limit)

    def boards(self, *, after: "Board | None" = None, limit: int | None = None) -> "list[Board]":
        """Return all boards ever written to, those of nodes first, sorted by name.

        ``after`` and ``limit`` page through them.
        """
        from refold.memory.board import list_boards

        return list_boards(self._core, self._at, after, limit)

    def snapshots(self, *, after: Snapshot | None = None, limit: int | None = None) -> list[Snapshot]:
        """Return the named snapshots in order of seq; ``after`` and ``limit`` page through them.

        Snapshots of the whole memory have an empty ``stream``.
        """
        return store.snapshots(self._core, self._at, after, limit)

    def forks(self, *, after: str | None = None, limit: int | None = None) -> list[str]:
        """Return the names of the memories forked from this one and from its forks, sorted."""
        return store.forks(self._core, self._at, after, limit)

    # From the layers above.

    def _extension(self, name: str, *arguments: Any) -> Any:
        """Return an extension, created once per handle so that registrations with it are kept."""
        if name not in self._made:
            self._made.setdefault(name, call_extension(name, *arguments))
        return self._made[name]

    def _copy(self) -> "Memory":
        """Return a handle for an extension, so that no reference cycle keeps this one alive."""
        return Memory._from_core(self._core, self._at)

    @property
    def tools(self) -> Any:
        """A ``refold.agent.ToolRegistry``: the built-in tools and those registered with this handle."""
        return self._extension("tools", self._copy())

    @property
    def hooks(self) -> Any:
        """A ``refold.agent.Hooks``: the functions registered with this handle for the eight points of a session."""
        return self._extension("hooks", self._copy())

    @property
    def skills(self) -> Any:
        """A ``refold.skills.Skills``: learned skills, switches, selections, uses; ``with_roots(roots)`` adds files."""
        return self._extension("skills", self._core, self._at)

    def context(
        self,
        chat: Conversation,
        *,
        query: str | None = None,
        project: str | None = None,
        budget: Any = None,
        skills: Sequence[Any] = (),
        tools: Any = None,
        profile: str = "default",
        journal: str = "default",
    ) -> Any:
        """Build the ``Context`` of a conversation for a model, without writing anything.

        It shows the window, with the user's message that has no answer yet even if it was evicted, and the memories,
        earlier sessions and earlier messages (of the project's newest 20,000) that answer ``query``, usually that
        message; without a query, the most important memories. ``project`` defaults to that of the conversation.
        ``budget`` bounds the whole context: a number of tokens, or a ``refold.agent.ContextBudget``. ``skills`` are
        matches from ``skills.select``, or pairs of a name and a text. ``tools`` names those of the model, by default
        all of ``memory.tools``. If the message without an answer has no name, the user who asks is the ``profile``.

        >>> memory = Memory()
        >>> memory.profile().set("allergy", "nuts")
        >>> context = memory.context(memory.conversation("chat-42"), query="What can I eat?", budget=2_000)
        >>> "nuts" in context.text, context.tokens < 2_000
        (True, True)
        """
        return call_extension(
            "context",
            self,
            self._core,
            chat,
            query=query,
            project=project,
            budget=budget,
            skills=skills,
            tools=tools,
            profile=profile,
            journal=journal,
            is_mirrored="mirror" in self._made,
        )

    def show(self, context: Any) -> int:
        """Record that a context is shown to a model, each time before it is asked; return the seq for `rebuild`."""
        seq: int = call_extension("show", self, self._core, context)
        return seq

    def rebuild(self, seq: int) -> Any:
        """Return a ``Rebuilt``: the context shown at a seq, or for the answer there, and if it is byte-identical."""
        return call_extension("rebuild", self._core, self._at, seq)

    def mirror(
        self,
        directory: "str | os.PathLike[str]",
        *,
        profile: str = "default",
        journal: str = "default",
        edits: str = "take",
        writes: bool = True,
        on_report: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Mirror a profile and a journal in files that people can edit, and return the ``Mirror``.

        The directory is created if need be. With ``edits="leave"``, an edited file is reported and left alone; with
        ``writes=False``, the mirror does nothing but ``check``. ``on_report`` is called with every non-empty
        ``MirrorReport``. Raises ``NotFound`` for a missing parent directory, ``StoreBusy`` while another mirror uses
        the directory, ``InvalidInput`` if it is a store or another memory's, ``StoreError`` if it cannot be written.
        """
        self._refuse_frozen("mirror")
        named = {"profile": profile, "journal": journal, "edits": edits, "writes": writes, "on_report": on_report}
        mirror = call_extension("mirror", self, self._core, directory, **named)
        self._made["mirror"] = True  # From now on, contexts mention its files.
        return mirror

    # The whole memory through time.

    @property
    def head(self) -> int:
        """The seq of the last event, 0 while the log is empty; on a frozen memory, the seq at which it is frozen."""
        self._core.engine.reader.check_open()
        return self._core.engine.reader.current_head() if self._at is None else self._at

    def at(
        self, at: "int | datetime.datetime | None" = None, *, occurred: "int | datetime.datetime | None" = None
    ) -> "Memory":
        """Return the memory as it was at a seq or an aware datetime; mutating it raises ``ReadOnly``.

        ``occurred`` (nanoseconds or an aware datetime) leaves out events that happened later, whenever they were
        recorded: imported sessions can be seen as of the day they took place, which is then the current day.

        >>> memory = Memory()
        >>> memory.profile().set("theme", "dark")
        >>> memory.profile().set("theme", "light")
        >>> memory.at(1).profile().get("theme")
        'dark'
        """
        if at is None and occurred is None:
            checks.invalid("at() needs a seq, an aware datetime, or occurred=")
        seq = self.head if at is None else seq_at(self._core.engine, at, self.head)
        if occurred is None:
            return Memory._from_core(self._core, seq)
        from refold.memory.scenario import core_at_time

        return Memory._from_core(core_at_time(self._core, occurred, seq), seq)

    def what_if(
        self,
        *,
        window_tokens: int | None = None,
        eviction: str | None = None,
        ranking: "str | Ranking | None" = None,
        dedupe: float | None = None,
        until: "int | datetime.datetime | None" = None,
        without: Sequence[Any] = (),
    ) -> "Scenario":
        """Return the memory as it would be with another budget, eviction, ranking or threshold, or without some events.

        Budget and eviction apply to every conversation; pins that do not fit are dropped. ``dedupe`` undoes merges
        whose cosine does not exceed it. It can only undo: the log does not record which additions were asked to merge,
        so a value below the threshold in use and the cosine of every merge raises ``InvalidInput``. ``without`` takes
        seqs or results. Nothing is written. States are folded from the log when read, in at most 1/4 of
        ``memory_bytes``. Recalls, decay and pruning stay; ``Scenario.diff`` lists the recalls that would find others.

        >>> memory = Memory()
        >>> memory.profile().set("theme", "dark")
        >>> memory.profile().set("theme", "light")
        >>> memory.what_if(without=[2]).memory.profile().get("theme")
        'dark'
        """
        from refold.memory.scenario import what_if

        end = self.head if until is None else seq_at(self._core.engine, until, self.head, "until")
        return what_if(
            self._core,
            Memory._from_core,
            end,
            window_tokens=window_tokens,
            eviction=eviction,
            ranking=ranking,
            dedupe=dedupe,
            without=without,
        )

    def sweep(self, scenarios: "Sequence[Scenario]") -> "list[Scenario]":
        """Compare scenarios with the log in one pass, so that their ``diff``, ``regret`` and ``state_hash`` are ready.

        Each ``until`` takes a pass of its own. Raises ``InvalidInput`` for a scenario of another memory.

        >>> memory = Memory()
        >>> _ = memory.conversation("chat-42").append("user", "Hello!")
        >>> [len(each.regret()) for each in memory.sweep([memory.what_if(window_tokens=n) for n in (1, 2)])]
        [0, 0]
        """
        from refold.memory.scenario import sweep_all

        return sweep_all(self._core, scenarios)

    @mutation
    def snapshot(self, name: str | None = None, **options: Unpack[MutationOptions]) -> Snapshot:
        """Take a pointer to the current state of the whole memory; a named snapshot is recorded and stays.

        ``expected`` is compared with ``head``, the version of a whole memory, here and in ``restore`` and ``fork``.

        >>> memory = Memory()
        >>> _ = memory.snapshot("empty")
        >>> memory.profile().set("theme", "dark")
        >>> memory.restore("empty")
        >>> memory.profile().items()
        []
        """
        return store.snapshot(self._core, name, self._at, parse_options(options))

    @mutation
    def restore(self, name: Snapshot | str, **options: Unpack[MutationOptions]) -> None:
        """Restore everything to a snapshot of this memory or of a fork, in one commit; history stays.

        Contexts show no message that came after the snapshot. Settings and snapshot names stay: if a user has switched
        memory off, it stays off. Raises ``NotFound`` for an unknown name, ``InvalidInput`` for anything but a snapshot
        of this store's whole memory, and ``StoreBusy`` if other writers never pause.
        """
        self._refuse_frozen("restore")
        store.restore(self._core, name, parse_options(options))

    @mutation
    def fork(
        self, name: str, *, at: "int | datetime.datetime | None" = None, **options: Unpack[MutationOptions]
    ) -> "Memory":
        """Return the fork of that name; a new one begins from the current state, or from the state at ``at``.

        One event; nothing is copied. Closing a fork releases only its handle; closing the memory closes its forks.

        >>> memory = Memory()
        >>> memory.fork("what if").profile().set("theme", "light")
        >>> memory.profile().get("theme"), memory.fork("what if").profile().get("theme")
        (None, 'light')
        """
        forked = store.fork(self._core, name, self._at, at, parse_options(options))
        return Memory._from_core(forked, None)

    def events(self, *, after: int = 0, until: int | None = None) -> Iterator[Recorded]:
        """Return the events of all streams with ``after < seq <= until``, in order; a fork's events are in the fork."""
        self._core.check_after(after, self._at)
        last = self._at if until is None else seq_at(self._core.engine, until, self.head, "until")
        return self._core.engine.reader.all_events(after, last, self._core.branch)

    def event(self, seq: int) -> Recorded:
        """Return the event at a seq; raise ``NotFound`` if this memory has no event there.

        >>> memory = Memory()
        >>> memory.profile().set("theme", "dark")
        >>> memory.event(1).event.value
        'dark'
        """
        head = self.head
        if checks.count(seq, "seq") == 0:
            checks.invalid("seq is 0, the empty state; give one from 1 on")
        for recorded in self._core.engine.reader.all_events(seq - 1, min(seq, head), self._core.branch):
            return recorded
        raise NotFound(
            f"no event of this memory is at seq {seq}; its head is {head}, and those of forks are in the forks"
        )

    def diff(self, a: Any, b: Any) -> list[Change]:
        """Compare two states, each a seq, an aware datetime, a Memory, Conversation or Snapshot.

        The comparison covers what ``state_hash`` covers: everything but settings, usage totals and snapshot names.
        ``settings.blame`` returns the earlier values of a setting.

        >>> memory = Memory()
        >>> memory.profile().set("theme", "dark")
        >>> [str(change) for change in memory.diff(0, memory.head)]
        ["profile/default profile.theme: None -> 'dark'"]
        """
        return history.diff(self._core.engine, *store.sides_of(self._core, self.head, a, b))

    def bisect(
        self,
        predicate: "Callable[[Memory], object]",
        *,
        after: "int | datetime.datetime" = 0,
        until: "int | datetime.datetime | None" = None,
    ) -> Recorded | None:
        """Return the event with ``after < seq <= until`` that made ``predicate(memory)`` true.

        The predicate gets frozen memories; the number of calls is about log2 of the range. If it turns true more than
        once, one of those events is returned. Returns ``None`` if it is not true at ``until`` (the head by default),
        and raises ``InvalidInput`` if it is already true at ``after``.

        >>> memory = Memory()
        >>> memory.profile().set("theme", "dark")
        >>> memory.profile().set("theme", "light")
        >>> memory.bisect(lambda memory: memory.profile().get("theme") == "light").stamp.seq
        2
        """
        return bisect(self._core, self.at, predicate, after=after, until=until, at=self._at)

    why, blame, influence, health = questions.why, questions.blame, questions.influence, questions.health

    batch, transact = transactions.batch, transactions.transact

    def acting(self, actor: str, *, cause: Any = None) -> AbstractContextManager[None]:
        """Return a context manager that stamps everything written in it with an actor and a cause.

        ``actor`` is printable, such as ``tool:search``; ``cause`` is the seq of the event that led to the writes, a
        result that has a seq, or 0 for none. Contexts nest: the innermost applies, and without a ``cause`` it keeps
        that of the outer one. Tasks, and threads that run a copy of the context, inherit it. Raises ``InvalidInput``
        for a cause that is not in this log.

        >>> memory = Memory()
        >>> with memory.acting("tool:search"):
        ...     note = memory.journal().append("The port is 5432.")
        >>> [recorded.stamp.actor for recorded in memory.events()]
        ['host', 'tool:search']
        """
        seq = None if cause is None else cause_of(self._core.engine, cause, self._at)
        return ActorBlock(self._core.engine.reader, checks.actor(actor), seq)

    def subscribe(self, fn: "Subscriber", after: int | None = None) -> "Subscription":
        """Call ``fn(recorded)`` with every durable event of every process, in order and once, until it is closed.

        It starts after the seq ``after`` (0: with the first event; ``None``: with the next one) and continues live, on
        one thread for all subscribers of this memory. A function that raises gets no further events: ``.error`` has the
        exception, and the logger "refold" its traceback. The events are those of ``events``; a fork's are in the fork.
        """
        self._refuse_frozen("subscribe to")
        return self._core.subscribe(fn, after)

    def watch(
        self, predicate: "Callable[[Message], object]", fn: "Callable[[Departure], Any]", *, after: bool = False
    ) -> "Watch":
        """Call ``fn(departure)`` before a message for which ``predicate(message)`` is true leaves a window.

        ``fn`` runs on the thread of the conversation method that would evict the message, before anything is written
        and with no lock held; it can pin the message or save its text. If it raises, nothing is written. With
        ``after=True``, it is called like a subscriber once the message has left for any reason. Messages leave by a
        budget, and by ``clear_window``, ``remove`` and ``restore``. In a batch, the check counts as a read of the
        conversation. Without ``after``, only this process's conversation methods are watched. Close the watch to end
        it.

        >>> memory = Memory()
        >>> chat = memory.conversation("chat-42", window_tokens=4)
        >>> _ = chat.append("user", "The port is 5432.", tokens=4)
        >>> with memory.watch(lambda message: "port" in message.content, lambda gone: print(gone.message.content)):
        ...     _ = chat.append("user", "Thanks!", tokens=2)
        The port is 5432.
        """
        self._refuse_frozen("watch")
        from refold.memory import departures
        from refold.memory.watches import Watch

        options.check_callables(predicate=predicate, fn=fn)
        watch = Watch(predicate, fn)
        if checks.flag(after, "after"):
            departures.report(self._core, watch)
        else:
            self._core.watch(watch)
        return watch

    def state_hash(self, at: "int | datetime.datetime | None" = None) -> str:
        """Return the SHA-256 of the logical content of every stream, in hex; equal states have equal hashes."""
        seq = self._at if at is None else seq_at(self._core.engine, at, self.head)
        return history.state_hash(self._core.engine, self._core.branch, seq)

    def replay_hash(self, at: "int | datetime.datetime | None" = None) -> str:
        """Return the ``state_hash`` of a replay from the first event, without any checkpoint; the two must be equal."""
        seq = self._at if at is None else seq_at(self._core.engine, at, self.head)
        return history.replay_hash(self._core.engine, self._core.branch, seq)

    def verify(
        self, progress: Progress = None, *, witness: "str | os.PathLike[str] | None" = None, jobs: int = 1
    ) -> Report:
        """Check the whole log and everything derived from it, and call ``progress(done, all)`` along the way.

        This covers the hash chain, the order and content of the events, checkpoints and states. The report is of the
        whole store, forks included; its hash is this memory's. The log is also compared with ``witness``, or with the
        one given when the memory was opened. Raises ``NotFound`` if that file does not exist, ``StoreUnreachable`` if
        the server of a shared log does not answer.

        With ``jobs`` above 1, that many new Python processes (``sys.executable``) share the work and ``memory_bytes``;
        the report is the same. One process does the whole check if they cannot confirm that all is sound: the store is
        damaged, another process writes to it, or it is in RAM or delays its writes.

        >>> Memory().verify().ok
        True
        """
        from refold.engine.verify import verify

        checks.integer(jobs, "jobs", 1, VERIFY_JOBS_COUNT_MAX, "VERIFY_JOBS_COUNT_MAX")
        place = options.check_witness(witness, self._core.path)
        return verify(self._core.engine, self._core.branch, progress, place, jobs)

    # The store.

    def backup(self, path: "str | os.PathLike[str]", progress: Progress = None) -> Backup:
        """Copy the whole store, forks included, while others write; the copy is verified and appears atomically.

        It contains everything acknowledged before the call. The copy is a store: open it with ``Memory``, or make
        another one from it with ``recover``. Raises ``InvalidInput`` if the path exists (an empty directory is allowed)
        or lies in the store, and ``StoreCorrupt`` if the store turns out to be damaged.
        """
        self._refuse_frozen("back up")
        return store.backup(self._core, path, progress)

    def export(self, path: "str | os.PathLike[str]", *, overwrite: bool = False) -> int:
        """Write every event with its stamp to a JSONL file, atomically, and return the number of events.

        An export covers the whole store, whichever fork it is called on. Raises ``InvalidInput`` for a path in the
        store, or of an existing file unless ``overwrite`` is set, and ``StoreCorrupt`` if a body is damaged.
        """
        return store.export(self._core, self._at, path, overwrite)

    def load(
        self, path: "str | os.PathLike[str]", progress: Progress = None, *, rename: Mapping[str, str] | None = None
    ) -> Loaded:
        """Load an export; an empty memory gets every stamp unchanged, so that ``state_hash`` is equal.

        A memory with events gets them as new ones after its head, which keep the time they happened; its settings stay.
        A stream that exists is refused, unless ``rename`` gives it another name (``{"journal/a": "journal/b"}``).
        Loading a file again in the same way changes nothing. Before anything is written, ``InvalidInput`` is raised if
        the file is no export or damaged (with the line), holds streams that exist, or lacks one of ``rename``.
        """
        self._refuse_frozen("load into")
        return store.load(self._core, path, progress, rename)

    def erase(
        self, seqs: Iterable[Any] = (), *, text: str | None = None, derived: str = "erase", forks: str = "refuse"
    ) -> Receipt:
        """Erase the bytes of events, given as seqs or results; return what was reached, and what no store can reach.

        ``seqs`` can also hold handles: each is erased as by its own ``erase``, but all in one pass. ``text`` adds all
        events that contain it, in its case and Unicode normal form, in any escapes of JSON, also in metadata and forks;
        ``receipt.named`` are the streams whose names contain it, which stay. An erased message keeps its place, role
        and tokens; ids of calls and board messages go with the last event that has them. What was derived from them
        (``sources``), summaries of them and hashes of contexts that may have shown them go too, unless
        ``derived="keep"``. A file or learned skill goes with each of its events; by ``text``, only if it has it now.
        Erases nothing and raises ``InvalidInput`` for an unknown seq, anything of another memory, part of an imported
        state, or a short text, ``StoreFull`` if a clean copy has no room.
        """
        return store.erase(self._core, self._at, seqs, text, derived, forks)

    def reembed(self, embedder: "Embedder | None" = None, *, progress: Progress = None) -> "Reembedded":
        """Give every memory and episode a vector of an embedder, use that embedder from then on, and return the counts.

        The vectors are made in pages that no search sees, and take effect all at once; if the work stops, the next call
        goes on with them. Messages are embedded in the background. ``None`` stands for the embedder in use.
        ``progress(done, all)`` is called as vectors are made, with no lock held. Raises what the embedder raises, and
        ``StoreBusy`` if other writers never pause.
        """
        self._refuse_frozen("reembed")
        from refold.memory.maintenance import reembed

        return reembed(self._core, embedder, progress)

    def stats(self) -> Stats:
        """Return counts of events, streams and bytes."""
        return store.stats(self._core, self._at)

    def refresh(self) -> int:
        """Take in everything that other machines have written to a log on a server, and return the head.

        Without it, reads see them moments later. Reads of a directory see the writes of other processes at once.
        """
        if self._at is None:
            self._core.engine.refresh()
        return self.head

    def flush(self) -> None:
        """Store checkpoints of changed states, so that the next open is fast; nothing depends on it."""
        if self._at is None:
            self._core.engine.flush()

    def close(self) -> None:
        """Flush and release the store; a fork releases only its own handles, a frozen memory nothing."""
        if self._at is None:
            self._core.close()

    def __iter__(self) -> Iterator[NoReturn]:
        raise TypeError("a Memory is not iterable; use conversations(), snapshots() or conversation(id).events()")
