"""Handles on the smaller views: profile, journal, state scopes, session memory, settings."""

import datetime
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast

import msgspec

from refold import checks
from refold.engine import batch as batches
from refold.engine.keys import KeyDecision, KeyMap, decide_delete, decide_set
from refold.engine.origin import Origin
from refold.engine.streams import STORE_STREAM
from refold.engine.transaction import Decide
from refold.errors import InvalidInput
from refold.event import ConversationOpened, Event, Recorded, Stamp, pack_json, unpack_json
from refold.fold import State, is_open
from refold.limits import NAME_BYTES_MAX
from refold.memory.conversation_handle import Claims, ConversationHandle
from refold.memory.core import Core, Handle
from refold.memory.options import MutationOptions, day_at, day_of, days_before, mutation, nanoseconds, parse_options
from refold.memory.turns import open_turn_of
from refold.message import Message, MessageAppended, current_messages, is_withheld, text_of
from refold.results import SessionSummary
from refold.views.base import KeyedValues
from refold.views.profile import JOURNAL, PROFILE, JournalAppended, Note, ProfileDeleted, ProfileSet
from refold.views.session import (
    WORK,
    FileRead,
    FindingNoted,
    MemoriesExtracted,
    ReadFile,
    TaskDescribed,
    ToolExecuted,
    Work,
)
from refold.views.state import PROJECT, SESSION, STATE, TEMP, StateDeleted, StateSet
from refold.views.store import (
    DEFAULTS,
    SWITCHES,
    SettingChanged,
    UsageCounted,
    check_setting,
    check_usage,
    default_of,
)
from refold.views.window import WINDOW

if TYPE_CHECKING:
    from refold.memory.reasons import Revision
    from refold.results import Receipt


FACTS: Final[KeyMap[str]] = KeyMap(PROFILE)


class Profile(Handle):
    """A handle on one profile: flat key/value facts, in the order in which they were first set.

    A key can have up to ``KEY_BYTES_MAX`` = 4,096 bytes of UTF-8, a value up to ``VALUE_BYTES_MAX`` = 16 MiB; more
    raises ``LimitExceeded``.

    >>> from refold import Memory
    >>> profile = Memory().profile()
    >>> profile.set("theme", "dark mode")
    >>> profile.items()
    [('theme', 'dark mode')]
    """

    __slots__ = ("name",)

    def __init__(self, core: Core, name: str, at: int | None) -> None:
        super().__init__(core, f"profile/{name}", at)
        self.name = name

    def __repr__(self) -> str:
        return f"Profile({self.name!r}, {self._core.counts(lambda: f'keys={len(self.items())}')})"

    @mutation
    def set(self, key: str, value: str, **options: Unpack[MutationOptions]) -> None:
        """Set a fact; an existing key keeps its place, and setting its current value appends nothing."""
        key, value, cited = checks.key(key), checks.text(value, "value"), self._source_seqs(options)
        decide = decide_set(FACTS, key, value, lambda prior, _: ProfileSet(cited, prior, key, value))
        self._write(decide, ("set", key, value), options)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a fact, or ``default``."""
        value = self._core.read_key(self._stream, FACTS, checks.key(key), self._at)
        return default if value is None else value

    @mutation
    def delete(self, key: str, **options: Unpack[MutationOptions]) -> bool:
        """Remove a fact and return whether it existed."""
        key, cited = checks.key(key), self._source_seqs(options)
        decide = decide_delete(FACTS, key, lambda prior, _: ProfileDeleted(cited, prior, key))
        return self._write(decide, ("delete", key), options) is not None

    def blame(self, key: str) -> "list[Revision]":
        """Return every value that a fact ever had, oldest first, with its writer and the turn that led to it."""
        from refold.memory.blame import revisions  # noqa: PLC0415 - imported on first use

        return revisions(self._core, self._stream, "profile", checks.key(key), self._at)

    def items(self) -> list[tuple[str, str]]:
        """Return the facts as (key, value), in the order in which the keys were first set."""
        return self._read(lambda state: list(state.part(PROFILE).entries.values.items()))

    def erase(self, *, derived: str = "erase", forks: str = "refuse") -> "Receipt":
        """Erase the bytes of all its events, and its name; return what was reached, and what no store can reach.

        Events derived from it are erased too, unless ``derived="keep"``.
        """
        from refold.memory import store  # noqa: PLC0415 - imported on first use

        return store.erase_stream(self._core, self._stream, self._at, derived, forks)


def today_of(core: Core, at: int | None) -> str:
    """Return the current day in the memory's time zone; for a frozen handle, the day of its moment."""
    return day_at(core.now_ns(at), core.timezone)


class Journal(Handle):
    """A handle on one journal: append-only notes by day.

    >>> from refold import Memory
    >>> journal = Memory().journal()
    >>> journal.append("Chose LMDB.", day="2026-11-21").text
    'Chose LMDB.'
    >>> [note.text for note in journal.day("2026-11-21")]
    ['Chose LMDB.']
    """

    __slots__ = ("name",)

    def __init__(self, core: Core, name: str, at: int | None) -> None:
        super().__init__(core, f"journal/{name}", at)
        self.name = name

    def __repr__(self) -> str:
        return f"Journal({self.name!r}, {self._core.counts(self._counts)})"

    def _counts(self) -> str:
        days = self._read(lambda state: list(map(len, state.part(JOURNAL).days.values())))
        return f"notes={sum(days)}, days={len(days)}"

    @mutation
    def append(
        self,
        text: str,
        *,
        day: "str | datetime.date | None" = None,
        occurred: "int | datetime.datetime | None" = None,
        **options: Unpack[MutationOptions],
    ) -> Note:
        """Append a note to a day and return the note; the default is the day it happened in the memory's time zone."""
        text = checks.text(text, "text")
        core = self._core
        occurred_ns = None if occurred is None else nanoseconds(occurred, "occurred")
        when_ns = core.engine.reader.now_ns() if occurred_ns is None else occurred_ns
        written = day_at(when_ns, core.timezone) if day is None else day_of(day, "day")
        event = JournalAppended(self._source_seqs(options), written, text)
        request = ("append", None if day is None else written, text, occurred_ns)
        noted = self._write(event, request, options, origin=Origin(occurred_ns))
        assert noted is not None, "a journal note always appends"
        written_event, stamp = noted
        assert isinstance(written_event, JournalAppended), written_event
        return core.date_note(Note(written_event.day, written_event.text, stamp.time_ns), stamp)

    def day(self, date: "str | datetime.date") -> list[Note]:
        """Return the notes of a day, in the order in which they were written."""
        checked = day_of(date, "date")
        return self._read(lambda state: [note for _, note in state.part(JOURNAL).days.get(checked, [])])

    def recent(self, days: int = 3) -> list[Note]:
        """Return the notes of the last ``days`` calendar days, today included, oldest first.

        Today is the current day in the memory's time zone; on a frozen handle, the day of its seq.
        """
        checks.count(days, "days")
        if not days:
            return []
        today = today_of(self._core, self._at)
        first = days_before(today, days - 1)
        return self._read(lambda state: state.part(JOURNAL).between(first, today))

    def erase(self, *, derived: str = "erase", forks: str = "refuse") -> "Receipt":
        """Erase the bytes of all its events, and its name; return what was reached, and what no store can reach.

        Events derived from it are erased too, unless ``derived="keep"``.
        """
        from refold.memory import store  # noqa: PLC0415 - imported on first use

        return store.erase_stream(self._core, self._stream, self._at, derived, forks)


# The state of a conversation as a mapping of JSON values, whose key prefixes determine their lifetimes.


VALUES: Final[KeyMap[bytes]] = KeyMap(STATE)


class ScopedState(ConversationHandle):
    """A mapping of JSON values, ``chat.state``; the prefix of a key determines the lifetime of its value.

    A ``temp:`` value lasts until ``chat.end_round()``, a ``session:`` value or one without a prefix as long as the
    conversation, and a ``project:`` value is shared by all conversations of the project. Only ``set`` and ``delete``
    take ``**options``.

    >>> from refold import Memory
    >>> chat = Memory().conversation("chat-42", project="acme")
    >>> chat.state["plan"] = ["read", "write"]
    >>> chat.state.set("project:language", "Python")
    >>> sorted(chat.state)
    ['plan', 'project:language']
    """

    __slots__ = ("_project",)

    def __init__(
        self,
        core: Core,
        stream: str,
        at: int | None,
        opening: ConversationOpened,
        claims: Claims | None,
        since: int,
        project: str | None,
    ) -> None:
        super().__init__(core, stream, at, opening, claims, since)
        self._project = project

    def _place(self, key: str) -> tuple[str, str]:
        key = checks.key(key)
        if not key.startswith(PROJECT):
            name = key.removeprefix(SESSION)
            if name != key and name.startswith((TEMP, SESSION, PROJECT)):
                raise InvalidInput(
                    f"key {checks.brief(key)} has two prefixes; give one of temp:, session:, project:, or none"
                )
            return self._stream, name
        if self._project is None:
            raise InvalidInput(f"{checks.brief(key)} needs a project; open the conversation with project=...")
        return f"project/{self._project}", key.removeprefix(PROJECT)

    def _check_place(self, key: str) -> tuple[str, str]:
        stream, name = self._place(key)
        if not name:
            raise InvalidInput(f"key {checks.brief(key)} is only a prefix; give it a name behind the colon")
        return stream, name

    def _change(self, stream: str, decide: Decide, request: tuple[Any, ...], options: MutationOptions) -> bool:
        if stream == self._stream:
            return self._write(decide, request, options) is not None
        expected, request_id, _ = parse_options(options)
        core, at = self._core, self._at
        return core.write(stream, decide, at=at, call=request, expected=expected, request_id=request_id) is not None

    @mutation
    def set(self, key: str, value: Any, **options: Unpack[MutationOptions]) -> None:
        """Set a key to a JSON value; setting its current value appends nothing."""
        stream, name = self._check_place(key)
        packed, cited = checks.packed_json(value, "value"), self._source_seqs(options)
        decide = decide_set(VALUES, name, packed, lambda prior, place: StateSet(cited, prior, place, name, packed))
        self._change(stream, decide, ("state.set", name, packed), options)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, a new object at each call, or ``default``."""
        stream, name = self._place(key)
        packed = self._core.read_key(stream, VALUES, name, self._at)
        return default if packed is None else unpack_json(packed)

    @mutation
    def delete(self, key: str, **options: Unpack[MutationOptions]) -> bool:
        """Remove a key and return whether it existed."""
        stream, name = self._place(key)
        cited = self._source_seqs(options)
        decide = decide_delete(VALUES, name, lambda prior, place: StateDeleted(cited, prior, place, name))
        return self._change(stream, decide, ("state.delete", name), options)

    def blame(self, key: str) -> "list[Revision]":
        """Return every value that a key ever had, oldest first, with its writer and the turn that led to it."""
        from refold.memory.blame import revisions  # noqa: PLC0415 - imported on first use

        stream, name = self._place(key)
        return revisions(self._core, stream, "state", name, self._at)

    def keys(self) -> list[str]:
        """Return the keys, session keys without their prefix, each scope sorted."""
        prefixes = {self._stream: ""} | ({} if self._project is None else {f"project/{self._project}": PROJECT})
        scopes = (
            (prefix, self._core.read(stream, lambda state: sorted(VALUES(state).values), self._at))
            for stream, prefix in prefixes.items()
        )
        return [prefix + key for prefix, keys in scopes for key in keys]

    def items(self) -> list[tuple[str, Any]]:
        """Return keys and values."""
        return [(key, self[key]) for key in self.keys()]

    def values(self) -> list[Any]:
        """Return the values in the order of ``keys``."""
        return [self[key] for key in self.keys()]

    def __getitem__(self, key: str) -> Any:
        missing = object()
        value = self.get(key, missing)
        if value is missing:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self.set(key, value)

    def __delitem__(self, key: str) -> None:
        if not self.delete(key):
            raise KeyError(key)

    def pop(self, key: str, *default: Any) -> Any:
        """Remove a key and return its value; if it is missing, return ``default`` or raise ``KeyError``.

        Of several writers at once, only one gets the value.
        """
        if len(default) > 1:
            raise TypeError(f"pop takes a key and at most one default, not {len(default)}")
        stream, name = self._place(key)
        found: list[bytes] = []

        def take(keyed: KeyedValues[bytes]) -> Event | None:
            prior, place = keyed.prior(name)
            found[:] = [keyed.values[name]] if prior else []
            return StateDeleted((), prior, place, name) if prior else None

        if self._change(stream, KeyDecision(VALUES, name, take), ("state.pop", name), {}):
            return unpack_json(found[0])
        if not default:
            raise KeyError(key)
        return default[0]

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, which is first set to ``default`` if it is missing.

        Several writers at once all get the same value.
        """
        stream, name = self._check_place(key)
        packed, found = checks.packed_json(default, "default"), list[bytes]()

        def put(keyed: KeyedValues[bytes]) -> Event | None:
            found[:] = [keyed.values.get(name, packed)]
            return None if name in keyed.values else StateSet((), *keyed.prior(name), name, packed)

        self._change(stream, KeyDecision(VALUES, name, put), ("state.setdefault", name, packed), {})
        return unpack_json(found[0])

    def update(self, /, *others: Mapping[str, Any], **values: Any) -> None:
        """Set every key of the other mappings, and every keyword argument."""
        for other in (*others, values):
            for key, value in other.items():
                self.set(key, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self.items()) == dict(cast("Mapping[str, Any]", other).items())

    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    def __contains__(self, key: object) -> bool:
        missing = object()
        return isinstance(key, str) and bool(key) and self.get(key, missing) is not missing

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __repr__(self) -> str:
        return f"ScopedState({self._stream!r}, {self._core.counts(lambda: f'keys={len(self)}')})"


# Registered, not derived: keys, items and values return lists of one moment, where a Mapping returns live views.
MutableMapping.register(ScopedState)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


T = TypeVar("T")

MARKER: Final = "[SESSION_MEMORY_V1]"
_COUNT_MAX: Final = 2**53
_SUMMARY_CHARS_MAX: Final = 1_000  # Characters kept of a message that becomes a session's task or outcome.


class SessionMemory(ConversationHandle):
    """A handle on the work of one conversation: its task, the files it read, its findings, its tool calls.

    >>> from refold import Memory
    >>> session = Memory().conversation("chat-42").session
    >>> session.note_finding("The tests need a clock.")
    >>> session.findings()
    ['The tests need a clock.']
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"SessionMemory({self._stream.partition('/')[2]!r}, {self._core.counts(self._counts)})"

    def _counts(self) -> str:
        work = self._core.read_written(self._stream, lambda state: state.part(WORK), self._at)
        return f"files={len(work.files)}, findings={len(work.findings)}, calls={sum(work.calls.values())}"

    def _look(self, query: Callable[[Work], T]) -> T:
        return self._read(lambda state: query(state.part(WORK)))

    def check_writable(self) -> None:
        """Raise ``ReadOnly`` if nothing can be recorded, because the handle is frozen or the memory is read-only."""
        self._core.refuse_frozen(self._stream, self._at)
        self._core.engine.reader.check_writable()

    @mutation
    def describe_task(self, text: str, **options: Unpack[MutationOptions]) -> None:
        """Set the session's task; the same text again appends nothing."""
        event = TaskDescribed(self._source_seqs(options), checks.text(text, "text"))
        self._write(
            lambda state: None if state.part(WORK).task == event.text else event, ("describe_task", event.text), options
        )

    @mutation
    def note_file(self, path: str, *, lines: int = 0, size_bytes: int = 0, **options: Unpack[MutationOptions]) -> None:
        """Record that a file was read; recording the same again appends nothing."""
        path = checks.key(path, "path")
        file = ReadFile(
            path,
            checks.integer(lines, "lines", 0, _COUNT_MAX, "the most lines"),
            checks.integer(size_bytes, "size_bytes", 0, _COUNT_MAX, "the most bytes"),
        )
        event = FileRead(self._source_seqs(options), path, file.lines, file.size_bytes)

        def decide(state: State) -> Event | None:
            known = state.part(WORK).files.get(path)
            return None if known is not None and known[1] == file else event

        self._write(decide, ("note_file", path, file.lines, file.size_bytes), options)

    @mutation
    def note_finding(self, text: str, **options: Unpack[MutationOptions]) -> None:
        """Record a finding; the same text again appends nothing."""
        event = FindingNoted(self._source_seqs(options), checks.text(text, "text"))
        self._write(
            lambda state: None if event.text in state.part(WORK).findings else event,
            ("note_finding", event.text),
            options,
        )

    @mutation
    def record_call(
        self,
        name: str,
        arguments: object,
        result: object,
        *,
        outcome: str = "ok",
        call_id: str = "",
        **options: Unpack[MutationOptions],
    ) -> Stamp:
        """Record a tool call with its arguments and its result, both JSON values, and return the stamp of the event.

        A message with the result should cite the record, so that erasing the record also erases the message.
        """
        fields = (
            checks.text(call_id, "call_id", NAME_BYTES_MAX, "NAME_BYTES_MAX"),
            checks.key(name, "name"),
            _json(arguments, "arguments"),
            _json(result, "result"),
            checks.text(outcome, "outcome", NAME_BYTES_MAX, "NAME_BYTES_MAX"),
        )
        recorded = self._write(ToolExecuted(self._source_seqs(options), *fields), ("record_call", *fields), options)
        assert recorded is not None, "a call always is an event"
        return recorded.stamp

    @mutation
    def record_extraction(
        self, provider: str, ids: Sequence[str], dropped: Sequence[str], *, seq: int, **options: Unpack[MutationOptions]
    ) -> None:
        """Record that a model read the session up to a seq: the memories made from it, and why others were not made."""
        fields = (
            self._core.engine.check_at_head(lambda head: checks.integer(seq, "seq", 0, head, "the head")),
            tuple(checks.text(memory_id, "an id") for memory_id in ids),
            checks.name(provider, "provider"),
            tuple(checks.text(reason, "a reason") for reason in dropped),
        )
        self._write(MemoriesExtracted(self._source_seqs(options), *fields), ("record_extraction", *fields), options)

    def provenance(self, *, opens: bool = True) -> tuple[Any, ...]:
        """Return the sources of a write for the conversation, so that erasing the conversation reaches that write.

        They are the newest user message and the newest tool calls of the model since. If neither is an event of this
        conversation itself, its first event is added, which is normally erased only with the whole conversation. With
        ``opens``, a conversation without events is opened.
        """
        core, key = self._core, self._core.key(self._stream)
        latest = tuple(_latest_turn(open_turn_of(core, self._stream, None).messages))
        if any(message.stamp.stream == self._stream for message in latest):
            return latest
        batch = batches.active_batch(core.engine)
        if batch is not None and batch.transaction.places.get(key):
            return (*latest, batch.transaction.recorded_event(batch.transaction.places[key][0]))
        with core.engine.reader.state_lock:
            slot = core.engine.reader.stream(key)
            first = 0 if slot is None else next(core.engine.reader.streams.own_seqs(slot, 0, slot.seq), 0)
        if first or not opens or self._at is not None:
            return (*latest, first) if first else latest
        opening = self._opening
        noted = core.write(self._stream, lambda state: None if is_open(state) else opening, at=None, call=())
        return self.provenance(opens=False) if noted is None else (Recorded(*noted),)

    def extracted_seq(self) -> int:
        """Return the seq up to which a model has read the session, or 0 if none has."""
        return self._look(lambda work: work.extracted)

    def now_ns(self) -> int:
        """Return the time, in nanoseconds, at which an event of the session would happen now."""
        return self._core.engine.reader.now_ns()

    def task(self) -> str:
        """Return the session's task; empty by default."""
        return self._look(lambda work: work.task)

    def files(self) -> list[ReadFile]:
        """Return the files that were read, the most recently read last."""
        return self._look(lambda work: [file for _, file in work.files.values()])

    def findings(self) -> list[str]:
        """Return the findings, in order."""
        return self._look(lambda work: list(work.findings))

    def calls(self) -> dict[str, int]:
        """Return the number of calls of each tool, sorted by the tool's name."""
        return self._look(lambda work: dict(sorted(work.calls.items())))

    def summary(self, *, success: bool = True) -> SessionSummary:
        """Summarise the session for the hooks at its end; reads the whole stream."""
        events = list(self._core.engine.reader.events(self._core.key(self._stream), 0, self._at))
        appended = [event for event, _ in events if isinstance(event, MessageAppended)]
        own = {event.id for event in appended}
        current = current_messages(events).values()

        def query(state: State) -> SessionSummary:
            work = state.part(WORK)
            files = tuple((file.path, file.lines, file.size_bytes) for _, file in work.files.values())
            # Messages from a fork or an import, and uncommitted ones, are not events of the stream.
            inherited = [message.event for message in state.part(WINDOW).live() if message.event.id not in own]
            messages = [*inherited, *(message.event for message in current)]
            messages = [event for event in messages if not is_withheld(event)]
            texts = {
                role: [text_of(event) for event in messages if event.role == role] for role in ("user", "assistant")
            }
            count = sum(event.role == "user" for event in (*appended, *inherited))
            calls, session_id = dict(sorted(work.calls.items())), self._stream.partition("/")[2]
            task = work.task or next(filter(str.strip, texts["user"]), "")[:_SUMMARY_CHARS_MAX]
            outcome = next(filter(None, reversed(texts["assistant"])), "")[:_SUMMARY_CHARS_MAX]
            return SessionSummary(session_id, task, files, tuple(work.findings), calls, count, success, outcome)

        return self._read(query)

    def to_text(self) -> str:
        """Return the session's memory as it is shown to a model, or an empty string if there is none."""
        return self._look(_format_work)


def _latest_turn(window: Sequence[Message]) -> Iterator[Message]:
    """Yield the newest message with tool calls since the newest user message, if any, then that user message."""
    is_called = False
    for message in reversed(window):
        if message.role == "user":
            yield message
            return
        if not is_called and message.event.calls is not None:
            is_called = True
            yield message


def _format_work(work: Work) -> str:
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


# Settings of a store, and usage counts.


class Settings(Handle):
    """A handle on the settings of a store: each has a default, and each change is an event.

    They are memory_enabled (show and make memories), memory_auto_extract (extract memories at the end of a session),
    memory_review_extracted (hold extracted memories for review), memory_max_injected (the most that are shown),
    messages_max_injected (the most that a search shows; a bound below the default also holds for a small history that
    would be shown whole), skills_enabled, skills_auto_generate (learn skills) and skills_max_injected_chars.

    ``memory.at`` shows their earlier values. A fork begins with the values of its parent, and restoring the whole
    memory leaves them as they are.

    >>> from refold import Memory
    >>> settings = Memory().settings
    >>> settings.set("memory_max_injected", 5)
    >>> settings.get("memory_max_injected"), settings.get("memory_enabled")
    (5, True)
    """

    __slots__ = ()

    def __init__(self, core: Core, at: int | None) -> None:
        super().__init__(core, STORE_STREAM, at)

    def __repr__(self) -> str:
        changed = {name: value for name, value in self.items() if value != DEFAULTS[name]}
        return f"Settings({changed})"

    def get(self, name: str) -> bool | int:
        """Return the value of a setting; raise ``InvalidInput`` for an unknown name."""
        default = default_of(name)
        return dict(self.items()).get(name, default)

    def blame(self, name: str) -> "list[Revision]":
        """Return every value that a setting was set to, oldest first, with its writer."""
        from refold.memory.blame import revisions  # noqa: PLC0415 - imported on first use

        default_of(name)
        return revisions(self._core, STORE_STREAM, "setting", name, self._at)

    def items(self) -> list[tuple[str, bool | int]]:
        """Return every setting as (name, value), always in the same order."""
        values = self._read(lambda state: dict(state.part(SWITCHES).values))
        return [(name, unpack_json(values[name]) if name in values else value) for name, value in DEFAULTS.items()]

    @mutation
    def set(self, name: str, value: bool | int, **options: Unpack[MutationOptions]) -> None:  # noqa: FBT001 - the value of a switch
        """Change a setting; its current value appends nothing, a value of another type raises ``InvalidInput``."""
        default, value = default_of(name), check_setting(name, value)
        cited, packed = self._source_seqs(options), pack_json(value)

        def decide(state: State) -> Event | None:
            known = state.part(SWITCHES).values.get(name, pack_json(default))
            return None if known == packed else SettingChanged(cited, name, packed)

        self._write(decide, ("settings.set", name, value), options)

    @mutation
    def count_usage(
        self,
        kind: str,
        count: int = 1,
        *,
        name: str = "",
        score: float = 0.0,
        conversation: str = "",
        project: str = "",
        **options: Unpack[MutationOptions],
    ) -> None:
        """Record that memories were extracted or injected, or a skill matched or used; a count of 0 appends nothing.

        ``kind`` is memory_extracted, memory_injected, skill_matched or skill_used. ``memory.stats().usage`` has the
        totals.
        """
        kind, counted, given = check_usage(kind, count, score)
        texts = [checks.text(text, what) for text, what in ((name, "name"), (conversation, "conversation"))]
        fields = (kind, counted, texts[0], given, texts[1], checks.text(project, "project"))
        event = UsageCounted(self._source_seqs(options), *fields)
        # Does not read the state: a batch must not conflict with other writers that count meanwhile.
        self._write(event if counted else lambda _: None, ("settings.count_usage", *fields), options)
