"""The memory handle: a store opened, its conversations, profiles and projects, and the whole of it through time."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar, Unpack

from refold import checks
from refold.engine import batch as batches
from refold.engine import history
from refold.engine.origin import Acting
from refold.engine.vectors import any_stored
from refold.errors import NotFound, ReadOnly
from refold.event import Recorded
from refold.limits import MEMORY_BYTES_DEFAULT, VERIFY_JOBS_COUNT_MAX, WINDOW_TOKENS_DEFAULT
from refold.memory import options, questions, store, transactions
from refold.memory.claims import Claims
from refold.memory.conversation import Conversation
from refold.memory.extensions import call_extension
from refold.memory.options import Core, MutationOptions, Progress, chosen, mutation, seq_at, zone
from refold.memory.share import Terms, open_core
from refold.memory.snapshot import Snapshot
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


if TYPE_CHECKING:
    P = ParamSpec("P")
    R = TypeVar("R")

    def of_default(verb: Callable[Concatenate[Project, P], R]) -> Callable[Concatenate["Memory", P], R]:
        """Return a verb of a project as one of a memory, as ``Shortcut`` does."""
        ...


class Shortcut:
    """A verb of the default project under its name on the memory: its signature and docstring are the project's."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, memory: "Memory | None", _: object = None) -> Any:
        from refold.memory.project import Project

        return getattr(Project if memory is None else memory.project(), self._name)


class Memory:
    """An agent's memory: a directory, created or opened; without a path it lives in RAM and keeps nothing.

    The path may be the address of a log that several machines share: ``postgresql://user@host/database``, or
    ``nats://host:4222/NAME``.

    ``add``, ``upsert``, ``search`` and ``recall`` are those of ``project()``.

    ``durability`` is ``"durable"``: what a call returned for survives a power loss; or ``"delayed"``: calls return at
    once, the disk has it 50 ms later at most, and no other process may write. ``window_tokens`` is the budget of the
    conversations that begin here, ``timezone`` says which day a note of a journal is of, ``memory_bytes`` bounds the
    RAM for states and vectors, at least 1 MiB. ``embedder`` and ``token_counter`` take the place of the built-in ones,
    which need no model. ``clear_scratchpads_on_open`` forgets what conversations have noted for themselves.
    ``readonly`` opens a store that is there and writes nothing. ``witness`` is a file in another place that keeps the
    last link of the log, so that a log that was cut off or replaced is noticed. ``cache`` is the directory of the local
    copy of a log on a server; without it that is ``~/.cache/refold``, and ``":memory:"`` keeps it in RAM. ``clock_ns``
    and ``random_bytes`` are all that is not determined by calls: give your own to make a run repeatable.

    Memories of one path in one process share the store, each with a budget, a counter and a timezone of its own.
    Closing one ends its subscriptions and watches, and closing the last one closes the store.

    Raises ``NotFound`` for a missing parent directory, ``StoreVersion`` for a path that is not a store, ``StoreBusy``
    when another process has it for itself alone, or this one on other terms, such as another ``durability`` or
    ``embedder``, ``StoreCorrupt`` when its ``witness`` saw another log.

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
        counter = ByteClassCounter() if token_counter is None else store.checked_counter(token_counter)
        place = store.checked_place(path, readonly=readonly, clears=clear_scratchpads_on_open)
        options.check_callables(clock_ns=clock_ns, random_bytes=random_bytes)
        terms = Terms(
            store.is_delayed(durability, place, readonly=readonly),
            store.checked_bytes(memory_bytes),
            options.checked_embedder(embedder),
            options.checked_witness(witness, place),
            clock_ns,
            random_bytes,
        )
        self._core = open_core(
            place,
            terms,
            readonly=checks.flag(readonly, "readonly"),
            cache=options.checked_cache(cache, place),
            counter=counter,
            timezone=timezone,
            window_tokens=window_tokens,
        )
        self._at, self._made = None, {}
        try:
            if clear_scratchpads_on_open:
                store.clear_scratchpads(self._core)
            if any_stored(self._core.engine.reader.log):
                self._core.message_vectors.follow()
        except BaseException:
            self._core.close()
            raise

    @staticmethod
    def _behind(core: Core, at: int | None) -> "Memory":
        memory = Memory.__new__(Memory)
        memory._core, memory._at, memory._made = core, at, {}  # noqa: SLF001 - its own kind
        return memory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        frozen = "" if self._at is None else f", at={self._at}"
        return f"Memory({self._core.path!r}{frozen}, {self._core.counts(self._counts)})"

    def _counts(self) -> str:
        return store.counts(self._core, self._at)

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

        ``project``, ``window_tokens``, ``embed`` and ``eviction`` are recorded with that mutation; from then on, other
        values raise ``InvalidInput``. With ``embed=True`` its messages are embedded in the background, and searches
        find them by their meaning too; ``set_embed`` changes that. ``eviction`` says which messages leave a full window
        first: the oldest (``"fifo"``, the default), those that were not recalled for the longest time
        (``"least-recalled"``) or are rated lowest for their age (``"least-important"``); ``"fifo-recall"`` fills half
        of the budget and leaves the rest to what contexts find, ``"summary"`` keeps a summary of what has left.

        >>> Memory().conversation("chat-42", project="acme/api", window_tokens=4_000).window_tokens
        4000
        """
        checks.name(conversation_id, "conversation_id")
        if project is not None:
            checks.name(project, "project")
        if window_tokens is not None:
            checks.window_tokens(window_tokens)
        if embed is not None and checks.flag(embed, "embed"):
            self._core.message_vectors.follow()
        policy = None if eviction is None else POLICIES[checks.one_of(eviction, "eviction", tuple(POLICIES))]
        opening = self._core.opening(project, window_tokens, embed, policy or POLICY)
        given = (project, window_tokens, embed, policy)
        claims = None if given == (None, None, None, None) else Claims(*given)
        return Conversation(self._core, conversation_id, opening, self._at, claims)

    @property
    def aio(self) -> "AsyncMemory":
        """The same memory for asyncio: what writes, embeds or searches is awaited, other reads answer at once."""
        from refold.memory.aio import AsyncMemory

        return AsyncMemory(self._core, self)

    def profile(self, name: str = "default") -> "Profile":
        """Return a handle on a profile: what is known of a user, as keys and values."""
        from refold.memory.handles import Profile

        return Profile(self._core, checks.name(name, "name"), self._at)

    def journal(self, name: str = "default") -> "Journal":
        """Return a handle on a journal: notes by day."""
        from refold.memory.handles import Journal

        return Journal(self._core, checks.name(name, "name"), self._at)

    def table(self, name: str) -> "Table":
        """Return a handle on a table: JSON values and bytes under keys, for records of a program's own."""
        from refold.memory.table import Table

        return Table(self._core, checks.name(name, "name"), self._at)

    def files(self, name: str = "default") -> "Files":
        """Return a handle on the files that a model keeps under ``/memories``."""
        from refold.memory.files import Files

        return Files(self._core, checks.name(name, "name"), self._at)

    def project(self, name: str = "default") -> "Project":
        """Return a handle on a project: facts that outlive conversations, and what was tried."""
        from refold.memory.project import Project

        return Project(self._core, checks.name(name, "name"), self._at)

    def board(self, *, session: str | None = None, project: str | None = None, node: str | None = None) -> "Board":
        """Return a handle on the board of a session, or of a node of a project; ``InvalidInput`` for neither."""
        from refold.memory.board import Board

        return Board(self._core, session, project, node, self._at)

    @property
    def settings(self) -> "Settings":
        """The settings of this store, each change of which is an event."""
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
        """Find messages of all conversations by their words, as ``Conversation.search`` does in one.

        ``hit.entry.stamp.stream`` names the conversation of a hit. The first search reads the whole log.

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
        """Return the ids of the conversations, sorted: those with ``prefix``, behind ``after``, at most ``limit``.

        Dropped ones are left out; with ``dropped`` it returns those alone, until they are begun anew. What is left of
        one that was erased has a name made of ``erased-`` and a seq.
        """
        return store.conversations(self._core, self._at, prefix, after, limit, dropped)

    def projects(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> list[str]:
        """Return the ids of the projects ever written to, emptied ones too, sorted; paged alike."""
        return store.names(self._core, self._at, "project", prefix, after, limit)

    def profiles(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> list[str]:
        """Return the names of the profiles ever written to, sorted and paged alike."""
        return store.names(self._core, self._at, "profile", prefix, after, limit)

    def journals(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> list[str]:
        """Return the names of the journals ever written to, sorted and paged alike."""
        return store.names(self._core, self._at, "journal", prefix, after, limit)

    def tables(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> list[str]:
        """Return the names of the tables ever written to, sorted and paged alike."""
        return store.names(self._core, self._at, "table", prefix, after, limit)

    def boards(self, *, after: "Board | None" = None, limit: int | None = None) -> "list[Board]":
        """Return the boards that something was ever written to, those of nodes first, in the order of their names.

        ``after`` and ``limit`` page through them.
        """
        from refold.memory.board import listed

        return listed(self._core, self._at, after, limit)

    def snapshots(self, *, after: Snapshot | None = None, limit: int | None = None) -> list[Snapshot]:
        """Return the named snapshots, in the order of their seqs; ``after`` and ``limit`` page through them.

        Those of the whole memory have an empty ``stream``.
        """
        return store.snapshots(self._core, self._at, after, limit)

    def forks(self, *, after: str | None = None, limit: int | None = None) -> list[str]:
        """Return the names of the memories forked from this one and from its forks, sorted."""
        return store.forks(self._core, self._at, after, limit)

    # From the layers above.

    def _extension(self, name: str) -> Any:
        """Return a part that is made once for this handle, so that registrations with it stay.

        It gets a handle of its own, so that no circle of references keeps this one alive.
        """
        if name not in self._made:
            self._made.setdefault(name, call_extension(name, Memory._behind(self._core, self._at)))
        return self._made[name]

    @property
    def tools(self) -> Any:
        """A ``refold.agent.ToolRegistry``: the built-in tools, and those that were registered with this handle."""
        return self._extension("tools")

    @property
    def hooks(self) -> Any:
        """A ``refold.agent.Hooks``: the functions that this handle has for the eight points of a session."""
        return self._extension("hooks")

    @property
    def skills(self) -> Any:
        """A ``refold.skills.Skills``: those learned, switched, selected, used; ``below(roots)`` reads files too."""
        return self._extension("skills")

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
        """Build the ``Context`` of a conversation for a model, and write nothing.

        It shows the memories, earlier sessions and earlier messages that answer ``query``, most often the user's last
        message; without one, the most important memories. ``project`` is the conversation's unless given. ``budget``
        bounds everything: a number of tokens, or a ``refold.agent.ContextBudget``. ``skills`` are matches of
        ``skills.select``, or pairs of a name and a text. ``tools`` are the names of the tools that the model gets, by
        default all of ``memory.tools``: instructions speak of no others.

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
        """Record that a context was shown to a model, so that it can be built again; return the seq of that."""
        seq: int = call_extension("show", self, self._core, context)
        return seq

    def rebuild(self, seq: int) -> Any:
        """Return a ``Rebuilt``: the context that was shown at a seq, from the log, and whether it is the same bytes."""
        return call_extension("rebuild", self, self._core, seq)

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
        """Keep a profile and a journal in files that people may edit; return the ``Mirror``.

        The directory is created if need be. With ``edits="leave"`` a file that was edited is reported and left as it
        is; with ``writes=False`` nothing is done but by ``check``. ``on_report`` is called with every ``MirrorReport``
        that is not empty. Raises ``NotFound`` for a missing parent directory, ``StoreBusy`` while another mirror has
        the directory, ``InvalidInput`` for a store's or another memory's, ``StoreError`` where it cannot be written.
        """
        self._refuse_frozen("mirror")
        named = {"profile": profile, "journal": journal, "edits": edits, "writes": writes, "on_report": on_report}
        mirror = call_extension("mirror", self, self._core, directory, **named)
        self._made["mirror"] = True  # From now on contexts speak of its files.
        return mirror

    # The whole through time.

    @property
    def head(self) -> int:
        """The seq of the last event, 0 while the log is empty; on a frozen memory, the seq at which it is frozen."""
        self._core.engine.reader.check_open()
        return self._core.engine.reader.current_head() if self._at is None else self._at

    def at(
        self, at: "int | datetime.datetime | None" = None, *, occurred: "int | datetime.datetime | None" = None
    ) -> "Memory":
        """Return the memory as it was at a seq or an aware datetime; mutating it raises ``ReadOnly``.

        With ``occurred``, nanoseconds or an aware datetime, what happened later than that is left out, whenever it was
        recorded: imported sessions can be seen as of the day when they took place.

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
            return Memory._behind(self._core, seq)
        from refold.memory.scenario import occurred_by

        return Memory._behind(occurred_by(self._core, occurred, seq), seq)

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

        Budget and eviction are those of every conversation. With ``dedupe``, merges whose cosine is not over it did not
        happen. It can only take merges apart: the log does not say which additions were asked to merge, so one below
        the threshold and all merges is ``InvalidInput``. ``without`` are seqs or results. Nothing is written. States
        are folded from the log when they are read, in at most a quarter of ``memory_bytes``. Recalls, decay and pruning
        stay as they were recorded; ``Scenario.diff`` says which recalls would have found others.

        >>> memory = Memory()
        >>> memory.profile().set("theme", "dark")
        >>> memory.profile().set("theme", "light")
        >>> memory.what_if(without=[2]).memory.profile().get("theme")
        'dark'
        """
        from refold.memory.scenario import what_if

        end = self.head if until is None else seq_at(self._core.engine, until, self.head)
        return what_if(
            self._core,
            Memory._behind,
            end,
            window_tokens=window_tokens,
            eviction=eviction,
            ranking=ranking,
            dedupe=dedupe,
            without=without,
        )

    def sweep(self, scenarios: "Sequence[Scenario]") -> "list[Scenario]":
        """Compare scenarios with the log in one pass over it: their ``diff``, ``regret`` and ``state_hash`` are ready.

        Raises ``InvalidInput`` for those of another memory.

        >>> memory = Memory()
        >>> _ = memory.conversation("chat-42").append("user", "Hello!")
        >>> [len(each.regret()) for each in memory.sweep([memory.what_if(window_tokens=n) for n in (1, 2)])]
        [0, 0]
        """
        from refold.memory.scenario import sweep_all

        return sweep_all(scenarios)

    @mutation
    def snapshot(self, name: str | None = None, **options: Unpack[MutationOptions]) -> Snapshot:
        """Take a pointer to the present state of everything; one with a name is recorded, and stays.

        ``expected`` compares with ``head``, here and in ``restore`` and ``fork``: the version of a whole memory.

        >>> memory = Memory()
        >>> _ = memory.snapshot("empty")
        >>> memory.profile().set("theme", "dark")
        >>> memory.restore("empty")
        >>> memory.profile().items()
        []
        """
        return store.snapshot(self._core, name, self._at, chosen(options))

    @mutation
    def restore(self, snapshot: Snapshot | str, **options: Unpack[MutationOptions]) -> None:
        """Bring everything back to a snapshot of this memory or of a fork, in one commit; history stays.

        Settings and names of snapshots stay as they are: where a user switched memory off, it stays off.

        Raises ``NotFound`` for a name that does not exist, ``InvalidInput`` for what is no snapshot of this store's
        whole memory, ``StoreBusy`` if others never stop writing.
        """
        self._refuse_frozen("restore")
        store.restore(self._core, snapshot, chosen(options))

    @mutation
    def fork(
        self, name: str, *, at: "int | datetime.datetime | None" = None, **options: Unpack[MutationOptions]
    ) -> "Memory":
        """Return the fork of that name; a new one begins from everything as it is, or as it was at ``at``.

        One event; nothing is copied. Its ``close`` releases the handle alone; closing the memory closes its forks.

        >>> memory = Memory()
        >>> memory.fork("what if").profile().set("theme", "light")
        >>> memory.profile().get("theme"), memory.fork("what if").profile().get("theme")
        (None, 'light')
        """
        forked = store.fork(self._core, name, self._at, at, chosen(options))
        return Memory._behind(forked, None)

    def events(self, *, after: int = 0, until: int | None = None) -> Iterator[Recorded]:
        """Return the events of all streams with ``after < seq <= until``, in order; those of forks are in the forks."""
        checks.count(after, "after")
        last = self._at if until is None else seq_at(self._core.engine, until, self.head)
        return self._core.engine.reader.all_events(after, last, self._core.branch)

    def event(self, seq: int) -> Recorded:
        """Return the event at a seq; ``NotFound`` where this memory has none there.

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

        Compares what ``state_hash`` covers: all but settings, totals of use and names of snapshots. ``settings.blame``
        returns what a setting was.

        >>> memory = Memory()
        >>> memory.profile().set("theme", "dark")
        >>> [str(change) for change in memory.diff(0, memory.head)]
        ["profile/default profile.theme: None -> 'dark'"]
        """
        return history.diff(self._core.engine, *(store.side_of(self._core, self.head, side) for side in (a, b)))

    def bisect(
        self,
        predicate: "Callable[[Memory], object]",
        *,
        after: "int | datetime.datetime" = 0,
        until: "int | datetime.datetime | None" = None,
    ) -> Recorded | None:
        """Return the event with ``after < seq <= until`` that made ``predicate(memory)`` true.

        The predicate gets frozen memories, of about as many seqs as the range has binary digits. Where it turns true
        more than once, one of those events is found. Returns ``None`` if it is not true at ``until`` (the head by
        default), and raises ``InvalidInput`` if it is true at ``after`` already.

        >>> memory = Memory()
        >>> memory.profile().set("theme", "dark")
        >>> memory.profile().set("theme", "light")
        >>> memory.bisect(lambda memory: memory.profile().get("theme") == "light").stamp.seq
        2
        """
        return questions.bisect(self._core, self.at, predicate, after=after, until=until, at=self._at)

    why, blame, influence, health = questions.why, questions.blame, questions.influence, questions.health

    batch, transact = transactions.batch, transactions.transact

    def acting(self, actor: str, *, cause: Any = None) -> AbstractContextManager[None]:
        """Make a context in which everything that is written is stamped with an actor and a cause.

        ``actor`` is printable, such as ``tool:search``; ``cause`` is the seq of the event that led to it, a result that
        has one, or 0 for none. Contexts nest: the inner one counts, and without a ``cause`` it keeps the outer one's.
        Tasks, and threads that run a copy of the context, go on with it. Raises ``InvalidInput`` for a cause that is
        not in this log.

        >>> memory = Memory()
        >>> with memory.acting("tool:search"):
        ...     note = memory.journal().append("The port is 5432.")
        >>> [recorded.stamp.actor for recorded in memory.events()]
        ['host', 'tool:search']
        """
        check, seq = partial(checks.cause, cause), None
        if cause is not None:
            seq = self._core.engine.known(check) if self._at is None else check(self._at)
        return Acting(self._core.engine.reader, checks.actor(actor), seq)

    def subscribe(self, fn: "Subscriber", after: int | None = None) -> "Subscription":
        """Call ``fn(recorded)`` with every durable event of every process, in order and once, until it is closed.

        It begins behind the seq ``after`` (0: with the first event; ``None``: with the next one) and goes on live, on
        one thread for all subscribers of this memory. A function that raises gets no further events: ``.error`` has
        the exception, and the logger "refold" its trace. The events are those of ``events``: a fork's are in the fork.
        """
        self._refuse_frozen("subscribe to")
        return self._core.subscribe(fn, after)

    def watch(
        self, predicate: "Callable[[Message], object]", fn: "Callable[[Departure], Any]", *, after: bool = False
    ) -> "Watch":
        """Call ``fn(departure)`` before a message for which ``predicate(message)`` is true leaves a window.

        It is called on the thread of the verb of a conversation that would let it go, before anything is written and
        with no lock held, so that it may pin the message, or save what it says. If it raises, nothing is written. With
        ``after=True`` it is called once the message has left, whoever let it go, as a subscriber is. Messages leave by
        a budget, and by ``clear_window``, ``remove`` and ``restore``. In a batch, it counts as a read of the
        conversation. Before, only this process's verbs of conversations are watched. Close the watch to end it.

        >>> memory = Memory()
        >>> chat = memory.conversation("chat-42", window_tokens=4)
        >>> _ = chat.append("user", "The port is 5432.", tokens=4)
        >>> with memory.watch(lambda message: "port" in message.content, lambda gone: print(gone.message.content)):
        ...     _ = chat.append("user", "Thanks!", tokens=2)
        The port is 5432.
        """
        self._refuse_frozen("watch")
        from refold.memory import watches

        watches.check_functions(predicate, fn)
        watch = watches.Watch(predicate, fn)
        if checks.flag(after, "after"):
            return watches.watch_after(Memory._behind(self._core, None), watch)
        return watches.watch_before(self._core, watch)

    def state_hash(self, at: "int | datetime.datetime | None" = None) -> str:
        """Return the SHA-256 of the logical content of every stream, in hex; equal states have equal hashes."""
        seq = self._at if at is None else seq_at(self._core.engine, at, self.head)
        return history.state_hash(self._core.engine, self._core.branch, seq)

    def replay_hash(self, at: "int | datetime.datetime | None" = None) -> str:
        """Return ``state_hash`` of a replay from the first event, without any checkpoint; the two must be equal."""
        seq = self._at if at is None else seq_at(self._core.engine, at, self.head)
        return history.replay_hash(self._core.engine, self._core.branch, seq)

    def verify(
        self, progress: Progress = None, *, witness: "str | os.PathLike[str] | None" = None, jobs: int = 1
    ) -> Report:
        """Check the whole log and all that is computed from it; call ``progress(done, all)`` meanwhile.

        Checked are the hash chain, the order of the events, their content, checkpoints and states. A report is of the
        whole store, its forks included; its hash is this memory's. The log is also compared with ``witness``, or with
        the one that the memory was opened with. Raises ``NotFound`` if that is not there, ``StoreUnreachable`` if the
        server of a shared log does not answer.

        With ``jobs``, so many processes share the work, each with its part of ``memory_bytes``; the report is the same.
        They are new Python programs (``sys.executable``), and one process looks again where they cannot say that all is
        sound: the store is damaged, another process writes to it, or it is in RAM or delays its writes.

        >>> Memory().verify().ok
        True
        """
        from refold.engine.verify import verify

        core = self._core
        checks.integer(jobs, "jobs", 1, VERIFY_JOBS_COUNT_MAX, "VERIFY_JOBS_COUNT_MAX")
        return verify(core.engine, core.branch, progress, options.checked_witness(witness, core.path), jobs)

    # The store.

    def backup(self, path: "str | os.PathLike[str]", progress: Progress = None) -> Backup:
        """Copy the whole store, forks included, while others write; the copy is verified and appears whole or not.

        It has all that was acknowledged before the call. It is a store: open it with ``Memory``, or let ``recover``
        make another one of it. Raises ``InvalidInput`` where something is at the path (an empty directory may be) or if
        the path lies in the store, ``StoreCorrupt`` where the store turns out to be damaged.
        """
        self._refuse_frozen("back up")
        return store.backup(self._core, path, progress)

    def export(self, path: "str | os.PathLike[str]") -> int:
        """Write every event with its stamp to a JSONL file, atomically; return how many there were.

        An export is of the whole store, whichever fork it is asked of; ``StoreCorrupt`` where a body is damaged.
        """
        from refold.engine import transfer

        return transfer.export(self._core.engine, options.checked_path(path), self._at)

    def load(
        self, path: "str | os.PathLike[str]", progress: Progress = None, *, rename: Mapping[str, str] | None = None
    ) -> Loaded:
        """Load an export; into an empty memory with every stamp as it was, so that ``state_hash`` is equal.

        Into a memory with events they come as new ones behind its head, when they happened kept; a stream that it has
        already is refused, unless ``rename`` gives it another name (``{"conversation/a": "conversation/b"}``). A file
        that was loaded in the same way before changes nothing. Raises ``InvalidInput`` before anything was written if
        the file is not an export or is damaged, naming the line, or if it holds streams that are there, naming them.
        """
        self._refuse_frozen("load into")
        from refold.engine import transfer

        batches.refuse(self._core.engine, "a load")
        if self._core.branch:
            checks.invalid("an export is of a whole store, with its forks; load it into the main memory")
        place = options.checked_path(path)
        return transfer.load(self._core.engine, place, progress, transfer.checked_rename(rename))

    def erase(self, seqs: Iterable[Any] = (), *, text: str | None = None, derived: str = "erase") -> Receipt:
        """Erase the bytes of events, given as seqs or results; return what was reached, and what no store can reach.

        ``text`` adds all events that hold it, as it is written or escaped in JSON, in forks too: a secret is mostly in
        more than one. ``receipt.named`` are the streams whose names hold it, which stay. Of a message, its place, role
        and tokens stay, so that no window changes. What was derived from the events (``sources``) goes too, with the
        hashes of contexts that may have shown them, unless ``derived="keep"``. Raises ``InvalidInput`` for a seq that
        is not there and a text under 4 characters, ``StoreFull`` without room for a clean copy: nothing was erased.
        """
        return store.erase(self._core, self._at, seqs, text, derived)

    def reembed(self, embedder: "Embedder | None" = None, *, progress: Progress = None) -> "Reembedded":
        """Give every memory and episode a vector of an embedder, and embed with it from then on; return the counts.

        They are made in pages, which no search sees, and count all at once; what was made before a stop waits for the
        next call. Messages get theirs in the background. ``None`` is the embedder that it embeds with by now;
        ``progress(done, all)`` is called as they are made, with no lock held. Raises what the embedder raises,
        ``StoreBusy`` while others never stop writing.
        """
        self._refuse_frozen("reembed")
        from refold.memory.maintenance import reembed

        return reembed(self._core, embedder, progress)

    def stats(self) -> Stats:
        """Return counts of events, streams and bytes."""
        return store.stats(self._core, self._at)

    def refresh(self) -> int:
        """Take in everything that other machines have written to a log on a server, and return the head.

        Without this, reads see it moments later; those of a directory see what other processes wrote at once.
        """
        if self._at is None:
            self._core.engine.refresh()
        return self.head

    def flush(self) -> None:
        """Store checkpoints of what has changed, so that the next opening is quick; nothing depends on it."""
        if self._at is None:
            self._core.engine.flush()

    def close(self) -> None:
        """Flush and release the store, a fork its own handles alone; a frozen memory has nothing to release."""
        if self._at is None:
            self._core.close()

    def __iter__(self) -> Iterator[NoReturn]:
        raise TypeError("a Memory is not iterable; use conversations(), snapshots() or conversation(id).events()")
