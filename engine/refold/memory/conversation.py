"""The conversation handle: its window and scratchpad, what it takes and shows, and its travels through time."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, cast

import msgspec

from refold import checks
from refold.engine.transaction import ANY, Decide, Noted
from refold.errors import InvalidInput, LimitExceeded
from refold.event import ConversationOpened, Event, Recorded, unpack_json
from refold.fold import State
from refold.memory import snapshot as memory_snapshot
from refold.memory.options import Door, Options, clearing, deleting, ending, ending_round, nanoseconds, seq_at, setting
from refold.memory.snapshot import Snapshot, steps
from refold.message import TOOL_ROLES, Message, MessageAppended, message_event
from refold.results import Receipt, Scratchpad
from refold.text import TokenCounter, countable
from refold.views.scratchpad import SCRATCH, NoteAdded, ScratchpadDeleted, ScratchpadSet
from refold.views.session import SESSION
from refold.views.window import WINDOW, WindowCleared, WindowResized

if TYPE_CHECKING:
    import datetime

    from refold.memory.handles import ScopedState, SessionMemory
    from refold.memory.snapshot import Step


# Composing what a conversation takes and shows: tokens counted, pins that fit, messages and scratchpads handed out.


def counted(counter: TokenCounter, content: Any, tool_calls: Any) -> int:
    """Return the tokens of a message whose parts are checked first: a counter sees only what can be stored."""
    if isinstance(content, str):
        checks.text(content, "content")
    elif content is not None:
        content = unpack_json(checks.packed_json(checks.json_objects(content, "content"), "content"))
    if tool_calls is not None:
        tool_calls = unpack_json(checks.packed_json(checks.json_objects(tool_calls, "tool_calls"), "tool_calls"))
    return checks.tokens(sum(checks.tokens(counter.count(text)) for text in countable(content, tool_calls)))


def fitting(event: MessageAppended, opening: ConversationOpened) -> Callable[[State], Event]:
    """Return the decision to append a message that is pinned, or that answers into a group that may be."""

    def decide(state: State) -> Event:
        window = state.part(WINDOW)
        budget = window.window_tokens if window.policy else opening.window_tokens
        held = window.pinned_with(event)
        if held > budget:
            raise LimitExceeded(
                f"pinned messages would hold {held} tokens, over this window's {budget}; "
                f"pin less, raise set_window_tokens, or clear_window() first"
            )
        return event

    return decide


def asked(event: MessageAppended, tokens: int | None, occurred_ns: int | None) -> tuple[Any, ...]:
    """Return what makes two appends the same request: all that was given, nothing that was made here."""
    given = (event.role, event.text, event.parts, event.name, event.calls, event.answers, event.pinned, event.extra)
    return ("append", *given, tokens, occurred_ns)


def handed_out(door: Door, noted: Noted) -> Message:
    """Return the message of a noted event; the engine fills in its stamp if its batch is still open."""
    event, stamp = noted
    assert isinstance(event, MessageAppended), event
    message = Message(event, stamp)
    if stamp.seq < 0:
        door.expect_stamp(message)
    return message


def window_counts(state: State, opening: ConversationOpened) -> tuple[int, int, int]:
    """Return how many messages are live, their tokens, and the budget: recorded, or to be recorded."""
    window = state.part(WINDOW)
    return len(window), window.tokens, window.window_tokens if window.policy else opening.window_tokens


def scratchpad(state: State) -> Scratchpad:
    """Return the scratchpad of a state, whole: keys, sorted, and notes."""
    scratch = state.part(SCRATCH)
    entries = scratch.entries.values
    return Scratchpad({key: entries[key] for key in sorted(entries)}, [text for _, text in scratch.notes])


# Messages as providers' APIs take them.


def openai(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as OpenAI chat messages; a field that was not given is absent, not null."""
    return [_openai_message(message) for message in messages]


def _openai_message(message: Message) -> dict[str, Any]:
    rendered: dict[str, Any] = {"role": message.role, "content": message.content}
    for field in ("name", "tool_calls", "tool_call_id"):
        value = getattr(message, field)
        if value is not None:
            rendered[field] = value
    return rendered


def anthropic(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as Anthropic messages: calls and results as content blocks, neighbours of one role joined.

    System and developer messages are left out; that API takes them as ``system=``. So are messages without content,
    which it refuses.
    """
    rendered: list[dict[str, Any]] = []
    for message in messages:
        if message.role in ("system", "developer"):
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _result_block(message) if message.role in TOOL_ROLES else _blocks(message)
        if not blocks:
            continue
        if rendered and rendered[-1]["role"] == role:
            rendered[-1]["content"].extend(blocks)
        else:
            rendered.append({"role": role, "content": blocks})
    return rendered


def _blocks(message: Message) -> list[dict[str, Any]]:
    content = message.content
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) and content else list(content or [])
    return [*blocks, *(_use_block(call) for call in message.tool_calls or ())]


def _use_block(call: dict[str, Any]) -> dict[str, Any]:
    given = call.get("function", call)
    function = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    return {
        "type": "tool_use",
        "id": call.get("id", ""),
        "name": function.get("name", ""),
        "input": _parsed(function.get("arguments", {})),
    }


def _parsed(arguments: Any) -> Any:
    """Return a call's arguments as an object; text that is no JSON object is handed on under ``arguments``."""
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments or "{}")
        except msgspec.DecodeError:
            return {"arguments": arguments}
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {"arguments": arguments}


def _result_block(message: Message) -> list[dict[str, Any]]:
    return [
        {
            "type": "tool_result",
            "tool_use_id": message.tool_call_id or "",
            "content": message.content if message.content is not None else "",
        }
    ]


FORMATS: Final[dict[str, Callable[[Sequence[Message]], list[dict[str, Any]]]]] = {
    "anthropic": anthropic,
    "openai": openai,
}


def rendered(form: object, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages in the form that a provider's API takes; ``InvalidInput`` for a form that is not known."""
    if not isinstance(form, str) or form not in FORMATS:
        raise InvalidInput(f"format is {checks.shown(form)}; give one of {', '.join(sorted(FORMATS))}")
    return FORMATS[form](messages)


# What a caller claims of a conversation when asking for its handle: a project, a budget.


class Claims(NamedTuple):
    """The values that were given explicitly; ``None`` claims nothing."""

    project: str | None
    window_tokens: int | None

    def check(self, door: Door, stream: str, at: int | None) -> None:
        """Raise ``InvalidInput`` if the conversation was opened with other values.

        Opening a handle, and an append through it, count as no read of the state by an open batch.
        """
        known, budget = door.read_lightly(
            stream, lambda state: (state.part(SESSION), state.part(WINDOW).window_tokens), at
        )
        if not known.opened:
            return
        if self.project is not None and self.project != known.project:
            raise InvalidInput(
                f"{stream} belongs to project {known.project!r}, not {self.project!r}; leave project= out"
            )
        if self.window_tokens is not None and self.window_tokens != budget:
            asked = f"not {self.window_tokens}; use set_window_tokens to change it"
            raise InvalidInput(f"{stream} has a budget of {budget} tokens, {asked}")


def claiming(
    door: Door, conversation_id: object, project: str | None, window_tokens: int | None
) -> tuple[ConversationOpened, Claims | None]:
    """Return the event that would open a conversation, and what a caller claims of it; ``None`` for nothing."""
    checks.name(conversation_id, "conversation_id")
    if project is not None:
        checks.name(project, "project")
    if window_tokens is not None:
        checks.window_tokens(window_tokens)
    claims = None if project is None and window_tokens is None else Claims(project, window_tokens)
    return door.opening(project, window_tokens), claims


T = TypeVar("T")


class Conversation:
    """A handle on one conversation; it holds no state, and nothing is written before the first mutation.

    >>> from refold import Memory
    >>> chat = Memory().conversation("chat-42")
    >>> chat.append("user", "Hello!").tokens
    2
    """

    __slots__ = ("_at", "_claims", "_door", "_opening", "_stream", "id")

    def __init__(
        self,
        door: Door,
        conversation_id: str,
        opening: ConversationOpened,
        at: int | None,
        claims: Claims | None = None,
    ) -> None:
        self.id = conversation_id
        self._door = door
        self._stream = f"conversation/{conversation_id}"
        self._opening = opening
        self._at = at
        self._claims = claims
        if claims is not None:
            claims.check(door, self._stream, at)

    def __repr__(self) -> str:
        """Return the handle with its counts."""
        frozen = "" if self._at is None else f", at={self._at}"
        return f"Conversation({self.id!r}{frozen}, {self._door.counts(self._shown)})"

    def _shown(self) -> str:
        read = self._door.read_written  # Past an open batch: showing a handle is no read of the state.
        counts = read(self._stream, lambda state: window_counts(state, self._opening), self._at)
        messages, tokens, budget = counts
        return f"messages={messages}, tokens={tokens}/{budget}"

    def _read(self, query: Callable[[State], T]) -> T:
        return self._door.read(self._stream, query, self._at)

    def _note(self, make: Event | Decide, asked: tuple[Any, ...], **options: Any) -> Noted | None:
        self._settle_claims()
        return self._door.note(self._stream, make, at=self._at, asked=asked, opening=self._opening, **options)

    def _settle_claims(self) -> None:
        """Check once more, at the first mutation, what was claimed: somebody else may have opened it since."""
        if self._claims is not None:
            self._claims.check(self._door, self._stream, self._at)
            self._claims = None

    @property
    def place(self) -> tuple[str, int]:
        """The conversation's stream and the seq at which the handle stands: what a diff compares."""
        return self._stream, self._door.engine.reader.current_head() if self._at is None else self._at

    # The window.

    def append(
        self,
        role: str,
        content: str | list[dict[str, Any]] | None,
        *,
        tokens: int | None = None,
        name: str | None = None,
        tool_calls: list[dict[str, Any]] | None = None,
        tool_call_id: str | None = None,
        pinned: bool = False,
        metadata: dict[str, Any] | None = None,
        occurred: "int | datetime.datetime | None" = None,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sequence[Any] = (),
    ) -> Message:
        """Append a message and return it; the oldest groups leave the window if it no longer fits.

        ``tokens=None`` counts with the memory's token counter, and the count is recorded. ``occurred`` is when it
        happened (nanoseconds or an aware datetime). Raises ``InvalidInput`` for a wrong type or role,
        ``LimitExceeded`` when pinned messages alone would exceed the budget, ``WrongVersion`` when ``expected`` fails.

        >>> chat.append("user", "Hello!", tokens=3).role
        'user'
        """
        self._settle_claims()
        door = self._door
        event = message_event(
            door.sources(sources),
            door.engine.reader.new_id(),
            role,
            content,
            counted(door.counter, content, tool_calls) if tokens is None else checks.tokens(tokens),
            checks.flag(pinned, "pinned"),
            name,
            tool_calls,
            tool_call_id,
            metadata,
        )
        occurred_ns = None if occurred is None else nanoseconds(occurred, "occurred")
        is_plain = not pinned and event.answers is None
        if is_plain and request_id is None and expected == ANY:
            taken = door.take(self._stream, event, self._at, occurred_ns)
            if taken is not None:
                return taken
        noted = door.note(
            self._stream,
            event if is_plain else fitting(event, self._opening),
            at=self._at,
            asked=() if request_id is None else asked(event, tokens, occurred_ns),
            opening=self._opening,
            occurred_ns=occurred_ns,
            expected=expected,
            request_id=request_id,
        )
        assert noted is not None, "an append always appends"
        return handed_out(door, noted)

    def window(self, last: int | None = None) -> list[Message]:
        """Return the live messages, oldest first, as a new list; ``last`` keeps only the newest ones, 0 none.

        >>> [message.content for message in chat.window(last=1)]
        ['Hello!']
        """
        if last is None:
            return self._read(lambda state: state.part(WINDOW).live())
        wanted = checks.count(last, "last")
        messages = self.window()
        return messages[max(len(messages) - wanted, 0) :]

    def messages(self, format: Literal["openai", "anthropic"] = "openai") -> list[dict[str, Any]]:  # noqa: A002 - the word its users say
        """Return the window as dicts for a provider's API; fields that were not given are absent.

        In ``"anthropic"`` form, system and developer messages are left out: that API takes them as ``system=``.
        """
        return rendered(format, self.window())

    def token_count(self) -> int:
        """Return the tokens of the live messages, a running sum."""
        return self._read(lambda state: state.part(WINDOW).tokens)

    @property
    def window_tokens(self) -> int:
        """The token budget of the window: what was recorded, or what the first mutation would record."""
        return self._read(lambda state: window_counts(state, self._opening)[2])

    @property
    def project(self) -> str | None:
        """The project that the conversation belongs to, or would be opened in."""
        return self._read(lambda state: memory_snapshot.project_of(state, self._opening))

    @property
    def version(self) -> int:
        """The version of the conversation's stream: what ``expected`` compares with; 0 before the first mutation."""
        return memory_snapshot.version(self._door, self._stream, self._at)

    def set_window_tokens(
        self, window_tokens: int, *, expected: object = ANY, request_id: str | None = None, sources: Sequence[Any] = ()
    ) -> None:
        """Change the token budget; what no longer fits is evicted at that seq."""
        window_tokens = checks.window_tokens(window_tokens)
        cited = self._door.sources(sources)

        def decide(state: State) -> Event | None:
            window = state.part(WINDOW)
            if window.policy and window.window_tokens == window_tokens:
                return None
            if window.pinned_tokens > window_tokens:
                raise LimitExceeded(
                    f"pinned messages hold {window.pinned_tokens} tokens, over the asked-for {window_tokens}; "
                    f"give at least that many, or clear_window() first"
                )
            return WindowResized(cited, window_tokens)

        self._note(decide, ("set_window_tokens", window_tokens), expected=expected, request_id=request_id)

    def clear_window(
        self, *, expected: object = ANY, request_id: str | None = None, sources: Sequence[Any] = ()
    ) -> None:
        """Empty the window, pinned messages too; the log keeps them."""
        cited = self._door.sources(sources)
        self._note(
            lambda state: WindowCleared(cited) if len(state.part(WINDOW)) else None,
            ("clear_window",),
            expected=expected,
            request_id=request_id,
        )

    # The scratchpad.

    def set(
        self,
        key: str,
        value: str,
        *,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sequence[Any] = (),
    ) -> None:
        """Set a key of the scratchpad; the value is a str."""
        key, value = checks.key(key), checks.text(value, "value")
        cited = self._door.sources(sources)

        decide = setting(
            lambda state: state.part(SCRATCH).entries,
            key,
            value,
            lambda prior, place: ScratchpadSet(cited, prior, place, key, value),
        )
        self._note(decide, ("set", key, value), expected=expected, request_id=request_id)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key of the scratchpad, or ``default``."""
        checks.key(key)
        return self._read(lambda state: state.part(SCRATCH).entries.values.get(key, default))

    def delete(
        self, key: str, *, expected: object = ANY, request_id: str | None = None, sources: Sequence[Any] = ()
    ) -> bool:
        """Remove a key of the scratchpad; return whether it was there."""
        key = checks.key(key)
        cited = self._door.sources(sources)

        decide = deleting(
            lambda state: state.part(SCRATCH).entries,
            key,
            lambda prior, place: ScratchpadDeleted(cited, prior, place, key),
        )
        return self._note(decide, ("delete", key), expected=expected, request_id=request_id) is not None

    def keys(self) -> list[str]:
        """Return the keys of the scratchpad, sorted."""
        return self._read(lambda state: sorted(state.part(SCRATCH).entries.values))

    def note(
        self, text: str, *, expected: object = ANY, request_id: str | None = None, sources: Sequence[Any] = ()
    ) -> None:
        """Add a free-form note to the scratchpad."""
        text = checks.text(text, "text")
        event = NoteAdded(self._door.sources(sources), text)
        self._note(event, ("note", text), expected=expected, request_id=request_id)

    def notes(self) -> list[str]:
        """Return the notes of the scratchpad, oldest first."""
        return self._read(lambda state: [text for _, text in state.part(SCRATCH).notes])

    def scratchpad(self) -> Scratchpad:
        """Return the whole scratchpad: keys, sorted, and notes."""
        return self._read(scratchpad)

    def clear(self, *, expected: object = ANY, request_id: str | None = None, sources: Sequence[Any] = ()) -> None:
        """Empty the scratchpad."""
        decide = clearing(self._door.sources(sources))
        self._note(decide, ("clear",), expected=expected, request_id=request_id)

    # State scopes.

    @property
    def state(self) -> "ScopedState":
        """The JSON values under ``temp:``, ``session:`` and ``project:`` keys, as a mapping."""
        from refold.memory.handles import ScopedState  # noqa: PLC0415 - loaded only by those who ask

        return ScopedState(self._door, self._stream, self._opening, self.project, self._at)

    @property
    def session(self) -> "SessionMemory":
        """What the session has done so far: task, files, findings, calls of tools."""
        from refold.memory.handles import SessionMemory  # noqa: PLC0415 - as above

        return SessionMemory(self._door, self._stream, self._opening, self._at)

    def end_round(self, *, expected: object = ANY, request_id: str | None = None, sources: Sequence[Any] = ()) -> None:
        """Drop the temporary state: a tool round is over."""
        decide = ending_round(self._door.sources(sources))
        self._note(decide, ("end_round",), expected=expected, request_id=request_id)

    def end(self, *, expected: object = ANY, request_id: str | None = None, sources: Sequence[Any] = ()) -> None:
        """Drop scratchpad and temporary state: the conversation is over; the window stays readable."""
        decide = ending(self._door.sources(sources))
        self._note(decide, ("end",), expected=expected, request_id=request_id)

    def erase(self, *, derived: str = "erase", forks: str = "refuse") -> Receipt:
        """Erase the bytes of all its events, and its name; return what was reached, and what no store can reach.

        What names it or was derived from it goes too, unless ``derived="keep"``; ``forks="erase"`` takes along what was
        forked from it, which else raises ``InvalidInput``. ``StoreBusy`` while another handle has the store open.
        """
        from refold.memory import store  # noqa: PLC0415 - loaded only by those who erase

        return store.erase_conversation(self._door, self._stream, self._at, derived, forks)

    # Time.

    def events(self, after: int = 0) -> Iterator[Recorded]:
        """Return the conversation's events with a seq greater than ``after``, each with its stamp."""
        checks.count(after, "after")
        return self._door.engine.reader.events(self._door.key(self._stream), after, self._at)

    def at(self, at: "int | datetime.datetime") -> "Conversation":
        """Return the conversation as it was at a seq or an aware datetime; mutating it raises ``ReadOnly``."""
        seq = seq_at(self._door.engine, at, self._at)
        return Conversation(self._door, self.id, self._opening, seq)

    def snapshot(
        self,
        name: str | None = None,
        *,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sequence[Any] = (),
    ) -> Snapshot:
        """Return a pointer to the present state; a named one is recorded and kept, an unnamed one writes nothing.

        A named one takes ``expected``, ``request_id`` and ``sources`` like every mutation.
        """
        options = Options(expected, request_id, sources)
        return memory_snapshot.snapshot(self._door, self._stream, name, self._at, options)

    def restore(
        self,
        snapshot: Snapshot | str,
        *,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sequence[Any] = (),
    ) -> None:
        """Go on from an earlier state, of this or another conversation or store; history stays.

        Raises ``NotFound`` for a name that does not exist, ``InvalidInput`` for a state that does not add up.
        """
        event = memory_snapshot.restoration(
            self._door, self._stream, self._opening, snapshot, self._door.sources(sources)
        )
        asked = ("restore", *([] if request_id is None else memory_snapshot.asked_for(self._door, snapshot)))
        self._note(event, asked, expected=expected, request_id=request_id)

    def fork(
        self,
        new_id: str,
        *,
        at: "int | datetime.datetime | None" = None,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sequence[Any] = (),
    ) -> "Conversation":
        """Begin another conversation from this one's state, now or at a seq; one event, nothing is copied."""
        self._door.refuse_frozen(self._stream, self._at)
        seq = None if at is None else seq_at(self._door.engine, at)
        places = (self._stream, f"conversation/{checks.name(new_id, 'new_id')}")
        memory_snapshot.fork(self._door, places, self._opening, seq, Options(expected, request_id, sources))
        return Conversation(self._door, new_id, self._door.opening(), None)

    def close(
        self, *, drop: bool = False, expected: object = ANY, request_id: str | None = None, sources: Sequence[Any] = ()
    ) -> None:
        """Be done with the handle; ``drop=True`` ends a fork for good: its state is empty from then on."""
        if checks.flag(drop, "drop"):
            decide = memory_snapshot.dropping(self._stream, self._door.sources(sources))
            self._note(decide, ("close", drop), expected=expected, request_id=request_id)

    def replay(self, *, after: int = 0, until: int | None = None) -> "Iterator[Step]":
        """Return the steps with ``after < seq <= until``: event, changes, evictions, and the states around each."""
        checks.count(after, "after")
        end = self._at if until is None else seq_at(self._door.engine, until, self._at)
        return steps(self._door.engine, self._door.key(self._stream), self.at, after, end)
