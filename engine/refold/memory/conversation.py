"""The conversation handle: window, scratchpad, state, and the travels of one conversation through time."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from refold import checks
from refold.engine.loader import Recorded
from refold.engine.pending import ANY, Decide, Noted
from refold.errors import LimitExceeded
from refold.event import ConversationOpened, Event
from refold.fold import State
from refold.memory import composing, travel
from refold.memory.claims import Claims
from refold.memory.deciding import clearing, deleting, ending, ending_round, setting
from refold.memory.door import Door, Options
from refold.memory.moments import nanoseconds, seq_at
from refold.memory.snapshot import Snapshot
from refold.message import Message, message_event
from refold.results import Receipt, Scratchpad
from refold.views.scratch import SCRATCH, NoteAdded, ScratchpadDeleted, ScratchpadSet
from refold.views.window import WINDOW, WindowCleared, WindowResized

if TYPE_CHECKING:
    import datetime

    from refold.memory.scopes import ScopedState
    from refold.memory.sessions import SessionMemory
    from refold.memory.stepping import Step

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
        counts = read(self._stream, lambda state: composing.counts(state, self._opening), self._at)
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
        return self._stream, self._door.engine.current_head() if self._at is None else self._at

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
            door.engine.new_id(),
            role,
            content,
            composing.counted(door.counter, content, tool_calls) if tokens is None else checks.tokens(tokens),
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
            event if is_plain else composing.fitting(event, self._opening),
            at=self._at,
            asked=() if request_id is None else composing.asked(event, tokens, occurred_ns),
            opening=self._opening,
            occurred_ns=occurred_ns,
            expected=expected,
            request_id=request_id,
        )
        assert noted is not None, "an append always appends"
        return composing.handed_out(door, noted)

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
        from refold.memory.formats import rendered  # noqa: PLC0415 - loaded only by those who ask

        return rendered(format, self.window())

    def token_count(self) -> int:
        """Return the tokens of the live messages, a running sum."""
        return self._read(lambda state: state.part(WINDOW).tokens)

    @property
    def window_tokens(self) -> int:
        """The token budget of the window: what was recorded, or what the first mutation would record."""
        return self._read(lambda state: composing.counts(state, self._opening)[2])

    @property
    def project(self) -> str | None:
        """The project that the conversation belongs to, or would be opened in."""
        return self._read(lambda state: composing.project_of(state, self._opening))

    @property
    def version(self) -> int:
        """The version of the conversation's stream: what ``expected`` compares with; 0 before the first mutation."""
        return travel.version(self._door, self._stream, self._at)

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
                message = (
                    f"pinned messages hold {window.pinned_tokens} tokens, over the asked-for {window_tokens}; "
                    f"give at least that many, or clear_window() first"
                )
                raise LimitExceeded(message)
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
        return self._read(composing.scratchpad)

    def clear(self, *, expected: object = ANY, request_id: str | None = None, sources: Sequence[Any] = ()) -> None:
        """Empty the scratchpad."""
        decide = clearing(self._door.sources(sources))
        self._note(decide, ("clear",), expected=expected, request_id=request_id)

    # State scopes.

    @property
    def state(self) -> "ScopedState":
        """The JSON values under ``temp:``, ``session:`` and ``project:`` keys, as a mapping."""
        from refold.memory.scopes import ScopedState  # noqa: PLC0415 - loaded only by those who ask

        return ScopedState(self._door, self._stream, self._opening, self.project, self._at)

    @property
    def session(self) -> "SessionMemory":
        """What the session has done so far: task, files, findings, calls of tools."""
        from refold.memory.sessions import SessionMemory  # noqa: PLC0415 - as above

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
        from refold.memory import erasing  # noqa: PLC0415 - loaded only by those who erase

        return erasing.erase_conversation(self._door, self._stream, self._at, derived, forks)

    # Time.

    def events(self, after: int = 0) -> Iterator[Recorded]:
        """Return the conversation's events with a seq greater than ``after``, each with its stamp."""
        checks.count(after, "after")
        return self._door.engine.events(self._door.key(self._stream), after, self._at)

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
        return travel.snapshot(self._door, self._stream, name, self._at, options)

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
        event = travel.restoration(self._door, self._stream, self._opening, snapshot, self._door.sources(sources))
        asked = ("restore", *([] if request_id is None else travel.asked_for(self._door, snapshot)))
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
        travel.fork(self._door, places, self._opening, seq, Options(expected, request_id, sources))
        return Conversation(self._door, new_id, self._door.opening(), None)

    def close(
        self, *, drop: bool = False, expected: object = ANY, request_id: str | None = None, sources: Sequence[Any] = ()
    ) -> None:
        """Be done with the handle; ``drop=True`` ends a fork for good: its state is empty from then on."""
        if checks.flag(drop, "drop"):
            decide = travel.dropping(self._stream, self._door.sources(sources))
            self._note(decide, ("close", drop), expected=expected, request_id=request_id)

    def replay(self, *, after: int = 0, until: int | None = None) -> "Iterator[Step]":
        """Return the steps with ``after < seq <= until``: event, changes, evictions, and the states around each."""
        checks.count(after, "after")
        end = self._at if until is None else seq_at(self._door.engine, until, self._at)
        from refold.memory.stepping import steps  # noqa: PLC0415 - as above

        return steps(self._door.engine, self._door.key(self._stream), self.at, after, end)
