"""A conversation: its window and scratchpad, its state at any seq, its forks."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar, Unpack

import msgspec

from refold import checks
from refold.engine import batch as batches
from refold.engine.origin import BY_HOST, Origin
from refold.engine.transaction import Decide
from refold.errors import LimitExceeded, NotFound
from refold.event import ConversationEnded, ConversationOpened, Event, Recorded
from refold.fold import State
from refold.memory import snapshot as memory_snapshot
from refold.memory import wires
from refold.memory.conversation_handle import Claims, ConversationHandle
from refold.memory.core import Core, core_of
from refold.memory.options import MutationOptions, mutation, nanoseconds, parse_options, seq_at
from refold.memory.scratchpad import Scratchpad
from refold.memory.snapshot import Snapshot, bisect, steps
from refold.message import PROMPT_ROLES, ROLES, Message, MessageAppended, message_event
from refold.results import Receipt
from refold.views.ranks import IMPORTANCE_UNIT
from refold.views.scratchpad import SCRATCH
from refold.views.session import SESSION, EmbeddingChanged
from refold.views.state import STATE, RoundEnded
from refold.views.window import (
    NAMES,
    WINDOW,
    MessagePinned,
    MessageRated,
    MessageRemoved,
    MessagesRecalled,
    WindowCleared,
    WindowResized,
)

if TYPE_CHECKING:
    import datetime

    from refold.memory.handles import ScopedState, SessionMemory
    from refold.memory.snapshot import Step
    from refold.results import Hits

T = TypeVar("T")

_BY_ROLE: Final = dict.fromkeys(ROLES, BY_HOST) | {
    "user": Origin.of("user"),
    "assistant": Origin.of("assistant"),
    "tool": Origin.of("tool"),
    "function": Origin.of("tool"),
}
"""The origin of a message by its role, used unless the context says otherwise."""


def decide_pinned(event: MessageAppended, opening: ConversationOpened) -> Callable[[State], Event]:
    """Return the decision to append a message that is pinned, or that joins a group that may be pinned."""

    def decide(state: State) -> Event:
        window = state.part(WINDOW)
        budget = window.window_tokens if window.policy else opening.window_tokens
        tokens = window.pinned_tokens_after(event)
        if tokens > budget:
            raise LimitExceeded(
                f"pinned messages would hold {tokens} tokens, over this window's {budget}; "
                f"pin less, raise set_window_tokens, or clear_window() first"
            )
        return event

    return decide


def decide_prompt(event: MessageAppended, opening: ConversationOpened) -> Callable[[State], Event]:
    """Return the decision to append a system prompt, pinned if only prompts come before it and if it fits."""

    def decide(state: State) -> Event:
        window = state.part(WINDOW)
        budget = window.window_tokens if window.policy else opening.window_tokens
        is_first = all(message.role in PROMPT_ROLES for message in window.live())
        pinned = msgspec.structs.replace(event, pinned=True)
        return pinned if is_first and window.pinned_tokens_after(pinned) <= budget else event

    return decide


def window_counts(state: State, opening: ConversationOpened) -> tuple[int, int, int]:
    """Return the number of live messages, their tokens, and the budget, which is recorded or to be recorded."""
    window = state.part(WINDOW)
    return len(window), window.tokens, window.window_tokens if window.policy else opening.window_tokens


def _key(message: Message | str | int) -> str | int:
    if isinstance(message, Message):
        return message.id
    return checks.count(message, "message") if isinstance(message, int) else checks.text(message, "message")


class FormerMethod:
    """A method that has moved to the scratchpad; a ``__getattr__`` would slow down every attribute of a handle."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, handle: object, owner: type) -> NoReturn:
        text = f"{owner.__name__!r} object has no attribute {self._name!r}; use scratchpad.{self._name}"
        raise AttributeError(text, name=self._name, obj=handle)


_FORMER: Final = {name: FormerMethod(name) for name in ("set", "get", "delete", "keys", "note", "notes", "clear")}


def with_former_verbs(kind: type[T]) -> type[T]:
    """Make a class of handles say where its former methods are now, and leave these out of ``dir``."""

    def listing(handle: object) -> list[str]:
        return [name for name in object.__dir__(handle) if name not in _FORMER]

    for name, value in [("__dir__", listing), *_FORMER.items()]:
        setattr(kind, name, value)
    return kind


@with_former_verbs
class Conversation(ConversationHandle):
    """A handle on one conversation; it holds no state, and nothing is written before the first mutation.

    >>> from refold import Memory
    >>> chat = Memory().conversation("chat-42")
    >>> chat.append("user", "Hello!").tokens
    2
    """

    __slots__ = ("id",)

    def __init__(
        self,
        core: Core,
        conversation_id: str,
        opening: ConversationOpened,
        at: int | None,
        claims: Claims | None = None,
    ) -> None:
        super().__init__(core, f"conversation/{conversation_id}", at, opening, claims)
        self.id = conversation_id
        if claims is not None:
            claims.check(core, self._stream, at)

    def __repr__(self) -> str:
        frozen = "" if self._at is None else f", at={self._at}"
        return f"Conversation({self.id!r}{frozen}, {self._core.counts(self._counts)})"

    def _counts(self) -> str:
        read = self._core.read_written  # Bypasses an open batch: a repr is not a read of the state.
        messages, tokens, budget = read(self._stream, lambda state: window_counts(state, self._opening), self._at)
        return f"messages={messages}, tokens={tokens}/{budget}"

    @property
    def place(self) -> tuple[str, int]:
        """The conversation's stream and the seq of the handle, for ``diff``."""
        return self._stream, self._core.engine.reader.current_head() if self._at is None else self._at

    # The window.

    @mutation
    def append(
        self,
        role: str,
        content: str | list[dict[str, Any]] | None,
        *,
        tokens: int | None = None,
        name: str | None = None,
        tool_calls: list[dict[str, Any]] | None = None,
        tool_call_id: str | None = None,
        pinned: bool | None = None,
        metadata: dict[str, Any] | None = None,
        occurred: "int | datetime.datetime | None" = None,
        **options: Unpack[MutationOptions],
    ) -> Message:
        """Append a message and return it, evicting groups from the window if it exceeds its budget.

        ``tokens=None`` counts the texts, calls and text documents with the memory's token counter, and the count is
        recorded. An image, sound, video or other document counts ``refold.limits.MEDIA_TOKENS``, an estimate of 1,000,
        2,000, 16,000 and 5,000 tokens; give ``tokens`` if you know better. ``pinned=None`` pins a system prompt: a
        system or developer message that comes before all others and fits the window. ``occurred`` is the time when it
        happened (nanoseconds or an aware datetime). ``role`` is system, developer, user, assistant, tool or function.
        Messages leave in groups: tool calls leave with their answers. Raises ``InvalidInput`` for a wrong type or role
        and for a text block without a text, ``LimitExceeded`` if pinned messages alone would exceed the budget,
        ``WrongVersion`` if ``expected`` does not match.

        >>> chat.append("user", "Hello!", tokens=3).role
        'user'
        """
        core = self._core
        event = message_event(
            self._source_seqs(options) if options else (),
            core.new_id(),
            role,
            content,
            core.counter if tokens is None else checks.tokens(tokens),
            pinned is not None and checks.flag(pinned, "pinned"),
            name,
            tool_calls,
            tool_call_id,
            metadata,
        )
        origin, occurred_ns = _BY_ROLE[event.role], None
        call: tuple[Any, ...] = ()
        if occurred is not None:
            occurred_ns = nanoseconds(occurred, "occurred")
            origin = origin.at(occurred_ns)
        if options:
            # Two appends are the same request if the caller passed the same values; generated values do not count.
            call = ("append", event.role, event.text, event.parts, event.name, event.calls, event.answers)
            call += (event.pinned, event.extra, tokens, occurred_ns)
        make: Event | Decide = event
        if pinned is None and event.role in PROMPT_ROLES:
            make = decide_prompt(event, self._opening)
        elif pinned or event.answers is not None:
            make = decide_pinned(event, self._opening)
        noted = self._write(make, call, options, origin)
        assert noted is not None, "an append always appends"
        message = Message(*noted)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        if options and message.stamp.seq < 0 and message.event.sources:
            core.expect_event(message)
        return message

    def window(self, last: int | None = None) -> list[Message]:
        """Return the messages in the window, oldest first, as a new list; with ``last``, only that many of the newest.

        >>> [message.content for message in chat.window(last=1)]
        ['Hello!']
        """
        messages = self._read(lambda state: state.part(WINDOW).live())
        return messages if last is None else messages[max(len(messages) - checks.count(last, "last"), 0) :]

    def history(self, *, after: int = 0, before: int | None = None, limit: int | None = None) -> list[Message]:
        """Return every message that the conversation ever held, oldest first, in the window or not.

        Messages from before a fork and those of a restored state are included. ``after`` and ``before`` are seqs, both
        exclusive; ``limit`` keeps the newest. To page backwards, pass the first seq of a page as the next ``before``.

        >>> [message.content for message in chat.history(limit=1)]
        ['Hello!']
        """
        from refold.memory import messages  # noqa: PLC0415 - imported on first use

        return messages.history(self._core, self._stream, self._at, after, before, limit)

    def message(self, message: str | int) -> Message | None:
        """Return a message by its id or seq, in the window or not; ``None`` if the conversation never held it.

        A message that has left the window is found at once by its seq; by its id, the log is read backwards to it.
        """
        from refold.memory import messages  # noqa: PLC0415 - as above

        return messages.message(self._core, self._stream, self._at, _key(message))

    def messages(
        self,
        format: Literal["openai", "openai-responses", "anthropic", "gemini", "ollama"] = "openai",  # noqa: A002 - the word callers expect
    ) -> list[dict[str, Any]]:
        """Return the window as dicts that a provider's API takes; fields that were not given are absent.

        Results stand directly behind their calls, and messages without content are left out. The ``"anthropic"`` and
        ``"gemini"`` formats leave out system and developer messages, which those APIs take separately, and begin with
        the user. Where a format has no place for a content block, a document or a search result of text becomes that
        text, and a short text says what any other block was, such as an image by its URL for Ollama, or a block that no
        provider takes.

        >>> chat.messages("anthropic")[-1]["role"]
        'user'
        """
        return wires.render(format, self.window())

    def search(
        self, query: str, *, top_k: int = 10, roles: Sequence[str] | None = None, explain: bool = False
    ) -> "Hits":
        """Find messages by their words, including those that have left the window or are from before a fork.

        A hit's ``entry`` is a ``Message``; the best hits come first, and the newest first among ties. ``roles``
        restricts the search to some roles; ``explain`` adds the share of each word to a hit's ``parts``. Erased
        messages are not found. Raises ``InvalidInput`` for an empty query or an unknown role. The first search reads
        the conversation from the log, about 50,000 messages a second; later ones read only what was added since.

        >>> chat.search("hello", top_k=1)[0].entry.content
        'Hello!'
        """
        from refold.memory import messages  # noqa: PLC0415 - imported on first use

        return messages.search(self._core, self._stream, self._at, query, top_k=top_k, roles=roles, explain=explain)

    @mutation
    def recall(
        self, query: str, *, top_k: int = 10, roles: Sequence[str] | None = None, **options: Unpack[MutationOptions]
    ) -> "Hits":
        """Search messages as ``search`` does, and record the hits: ``"least-recalled"`` eviction keeps them longer.

        >>> chat.recall("hello", top_k=1)[0].entry.content
        'Hello!'
        """
        from refold.memory import messages  # noqa: PLC0415 - as above

        cited, request_id = self._source_seqs(options), parse_options(options).request_id
        request = ("recall", query, top_k, None if roles is None else list(roles))
        hits = messages.search(self._core, self._stream, self._at, query, top_k=top_k, roles=roles, explain=False)
        event = MessagesRecalled(
            cited, tuple(hit.entry.id for hit in hits), hits.query, tuple(hit.score for hit in hits)
        )
        noted = self._write(event, request, options)
        assert noted is not None, "a recall is always recorded"
        is_ours = noted[0] is event or request_id is None
        return hits if is_ours else messages.recall_hits(self._core, self._stream, noted)

    @mutation
    def rate(self, message: Message | str | int, importance: float, **options: Unpack[MutationOptions]) -> bool:
        """Give a message and its group an importance from 0 to 1, and return whether that is new.

        With ``"least-important"`` eviction, a group of importance 1 stays for one more budget of tokens, others for
        less; unrated groups have importance 0. Other policies only keep it, for ``memory.what_if(eviction=...)``. The
        importance is rounded to thousandths. Takes a message, its id or its seq; raises ``NotFound`` if it has left
        the window.
        """
        key, cited = _key(message), self._source_seqs(options)
        thousandths = round(checks.fraction(importance, "importance") * IMPORTANCE_UNIT)

        def decide(state: State) -> Event | None:
            live = self._live(state, key)
            is_known = state.part(WINDOW).importance(live.id) == thousandths
            return None if is_known else MessageRated(cited, live.id, thousandths)

        return self._write(decide, ("rate", key, thousandths), options) is not None

    @mutation
    def summarize(
        self, summarizer: "Callable[[str, list[Message]], str]", **options: Unpack[MutationOptions]
    ) -> Message | None:
        """Summarize what has left the window since the last summary, and put the new summary in its place.

        ``summarizer(previous, messages)`` gets the last summary, ``""`` at first, and the messages, without those that
        are not to be remembered, their answers, and what was retracted by then; the text it returns is recorded, and
        stays in the window as a pinned system message, which a context shows under a heading. It is called with no lock
        held. Returns ``None`` if nothing has left, or if meanwhile another summary was recorded or a message came back.
        What is retracted later stays in the summary. Erasing a message erases the summaries that it is part of. Raises
        ``InvalidInput`` unless the conversation was opened with ``eviction="summary"``, ``LimitExceeded`` if pinned
        messages would exceed the budget, and what the function raises.

        >>> from refold import Memory
        >>> brief = Memory().conversation("chat-45", window_tokens=8, eviction="summary")
        >>> _ = [brief.append("user", text, tokens=4) for text in ("Hi!", "I like tea.", "Bye!")]
        >>> brief.summarize(lambda previous, messages: "Said hi.").content, len(brief.window())
        ('Said hi.', 2)
        """
        from refold.memory import messages  # noqa: PLC0415 - as above

        batches.check_no_batch(self._core.engine, "a summary")
        self._core.refuse_frozen(self._stream, self._at)
        return messages.summarize(
            self, self._core, summarizer, parse_options(options), partial(self._write, options=options)
        )

    @property
    def eviction(self) -> str:
        """The policy that evicts messages from the window: recorded, or to be recorded by the first mutation."""
        return self._read(lambda state: NAMES[state.part(WINDOW).policy or self._opening.policy])

    def token_count(self) -> int:
        """Return the tokens of the messages in the window, without counting any message again."""
        return self._read(lambda state: state.part(WINDOW).tokens)

    @property
    def window_tokens(self) -> int:
        """The token budget of the window: recorded, or to be recorded by the first mutation."""
        return self._read(lambda state: window_counts(state, self._opening)[2])

    @property
    def project(self) -> str | None:
        """The project that the conversation belongs to, or would be opened in."""
        return self._read(lambda state: memory_snapshot.project_of(state, self._opening))

    @property
    def embed(self) -> bool:
        """Whether its messages are embedded: recorded, or to be recorded by the first mutation."""
        return self._read(lambda state: memory_snapshot.will_embed(state, self._opening))

    @property
    def version(self) -> int:
        """The version of the conversation's stream, compared with ``expected``; 0 before the first mutation."""
        return memory_snapshot.version(self._core, self._stream, self._at)

    @mutation
    def set_window_tokens(self, window_tokens: int, **options: Unpack[MutationOptions]) -> None:
        """Change the token budget of the window; messages that no longer fit leave at once.

        Raises ``LimitExceeded`` if pinned messages alone would exceed it.
        """
        window_tokens, cited = checks.window_tokens(window_tokens), self._source_seqs(options)

        def decide(state: State) -> Event | None:
            window = state.part(WINDOW)
            if window.policy and window.window_tokens == window_tokens:
                return None
            if window.pinned_tokens > window_tokens:
                raise LimitExceeded(
                    f"pinned messages hold {window.pinned_tokens} tokens, over the new budget of {window_tokens}; "
                    f"give at least that many, or clear_window() first"
                )
            return WindowResized(cited, window_tokens)

        self._write(decide, ("set_window_tokens", window_tokens), options)

    @mutation
    def set_embed(self, embed: bool, **options: Unpack[MutationOptions]) -> None:  # noqa: FBT001 - like the option
        """Embed the messages, earlier ones too, or stop embedding them; searches then go by words alone.

        Existing vectors are kept until they are erased, and used again if embedding is turned back on.
        """
        embed, cited = checks.flag(embed, "embed"), self._source_seqs(options)

        def decide(state: State) -> Event | None:
            is_known = memory_snapshot.will_embed(state, self._opening) is embed
            return None if is_known else EmbeddingChanged(cited, embed)

        if embed:
            from refold.memory.message_vectors import follow  # noqa: PLC0415 - imported on first use

            follow(self._core)
        self._write(decide, ("set_embed", embed), options)

    @mutation
    def clear_window(self, **options: Unpack[MutationOptions]) -> None:
        """Empty the window, pinned messages too; the log keeps them."""
        cited = self._source_seqs(options)
        self._write(lambda state: WindowCleared(cited) if len(state.part(WINDOW)) else None, ("clear_window",), options)

    @mutation
    def remove(self, message: Message | str | int, **options: Unpack[MutationOptions]) -> bool:
        """Take a message out of the window, and return whether it was there; the log keeps it.

        Takes a message, its id or its seq. A tool call leaves together with its answers, and an answer with its call:
        no provider accepts one without the other.
        """
        key, cited = _key(message), self._source_seqs(options)

        def decide(state: State) -> Event | None:
            live = state.part(WINDOW).find(key)
            return None if live is None else MessageRemoved(cited, live.id)

        return self._write(decide, ("remove", key), options) is not None

    @mutation
    def pop(self, **options: Unpack[MutationOptions]) -> Message | None:
        """Take the newest message out of the window and return it; ``None``, and no event, if the window is empty.

        Concurrent callers never get the same message. A tool call leaves together with its answers, as with ``remove``.

        >>> _ = chat.append("user", "Never mind.")
        >>> chat.pop().content
        'Never mind.'
        """
        from refold.memory import edits  # noqa: PLC0415 - imported on first use

        return edits.pop(self._core, self._stream, self._source_seqs(options), partial(self._write, options=options))

    @mutation
    def replace(
        self,
        message: Message | str | int,
        content: str | list[dict[str, Any]] | None,
        *,
        tokens: int | None = None,
        name: str | None = None,
        tool_calls: list[dict[str, Any]] | None = None,
        tool_call_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        **options: Unpack[MutationOptions],
    ) -> Message:
        """Replace the content of a message in the window, and return the new message; the log keeps the old content.

        The message keeps its id, seq, place, role and pin, a tool's answer its call, and the message its name unless
        another is given; all else that is not given is dropped. The same content again appends nothing. Groups are
        evicted if the message grew, and answers leave if it no longer makes their calls. Reads at an earlier seq show
        the old content. Takes a message, its id or its seq; raises ``NotFound`` if it has left the window,
        ``InvalidInput`` for an answer to another call, and the errors of ``append``.

        >>> message = chat.append("user", "Helo!")
        >>> chat.replace(message, "Hello!").content
        'Hello!'
        """
        from refold.memory import edits  # noqa: PLC0415 - as above

        new = edits.Content(content, tokens, name, tool_calls, tool_call_id, metadata)
        write, request_id = partial(self._write, options=options), parse_options(options).request_id
        cited = self._source_seqs(options)
        return edits.replace(self._core, self._stream, _key(message), new, cited, write, request_id)

    @mutation
    def pin(self, message: Message | str | int, **options: Unpack[MutationOptions]) -> bool:
        """Pin a message, with its group, in the window, and return whether that is new.

        Takes a message, its id or its seq; raises ``NotFound`` if it has left the window.
        """
        return self._pin(message, options, pinned=True)

    @mutation
    def unpin(self, message: Message | str | int, **options: Unpack[MutationOptions]) -> bool:
        """Let a message leave the window again, and return whether it was pinned.

        Takes a message, its id or its seq; raises ``NotFound`` if it has left the window. Another pinned message of its
        group still keeps it.
        """
        return self._pin(message, options, pinned=False)

    def _pin(self, message: Message | str | int, options: MutationOptions, *, pinned: bool) -> bool:
        key, cited = _key(message), self._source_seqs(options)

        def decide(state: State) -> Event | None:
            live = self._live(state, key)
            return None if live.pinned is pinned else MessagePinned(cited, live.id, pinned)

        return self._write(decide, ("pin" if pinned else "unpin", key), options) is not None

    def _live(self, state: State, key: str | int) -> Message:
        live = state.part(WINDOW).find(key)
        if live is None:
            raise NotFound(f"message {checks.brief(key)} is not in the window of {self.id}; see window()")
        return live

    # Scratchpad, state, session.

    @property
    def scratchpad(self) -> "Scratchpad":
        """The keys and notes of the conversation."""
        return Scratchpad(self._core, self._stream, self._at, self._opening, self._claims, self._since)

    @property
    def state(self) -> "ScopedState":
        """The JSON values under ``temp:``, ``session:`` and ``project:`` keys, as a mapping."""
        from refold.memory.handles import ScopedState  # noqa: PLC0415 - imported on first use

        # Looking up the project is no read: a batch can set a project's state while other writers append messages.
        project = self._core.look(
            self._stream, SESSION, lambda state: memory_snapshot.project_of(state, self._opening), self._at
        )
        return ScopedState(self._core, self._stream, self._at, self._opening, self._claims, self._since, project)

    @property
    def session(self) -> "SessionMemory":
        """The work of the session so far: its task, files, findings and tool calls."""
        from refold.memory.handles import SessionMemory  # noqa: PLC0415 - as above

        return SessionMemory(self._core, self._stream, self._at, self._opening, self._claims, self._since)

    @mutation
    def end_round(self, **options: Unpack[MutationOptions]) -> None:
        """End a tool round: drop the temporary state."""
        cited = self._source_seqs(options)
        self._write(lambda state: RoundEnded(cited) if state.part(STATE).has_temp else None, ("end_round",), options)

    @mutation
    def end(self, **options: Unpack[MutationOptions]) -> None:
        """End the conversation: drop its scratchpad and temporary state; the window stays readable."""
        event = ConversationEnded(self._source_seqs(options))

        def decide(state: State) -> Event | None:
            return None if state.part(SCRATCH).is_empty and not state.part(STATE).has_temp else event

        self._write(decide, ("end",), options)

    def erase(self, *, derived: str = "erase", forks: str = "refuse") -> Receipt:
        """Erase the bytes of all its events, and its name; return what was reached, and what no store can reach.

        Events that name it or were derived from it are erased too, and the board of its session, unless
        ``derived="keep"``. ``forks="erase"`` also erases everything forked from it; by default, forks raise
        ``InvalidInput``.
        """
        from refold.memory import store  # noqa: PLC0415 - imported on first use

        return store.erase_stream(self._core, self._stream, self._at, derived, forks)

    # Time.

    def events(self, after: int = 0) -> Iterator[Recorded]:
        """Return the conversation's events with a seq greater than ``after``, each with its stamp."""
        self._core.check_after(after, self._at)
        return self._core.engine.reader.events(self._core.key(self._stream), after, self._at)

    def at(self, at: "int | datetime.datetime") -> "Conversation":
        """Return the conversation as it was at a seq or an aware datetime; mutating it raises ``ReadOnly``.

        >>> first = chat.window()[0]
        >>> [message.content for message in chat.at(first.seq).window()]
        ['Hello!']
        """
        return Conversation(self._core, self.id, self._opening, seq_at(self._core.engine, at, self._at))

    @mutation
    def snapshot(self, name: str | None = None, **options: Unpack[MutationOptions]) -> Snapshot:
        """Take a pointer to the current state; a named snapshot is recorded and stays.

        >>> before = chat.snapshot()
        >>> _ = chat.append("user", "Forget it.")
        >>> chat.restore(before)
        >>> chat.window()[-1].content
        'Hello!'
        """
        return memory_snapshot.snapshot(self._core, self._stream, name, self._at, parse_options(options))

    @mutation
    def restore(
        self,
        snapshot: Snapshot | str,
        *,
        views: Collection[str] | None = None,
        keep_budget: bool = False,
        **options: Unpack[MutationOptions],
    ) -> None:
        """Continue from an earlier state of this or another conversation or store; history stays.

        Contexts, those of other conversations too, no longer show the messages that this takes back as earlier ones.
        The board of its session is restored in the same commit, as it was when the snapshot was taken; snapshot bytes
        from another store carry no board. ``views``, some of ``window``, ``scratchpad`` and ``state``, restores only
        these and leaves the board as it is; the notes of ``chat.session`` are restored with the window. With
        ``keep_budget``, the window keeps its own token budget and evicts what does not fit, in the same commit. Raises
        ``NotFound`` for an unknown name, ``InvalidInput`` for a state that is not consistent.
        """
        core, stream, request_id = self._core, self._stream, parse_options(options).request_id
        request = ("restore", *(memory_snapshot.request_of(core, snapshot) if request_id is not None else ()))
        request += ("keep_budget",) if checks.flag(keep_budget, "keep_budget") else ()
        target = memory_snapshot.get_snapshot(core, stream, snapshot) if isinstance(snapshot, str) else snapshot
        window_tokens = self.window_tokens
        if views is not None:
            self._restore_views(target, views, window_tokens if keep_budget else None, request, options)
            return
        decide = memory_snapshot.restoration(core, self._opening, target, self._source_seqs(options))
        board = memory_snapshot.board_restoration(core, stream, target)

        def go_on() -> None:
            if keep_budget:
                self.set_window_tokens(window_tokens, sources=options.get("sources", ()))
            if board is not None:
                core.write(memory_snapshot.board_of(stream), board, at=None, call=())

        self._write_with(decide, request, options, None if board is None and not keep_budget else go_on)

    def _restore_views(
        self,
        target: Snapshot,
        views: Collection[str],
        window_tokens: int | None,
        request: tuple[Any, ...],
        options: MutationOptions,
    ) -> None:
        """Restore some views in one commit; the others are set back to what they held before."""
        from refold.memory.pads import Pads, views_of  # noqa: PLC0415 - imported on first use

        core, stream, sources = self._core, self._stream, self._source_seqs(options)
        core.refuse_frozen(stream, self._at)
        wanted = views_of(views)
        decide = memory_snapshot.restoration(core, self._opening, target, sources, wanted)
        call, request_id = (*request, *wanted), parse_options(options).request_id
        if request_id is not None and core.find_answer(request_id, stream, call) is not None:
            return

        def write() -> None:
            before, then = core.read(stream, Pads.of, None), Pads.of_snapshot(core, target)
            self._write(decide if "window" in wanted else lambda _: None, call, options)
            if "window" in wanted and window_tokens is not None:
                self.set_window_tokens(window_tokens, sources=options.get("sources", ()))
            for view in ("scratchpad", "state"):
                now, target_pads = core.read(stream, Pads.of, None), then if view in wanted else before
                for make in target_pads.changes(view, now, sources):
                    self._write(make, (), {})

        memory_snapshot.write_whole(core, write, parse_options(options).expected)

    def _write_with(
        self, decide: Decide, request: tuple[Any, ...], options: MutationOptions, go_on: Callable[[], None] | None
    ) -> None:
        """Write a mutation, then call ``go_on`` unless the request was answered before, as one commit."""
        core, request_id = self._core, parse_options(options).request_id
        is_answered = request_id is not None and core.find_answer(request_id, self._stream, request) is not None
        if go_on is None or is_answered:
            self._write(decide, request, options)
            return

        def write() -> None:
            self._write(decide, request, options)
            go_on()

        memory_snapshot.write_whole(core, write, parse_options(options).expected)

    @mutation
    def fork(
        self,
        new_id: str,
        *,
        at: "int | datetime.datetime | None" = None,
        replace: bool = False,
        **options: Unpack[MutationOptions],
    ) -> "Conversation":
        """Start another conversation from this one's state, now or at a seq; one event, nothing is copied.

        With ``replace``, an existing conversation of that id is dropped first, in the same commit; without, it raises
        ``InvalidInput``, as it does for a seq before this conversation began.

        >>> _ = chat.fork("chat-43").append("user", "Another way.")
        >>> len(chat.fork("chat-44").window()) == len(chat.window())
        True
        """
        self._core.refuse_frozen(self._stream, self._at)
        seq = None if at is None else seq_at(self._core.engine, at)
        stream = f"conversation/{checks.name(new_id, 'new_id')}"
        replaces = checks.flag(replace, "replace")
        memory_snapshot.fork(self._core, self._stream, stream, self._opening, seq, replaces, parse_options(options))
        return Conversation(self._core, new_id, self._core.opening(), None)

    @mutation
    def close(self, *, drop: bool = False, **options: Unpack[MutationOptions]) -> None:
        """Release the handle; with ``drop=True``, end a fork for good, so that its state is empty from then on."""
        if checks.flag(drop, "drop"):
            self._drop(memory_snapshot.decide_close(self._stream, self._source_seqs(options)), ("close", drop), options)

    @mutation
    def drop(self, **options: Unpack[MutationOptions]) -> None:
        """Close the conversation for good: it and the board of its session become empty, and it is not listed.

        Its past stays readable with ``at``. Writes through an older handle raise ``Closed``, in other processes once
        they know of the drop; a new handle on the id starts the conversation again, empty. If there is nothing to drop,
        nothing is written.

        >>> from refold import Memory
        >>> memory = Memory()
        >>> _ = memory.conversation("chat-46").append("user", "Hello!")
        >>> memory.conversation("chat-46").drop()
        >>> memory.conversations(), memory.conversations(dropped=True)
        ([], ['chat-46'])
        """
        self._drop(memory_snapshot.drop(self._source_seqs(options)), ("drop",), options)

    def _drop(self, decide: Decide, call: tuple[Any, ...], options: MutationOptions) -> None:
        core, board = self._core, memory_snapshot.board_of(self._stream)

        def go_on() -> None:
            core.write(board, memory_snapshot.drop_board, at=None, call=())

        # Another machine may have begun the board; the batch then conflicts, as what it read is out of date.
        has_board = core.engine.shared is not None or core.version(board)
        self._write_with(decide, call, options, go_on if has_board else None)

    def replay(self, *, after: int = 0, until: int | None = None) -> "Iterator[Step]":
        """Return the steps with ``after < seq <= until``: event, changes, evictions, and the states before and after.

        >>> [step.tokens for step in chat.replay()][:2]
        [0, 2]
        """
        self._core.check_after(after, self._at)
        end = self._at if until is None else seq_at(self._core.engine, until, self._at, "until")
        return steps(self._core.engine, self._core.key(self._stream), self.at, after, end)

    def bisect(
        self,
        predicate: "Callable[[Conversation], object]",
        *,
        after: "int | datetime.datetime" = 0,
        until: "int | datetime.datetime | None" = None,
    ) -> Recorded | None:
        """Return the event that made ``predicate(chat)`` true, as ``Memory.bisect`` does, with frozen conversations.

        >>> chat.bisect(lambda chat: chat.token_count() > 0).stamp.version
        2
        """
        return bisect(self._core, self.at, predicate, after=after, until=until, at=self._at)


def check_own(core: Core, chat: Conversation) -> None:
    """Raise ``InvalidInput`` if a conversation belongs to another memory, or to another fork of it."""
    other, _ = core_of(chat)
    if (other.engine, other.branch) != (core.engine, core.branch):
        checks.invalid(f"conversation {chat.id!r} belongs to another memory, or to a fork; use the memory it came from")
