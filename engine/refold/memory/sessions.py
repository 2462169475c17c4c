"""Session memory: the task of a conversation, the files it read, what it found, the tools it called."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

from refold import checks
from refold.engine import batch as batches
from refold.engine.loader import Recorded
from refold.engine.pending import ANY, Decide
from refold.event import ConversationOpened, Event
from refold.fold import State, is_open
from refold.limits import NAME_BYTES_MAX
from refold.memory.door import Door
from refold.message import Message, MessageAppended
from refold.results import SessionSummary
from refold.views.window import WINDOW
from refold.views.work import (
    WORK,
    FileRead,
    FindingNoted,
    MemoriesExtracted,
    ReadFile,
    TaskDescribed,
    ToolExecuted,
    Work,
)

T = TypeVar("T")

MARKER: Final = "[SESSION_MEMORY_V1]"
_COUNT_MAX: Final = 2**53


class SessionMemory:
    """A handle on what one conversation has worked on; it lives in the conversation's stream.

    >>> from refold import Memory
    >>> session = Memory().conversation("chat-42").session
    >>> session.note_finding("The tests need a clock.")
    >>> session.findings()
    ['The tests need a clock.']
    """

    __slots__ = ("_at", "_door", "_opening", "_stream")

    def __init__(self, door: Door, stream: str, opening: ConversationOpened, at: int | None) -> None:
        self._door = door
        self._stream = stream
        self._opening = opening
        self._at = at

    def __repr__(self) -> str:
        """Return the handle with its counts."""
        return f"SessionMemory({self._stream.partition('/')[2]!r})"

    def _note(self, make: Event | Decide, asked: tuple[Any, ...], **options: Any) -> None:
        self._door.note(self._stream, make, at=self._at, asked=asked, opening=self._opening, **options)

    def _read(self, query: Callable[[Work], T]) -> T:
        return self._door.read(self._stream, lambda state: query(state.part(WORK)), self._at)

    def check_writable(self) -> None:
        """Raise ``ReadOnly`` where nothing can be recorded: of a frozen handle, or of a memory that is only read."""
        self._door.refuse_frozen(self._stream, self._at)
        self._door.engine.check_writable()

    def describe_task(
        self, text: str, *, expected: object = ANY, request_id: str | None = None, sources: Sequence[Any] = ()
    ) -> None:
        """Say what the session is about; the same text again appends nothing."""
        text = checks.text(text, "text")
        cited = self._door.sources(sources)

        def decide(state: State) -> Event | None:
            return None if state.part(WORK).task == text else TaskDescribed(cited, text)

        self._note(decide, ("describe_task", text), expected=expected, request_id=request_id)

    def note_file(
        self,
        path: str,
        *,
        lines: int = 0,
        size_bytes: int = 0,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sequence[Any] = (),
    ) -> None:
        """Remember that a file was read; what is known of it already appends nothing."""
        path = checks.key(path, "path")
        said = ReadFile(
            path,
            checks.integer(lines, "lines", 0, _COUNT_MAX, "the most lines"),
            checks.integer(size_bytes, "size_bytes", 0, _COUNT_MAX, "the most bytes"),
        )
        cited = self._door.sources(sources)

        def decide(state: State) -> Event | None:
            held = state.part(WORK).files.get(path)
            return None if held is not None and held[1] == said else FileRead(cited, path, said.lines, said.size_bytes)

        asked = ("note_file", path, said.lines, said.size_bytes)
        self._note(decide, asked, expected=expected, request_id=request_id)

    def note_finding(
        self, text: str, *, expected: object = ANY, request_id: str | None = None, sources: Sequence[Any] = ()
    ) -> None:
        """Remember what was found out; the same text again appends nothing."""
        text = checks.text(text, "text")
        cited = self._door.sources(sources)

        def decide(state: State) -> Event | None:
            return None if text in state.part(WORK).findings else FindingNoted(cited, text)

        self._note(decide, ("note_finding", text), expected=expected, request_id=request_id)

    def record_call(
        self,
        name: str,
        arguments: object,
        result: object,
        *,
        outcome: str = "ok",
        call_id: str = "",
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sequence[Any] = (),
    ) -> None:
        """Record a call of a tool: its arguments and its result, JSON values both."""
        said = (
            checks.text(call_id, "call_id", NAME_BYTES_MAX, "NAME_BYTES_MAX"),
            checks.key(name, "name"),
            _json(arguments, "arguments"),
            _json(result, "result"),
            checks.text(outcome, "outcome", NAME_BYTES_MAX, "NAME_BYTES_MAX"),
        )
        event = ToolExecuted(self._door.sources(sources), *said)
        self._note(event, ("record_call", *said), expected=expected, request_id=request_id)

    def record_extraction(
        self,
        provider: str,
        ids: Sequence[str],
        dropped: Sequence[str],
        *,
        seq: int,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sequence[Any] = (),
    ) -> None:
        """Record that a model read the session up to a seq: which memories were made of it, and why others were not."""
        said = (
            checks.integer(seq, "seq", 0, self._door.engine.head, "the head"),
            tuple(checks.text(memory_id, "an id") for memory_id in ids),
            checks.name(provider, "provider"),
            tuple(checks.text(reason, "a reason") for reason in dropped),
        )
        event = MemoriesExtracted(self._door.sources(sources), *said)
        self._note(event, ("record_extraction", *said), expected=expected, request_id=request_id)

    def provenance(self, *, opens: bool = True) -> tuple[Any, ...]:
        """Return what to cite for a write in the name of the conversation, so that an erasure of it reaches that.

        It is the newest message of the user and the calls that the model made since; where neither is an event of this
        very conversation, its first event is among them, which nothing erases alone. With ``opens`` a conversation
        without any event is opened.
        """
        door, key = self._door, self._door.key(self._stream)
        found = tuple(_led(door.read_lightly(self._stream, lambda state: state.part(WINDOW).live(), None)))
        if any(message.stamp.stream == self._stream for message in found):
            return found
        batch = batches.active(door.engine)
        if batch is not None and batch.pending.places.get(key):
            return (*found, Recorded(*batch.pending.noted(batch.pending.places[key][0])))
        with door.engine.state_lock:
            slot = door.engine.slot(key)
            first = 0 if slot is None else next(door.engine.streams.own_seqs(slot, 0, slot.seq), 0)
        if first or not opens or self._at is not None:
            return (*found, first) if first else found
        opening = self._opening
        noted = door.note(self._stream, lambda state: None if is_open(state) else opening, at=None, asked=())
        return self.provenance(opens=False) if noted is None else (Recorded(*noted),)

    def extracted_seq(self) -> int:
        """Return up to which seq a model has read the session, 0 while none has."""
        return self._read(lambda work: work.extracted)

    def now_ns(self) -> int:
        """Return the time that an event of the session would get now."""
        return self._door.engine.now_ns()

    def task(self) -> str:
        """Return what the session is about, empty while nobody has said it."""
        return self._read(lambda work: work.task)

    def files(self) -> list[ReadFile]:
        """Return the files that were read, the one read last at the end."""
        return self._read(lambda work: [file for _, file in work.files.values()])

    def findings(self) -> list[str]:
        """Return what was found out, in order."""
        return self._read(lambda work: list(work.findings))

    def calls(self) -> dict[str, int]:
        """Return how often each tool was called, by name, in order of their names."""
        return self._read(lambda work: dict(sorted(work.calls.items())))

    def summary(self, *, success: bool = True) -> SessionSummary:
        """Return what the session was: all that hooks are told at its end; it looks through the whole stream."""
        seen = self._heard()

        def query(state: State) -> SessionSummary:
            work = state.part(WORK)
            files = tuple((file.path, file.lines, file.size_bytes) for _, file in work.files.values())
            live = [message for message in state.part(WINDOW).live() if message.role == "user"]
            # What came along with a fork or an import, or is not committed yet, is no event of the stream.
            inherited = sum(message.event.id not in seen for message in live)
            calls = dict(sorted(work.calls.items()))
            session_id = self._stream.partition("/")[2]
            return SessionSummary(
                session_id, work.task, files, tuple(work.findings), calls, len(seen) + inherited, success
            )

        return self._door.read(self._stream, query, self._at)

    def _heard(self) -> set[str]:
        """Return the ids of all messages of the user in the stream, evicted ones too."""
        events = self._door.engine.events(self._door.key(self._stream), 0, self._at)
        return {event.id for event, _ in events if isinstance(event, MessageAppended) and event.role == "user"}

    def to_text(self) -> str:
        """Return the session's memory as a model is shown it, empty where there is none."""
        return rendered(self._door.read(self._stream, lambda state: state.part(WORK), self._at))


def _led(window: Sequence[Message]) -> Iterator[Message]:
    """Yield the newest message of the user, and before it the newest calls that the model made since."""
    is_called = False
    for message in reversed(window):
        if message.role == "user":
            yield message
            return
        if not is_called and message.event.calls is not None:
            is_called = True
            yield message


def rendered(work: Work) -> str:
    """Return a session's work as text, the same for the same work."""
    if not (work.task or work.files or work.findings or work.calls):
        return ""
    sections = [MARKER, *([f"Task: {work.task}"] if work.task else [])]
    if work.files:
        sections += ["Files read:", *(f"  - {file.path} ({file.lines} lines)" for _, file in work.files.values())]
    if work.findings:
        sections += ["Key findings:", *(f"  - {text}" for text in work.findings)]
    if work.calls:
        sections += ["Tool usage:", *(f"  - {name}: {count}" for name, count in sorted(work.calls.items()))]
    return "\n".join(sections)


def _json(value: object, what: str) -> bytes:
    checks.packed_json(value, what)
    return msgspec.json.encode(value)
