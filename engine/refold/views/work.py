"""The work of a session so far: its task, the files it read, its findings, the number of calls of each tool."""

from typing import Any, Final

import msgspec
from msgspec import Struct

from refold.event import Event, ForkDropped, Located, Stamp, StateImported, View


class ToolExecuted(Event, frozen=True, tag=40):
    """A tool was called: ``arguments`` and ``result`` are JSON as the model wrote them and as the tool answered."""

    call_id: str
    name: str = ""
    arguments: bytes = b""
    result: bytes = b""
    outcome: str = ""


class TaskDescribed(Event, frozen=True, tag=41):
    """A session got its task, in one sentence."""

    text: str = ""

    def repeat(self, chat: Any) -> None:
        """Describe the task there."""
        chat.session.describe_task(self.text)


class FileRead(Event, frozen=True, tag=42):
    """A session read a file."""

    path: str = ""
    lines: int = 0
    size_bytes: int = 0

    def repeat(self, chat: Any) -> None:
        """Note the file there."""
        chat.session.note_file(self.path, lines=self.lines, size_bytes=self.size_bytes)


class FindingNoted(Event, frozen=True, tag=43):
    """A session found something out."""

    text: str = ""

    def repeat(self, chat: Any) -> None:
        """Note the finding there."""
        chat.session.note_finding(self.text)


class MemoriesExtracted(Event, frozen=True, tag=47):
    """A model read a session up to the event at ``origin``, 0 for none, and memories were made of it."""

    origin: int
    ids: tuple[str, ...] = ()
    provider: str = ""
    dropped: tuple[str, ...] = ()


WORK_EVENTS: Final = (ToolExecuted, TaskDescribed, FileRead, FindingNoted)
"""What the summary of a session is made of."""


class ReadFile(Struct, frozen=True, gc=False):
    """A file that a session read: its path, its lines and its size."""

    path: str
    lines: int
    size_bytes: int


class Work:
    """The task with its seq; the files by path and the findings by text, each with its seq; calls by tool."""

    __slots__ = ("calls", "extracted", "files", "findings", "task", "task_seq")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Drop everything."""
        self.task = ""
        self.task_seq = 0
        self.files: dict[str, tuple[int, ReadFile]] = {}
        self.findings: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        self.extracted = 0
        """The seq up to which a model has read the session for memories to extract."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of the session."""
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
            _hold(work, stamp, event)
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


def _hold(work: Work, stamp: Stamp, event: Event) -> None:
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
    """Take the task in the place of an earlier one; an erased one leaves that."""
    if not stamp.erased:
        _hold(work, stamp, event)


@WORK.on(FileRead)
def _file_read(work: Work, stamp: Stamp, event: FileRead) -> None:
    """Hold the file as it was when it was last read, in the order of last reads."""
    if not stamp.erased:
        work.files.pop(event.path, None)
        _hold(work, stamp, event)


@WORK.on(FindingNoted)
def _finding_noted(work: Work, stamp: Stamp, event: FindingNoted) -> None:
    if not stamp.erased:
        _hold(work, stamp, event)


@WORK.on(MemoriesExtracted)
def _memories_extracted(work: Work, stamp: Stamp, event: MemoriesExtracted) -> None:
    work.extracted = max(work.extracted, event.origin)


@WORK.on(StateImported)
def _state_imported(work: Work, stamp: Stamp, event: StateImported) -> None:
    work.reset()


@WORK.on(ForkDropped)
def _fork_dropped(work: Work, stamp: Stamp, event: ForkDropped) -> None:
    work.reset()
