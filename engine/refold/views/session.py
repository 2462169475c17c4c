"""The session of a conversation: its project and forks, its work, and the contexts shown to a model."""

from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct

from refold import checks
from refold.event import ConversationOpened, Event, ForkDropped, Forked, Located, Restored, Stamp, StateImported, View
from refold.views.base import copy_slots


class EmbeddingChanged(Event, frozen=True, tag=84):
    """The messages of a conversation are embedded from here on, or no longer are."""

    sentence: ClassVar[str] = "whether messages are embedded was set to {embed!s}"

    embed: bool

    def repeat(self, chat: Any) -> None:
        chat.set_embed(self.embed)


class Session:
    """The identity of a conversation."""

    __slots__ = ("based", "depth", "embed", "opened", "project", "unknown")

    def __init__(self) -> None:
        self.opened = False
        self.project: str | None = None
        self.unknown = False  # Whether the name of the project, if there was one, was erased.
        self.depth = 0  # The number of forks between this conversation and its origin.
        self.embed = False  # Whether its messages are embedded.
        self.based = 0  # The seq of the last event that replaced the conversation's state.

    copy = copy_slots

    def pack(self) -> tuple[Any, list[int]]:
        packed = [self.opened, self.project, self.depth, self.unknown, self.embed, self.based]
        while len(packed) > _SESSION_COUNT_MIN and not packed[-1]:
            packed.pop()
        return packed, []

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Session":
        session = cls()
        session.opened, session.project, session.depth = msgspec.convert(inline[:3], tuple[bool, str | None, int])
        rest = [*inline[_SESSION_COUNT_MIN:], *(False, False, 0)[len(inline) - _SESSION_COUNT_MIN :]]
        session.unknown, session.embed, session.based = msgspec.convert(rest, tuple[bool, bool, int])
        return session

    def logical(self) -> Any:
        return [self.project, *([True] if self.embed else [])] if self.opened else None

    def plain(self) -> dict[str, Any]:
        plain = {"project": self.project, "embed": self.embed or None}
        return {name: value for name, value in plain.items() if value is not None} if self.opened else {}


_SESSION_COUNT_MIN: Final = 3  # The number of packed values that are always present.

SESSION = View("session", kinds=("conversation",), state=Session)


@SESSION.on(ConversationOpened)
def _conversation_opened(session: Session, stamp: Stamp, event: ConversationOpened) -> None:
    session.opened = True
    session.project = event.project or session.project
    session.unknown = stamp.erased and session.project is None
    session.embed = bool(event.embed)


@SESSION.on(Forked, Restored)
def _set_base(session: Session, stamp: Stamp, event: Event) -> None:
    assert isinstance(event, (Forked, Restored)), event
    session.unknown = event.project is None and (stamp.erased or session.unknown)
    session.project = event.project
    session.depth = event.depth
    session.based = stamp.seq


@SESSION.on(StateImported)
def _session_imported(session: Session, stamp: Stamp, event: StateImported) -> None:
    """Continue from the imported state, but in the conversation's own project."""
    session.opened = event.policy != 0
    session.unknown = stamp.erased
    session.project = event.project
    session.based = stamp.seq


@SESSION.on(ForkDropped)
def _session_dropped(session: Session, stamp: Stamp, event: ForkDropped) -> None:
    session.opened = session.unknown = session.embed = False
    session.project = None
    session.depth = 0
    session.based = stamp.seq


@SESSION.on(EmbeddingChanged)
def _embedding_changed(session: Session, stamp: Stamp, event: EmbeddingChanged) -> None:
    session.embed = event.embed


# The work so far: the task, the files read, the findings, the number of calls of each tool.


class ToolExecuted(Event, frozen=True, tag=40):
    """A tool was called: ``arguments`` and ``result`` are JSON as the model wrote it and as the tool returned it."""

    sentence: ClassVar[str] = "the tool {name!s} was called with {arguments!s}: {outcome!s}"
    given_ids: ClassVar[tuple[str, ...]] = ("call_id",)

    call_id: str
    name: str = ""
    arguments: bytes = b""
    result: bytes = b""
    outcome: str = ""


class TaskDescribed(Event, frozen=True, tag=41):
    """A session got its task, in one sentence."""

    sentence: ClassVar[str] = "the task became {text}"
    subject: ClassVar[tuple[str, str]] = ("work", "")

    text: str = ""

    def repeat(self, chat: Any) -> None:
        chat.session.describe_task(self.text)


class FileRead(Event, frozen=True, tag=42):
    """A session read a file."""

    sentence: ClassVar[str] = "the file {path} was read"
    subject: ClassVar[tuple[str, str]] = ("work", "")

    path: str = ""
    lines: int = 0
    size_bytes: int = 0

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            checks.key(self.path, "path")

    def repeat(self, chat: Any) -> None:
        chat.session.note_file(self.path, lines=self.lines, size_bytes=self.size_bytes)


class FindingNoted(Event, frozen=True, tag=43):
    """A session found something out."""

    sentence: ClassVar[str] = "the session found out {text}"
    subject: ClassVar[tuple[str, str]] = ("work", "")

    text: str = ""

    def repeat(self, chat: Any) -> None:
        chat.session.note_finding(self.text)


class MemoriesExtracted(Event, frozen=True, tag=47):
    """A model read a session up to the event at ``origin``, 0 for none, and memories were made from it."""

    sentence: ClassVar[str] = "{provider} made memories of the session: {ids!s}"

    origin: int
    ids: tuple[str, ...] = ()
    provider: str = ""
    dropped: tuple[str, ...] = ()


WORK_EVENTS: Final = (ToolExecuted, TaskDescribed, FileRead, FindingNoted)
"""The events that make up the summary of a session."""


class ReadFile(Struct, frozen=True, gc=False):
    """A file that a session read: its path, its lines and its size."""

    path: str
    lines: int
    size_bytes: int


class Work:
    """The task with its seq; the files by path and the findings by text, each with its seq; counts of calls by tool."""

    __slots__ = ("calls", "extracted", "files", "findings", "task", "task_seq")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.task = ""
        self.task_seq = 0
        self.files: dict[str, tuple[int, ReadFile]] = {}
        self.findings: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        self.extracted = 0  # The seq up to which a model has read the session to extract memories.

    copy = copy_slots

    @property
    def is_empty(self) -> bool:
        return not (self.task_seq or self.files or self.findings or self.calls or self.extracted)

    def pack(self) -> tuple[Any, list[int]]:
        if self.is_empty:
            return None, []
        task = [self.task_seq] if self.task_seq else []
        files = [seq for seq, _ in self.files.values()]
        return [self.calls, self.extracted], [*task, *files, *self.findings.values()]

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Work":
        work = cls()
        if inline is None:
            return work
        work.calls, work.extracted = msgspec.convert(inline, tuple[dict[str, int], int])
        for event, stamp in events:
            _apply_event(work, stamp, event)
        return work

    def logical(self) -> Any:
        if self.is_empty:
            return None
        files = [[seq, file.path, file.lines, file.size_bytes] for seq, file in self.files.values()]
        findings = [[seq, text] for text, seq in self.findings.items()]
        return [[self.task_seq, self.task], files, findings, sorted(self.calls.items()), self.extracted]

    def plain(self) -> dict[str, Any]:
        if self.is_empty:
            return {}
        files = {path: [file.lines, file.size_bytes] for path, (_, file) in self.files.items()}
        values = {"task": self.task, "files": files, "findings": list(self.findings), "calls": dict(self.calls)}
        return values | {"extracted": self.extracted}


def _apply_event(work: Work, stamp: Stamp, event: Event) -> None:
    if isinstance(event, TaskDescribed):
        work.task, work.task_seq = event.text, stamp.seq
    elif isinstance(event, FileRead):
        work.files[event.path] = (stamp.seq, ReadFile(event.path, event.lines, event.size_bytes))
    else:
        assert isinstance(event, FindingNoted), f"seq {stamp.seq} was packed as a part of a session's work"
        work.findings.setdefault(event.text, stamp.seq)


WORK = View("work", kinds=("conversation",), state=Work)


@WORK.on(ToolExecuted)
def _tool_executed(work: Work, stamp: Stamp, event: ToolExecuted) -> None:
    if not stamp.erased:
        work.calls[event.name] = work.calls.get(event.name, 0) + 1


@WORK.on(TaskDescribed)
def _task_described(work: Work, stamp: Stamp, event: TaskDescribed) -> None:
    """Set the task in place of an earlier one; an erased event leaves the earlier one."""
    if not stamp.erased:
        _apply_event(work, stamp, event)


@WORK.on(FileRead)
def _file_read(work: Work, stamp: Stamp, event: FileRead) -> None:
    """Hold the file as it was when last read; files are in the order of their last reads."""
    if not stamp.erased:
        work.files.pop(event.path, None)
        _apply_event(work, stamp, event)


@WORK.on(FindingNoted)
def _finding_noted(work: Work, stamp: Stamp, event: FindingNoted) -> None:
    if not stamp.erased:
        _apply_event(work, stamp, event)


@WORK.on(MemoriesExtracted)
def _memories_extracted(work: Work, stamp: Stamp, event: MemoriesExtracted) -> None:
    work.extracted = max(work.extracted, event.origin)


@WORK.on(StateImported, ForkDropped)
def _work_reset(work: Work, stamp: Stamp, event: Event) -> None:
    work.reset()


# The contexts shown to a model: counts and ids, so that each can be built again. Their hashes are in another event.


class ContextShown(Event, frozen=True, tag=46):
    """A context was shown to a model; ``origin`` is the seq at which it was built, 0 for the empty log."""

    sentence: ClassVar[str] = "a context was shown to a model, with the parts {names!s}"
    bookkeeping: ClassVar[frozenset[str]] = frozenset(("names", "budget"))

    origin: int
    renderer: int
    tokens: tuple[int, ...]
    names: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    project: str = ""
    query: str | None = None
    day: str = ""
    profile: str = ""
    journal: str = ""
    skills: bytes = b""
    budget: bytes = b""
    timezone: str = "UTC"

    def check(self, *, is_erased: bool) -> None:
        if is_erased:
            return
        if len(self.tokens) != len(self.names):
            checks.invalid(f"{len(self.names)} parts have {len(self.tokens)} counts of tokens")
        checks.day(self.day, "day")


class ContextLog:
    """The number of contexts that were shown, and the seq of the last one."""

    __slots__ = ("count", "last_seq")

    def __init__(self) -> None:
        self.count = 0
        self.last_seq = 0

    copy = copy_slots

    def pack(self) -> tuple[Any, list[int]]:
        return [self.count, self.last_seq] if self.count else None, []

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "ContextLog":
        log = cls()
        if inline is not None:
            log.count, log.last_seq = msgspec.convert(inline, tuple[int, int])
        return log

    def logical(self) -> Any:
        return [self.count, self.last_seq] if self.count else None

    def plain(self) -> dict[str, Any]:
        return {"shown": self.count, "last_seq": self.last_seq} if self.count else {}


CONTEXTS = View("contexts", kinds=("conversation",), state=ContextLog)


@CONTEXTS.on(ContextShown)
def _context_shown(log: ContextLog, stamp: Stamp, event: ContextShown) -> None:
    """Count the context; an erased one counts too, because it is known that there was one."""
    log.count += 1
    log.last_seq = stamp.seq


@CONTEXTS.on(StateImported, ForkDropped)
def _contexts_reset(log: ContextLog, stamp: Stamp, event: Event) -> None:
    log.count = log.last_seq = 0
