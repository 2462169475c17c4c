"""The message: its event, the frozen form that callers receive, and its digest.

Lists and dicts inside a message are stored as msgpack bytes and decoded at each access, so that nothing mutable leaves
the engine. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from types import NoneType
from typing import Any, ClassVar, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from refold import checks
from refold.errors import InvalidInput
from refold.event import (
    FLAG_ERASED,
    Event,
    ImportedBody,
    ImportedMessage,
    Recorded,
    Stamp,
    StateImported,
    decode_json,
    pack_json,
    unpack_json,
)
from refold.limits import MEDIA_TOKENS, VALUE_BYTES_MAX
from refold.text import TokenCounter, countable_texts, media_kinds, sha256

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool", "function"]
ROLES: Final[tuple[Role, ...]] = ("system", "developer", "user", "assistant", "tool", "function")
_ROLES: Final[dict[object, Role]] = {role: role for role in ROLES}
PROMPT_ROLES: Final = frozenset(("system", "developer"))
TOOL_ROLES: Final = frozenset(("tool", "function"))

INJECTED_KEY: Final = "refold_injected"
"""The metadata key of content that hooks put beside a message, which a context shows as theirs."""

ORIGINAL_KEY: Final = "original"
"""The metadata key of the user's own words, if a hook changed them."""

WITHHELD_KEY: Final = "refold_withheld"
"""The metadata key of a user's message that is not to be remembered, and of what answers it.

Nothing is learnt or shown of them elsewhere.
"""

HEARD_KEY: Final = "refold_heard"
"""The metadata key of a user's message that the hooks have got, if they added nothing to it."""

STOP_KEY: Final = "refold_stop_reason"
"""The metadata key of a reply's reason to end its turn, if a hook gave one."""


class MessageAppended(Event, frozen=True, tag=2):
    """A message was added to a conversation."""

    sentence: ClassVar[str] = "{role!s} wrote {text}"
    subject: ClassVar[tuple[str, str]] = ("message", "id")

    has_own_id: ClassVar[bool] = True
    given_ids: ClassVar[tuple[str, ...]] = ("call_ids", "answers")

    id: str
    role: Role
    tokens: int
    pinned: bool
    call_ids: tuple[str, ...]
    answers: str | None
    text: str | None = None
    parts: bytes | None = None
    name: str | None = None
    calls: bytes | None = None
    extra: bytes | None = None

    @property
    def content(self) -> str | list[dict[str, Any]] | None:
        """The content as it was given."""
        return self.text if self.parts is None else unpack_json(self.parts)

    @property
    def tool_calls(self) -> list[dict[str, Any]] | None:
        """The tool calls as they were given."""
        return None if self.calls is None else unpack_json(self.calls)

    @property
    def tool_call_id(self) -> str | None:
        """The id of the call that a tool message answers."""
        return self.answers if self.role in TOOL_ROLES else None

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The metadata as it was given."""
        return None if self.extra is None else unpack_json(self.extra)

    def check(self, *, is_erased: bool) -> None:  # noqa: ARG002 - an erased message has no body to check
        """Raise for JSON values that are not valid content, tool calls or metadata, and for too many tokens."""
        checks.tokens(self.tokens)
        check_body(self)

    def repeat(self, chat: Any) -> None:
        """Append the message to the other conversation, with the same number of tokens."""
        fields = ("tokens", "name", "tool_calls", "tool_call_id", "pinned", "metadata")
        chat.append(self.role, self.content, **{name: getattr(self, name) for name in fields})


class MessageReplaced(Event, frozen=True, tag=91):
    """A message in the window got new content; the message came by the event at ``origin``.

    ``place`` is its place among the messages of that event. Otherwise it stays the same: its id, its role, the call
    that it answers, and whether it is pinned.
    """

    sentence: ClassVar[str] = "message {id!s} of {role!s} became {text}"
    subject: ClassVar[tuple[str, str]] = ("message", "id")
    given_ids: ClassVar[tuple[str, ...]] = ("call_ids", "answers")

    id: str
    role: Role
    tokens: int
    call_ids: tuple[str, ...]
    answers: str | None
    origin: int
    place: int
    text: str | None = None
    parts: bytes | None = None
    name: str | None = None
    calls: bytes | None = None
    extra: bytes | None = None

    @property
    def content(self) -> str | list[dict[str, Any]] | None:
        """The content as it was given."""
        return self.text if self.parts is None else unpack_json(self.parts)

    def check(self, *, is_erased: bool) -> None:  # noqa: ARG002 - as for a message
        """Raise as for a message, and for a message that came by no event."""
        checks.tokens(self.tokens)
        if not self.origin:
            checks.invalid(f"message {self.id} was replaced, and came by no event")
        check_body(self)


def text_of(message: "MessageAppended | Message") -> str:
    """Return the text of a message, or the joined texts of its blocks; empty if there is no text."""
    content = message.content
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return content or ""


def is_withheld(message: "MessageAppended | Message") -> bool:
    """Return whether a message is not to be remembered."""
    event = message.event if isinstance(message, Message) else message
    return event.extra is not None and bool((event.metadata or {}).get(WITHHELD_KEY))


def check_body(body: MessageAppended | MessageReplaced | ImportedBody) -> None:
    """Raise ``InvalidInput`` or ``msgspec.DecodeError`` for a body that no verb could have written."""
    for what, packed in (("content", body.parts), ("tool_calls", body.calls)):
        if packed is not None:
            checks.packed_json(checks.json_objects(decode_json(packed), what), what)
    if body.extra is not None:
        checks.json_object(decode_json(body.extra), "metadata")


class Message(Struct, frozen=True, gc=False):
    """A message as it is in the log; lists and dicts are new objects at each access.

    ``seq`` is ``None`` inside a batch, until the block ends.
    """

    event: MessageAppended
    stamp: Stamp

    @property
    def id(self) -> str:
        """The message's id, made when it was appended."""
        return self.event.id

    @property
    def seq(self) -> int:
        """The message's position in the log, ``None`` while its batch is open."""
        return self.stamp.seq if self.stamp.seq > 0 else None  # type: ignore[return-value]

    @property
    def role(self) -> str:
        """One of system, developer, user, assistant, tool, function."""
        return self.event.role

    @property
    def content(self) -> str | list[dict[str, Any]] | None:
        """The content as it was given; ``None`` once erased."""
        return self.event.content

    @property
    def tokens(self) -> int:
        """The tokens counted or given when the message was appended."""
        return self.event.tokens

    @property
    def pinned(self) -> bool:
        """Whether the message, and with it its group, is exempt from eviction."""
        return self.event.pinned

    @property
    def name(self) -> str | None:
        """The name of the speaker or tool, if given."""
        return self.event.name

    @property
    def tool_calls(self) -> list[dict[str, Any]] | None:
        """The tool calls as they were given."""
        return self.event.tool_calls

    @property
    def tool_call_id(self) -> str | None:
        """The id of the call that a tool message answers."""
        return self.event.tool_call_id

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The metadata as it was given."""
        return self.event.metadata

    @property
    def time_ns(self) -> int:
        """When the message was acknowledged, in nanoseconds since 1970; ``None`` while its batch is open."""
        return self.stamp.time_ns if self.stamp.seq > 0 else None  # type: ignore[return-value]

    @property
    def occurred_ns(self) -> int:
        """When the message happened: as given by the caller, else ``time_ns``."""
        return self.stamp.occurred_ns if self.stamp.seq > 0 else None  # type: ignore[return-value]

    @property
    def erased(self) -> bool:
        """Whether the message's text was erased; its place, role and tokens stay."""
        return self.stamp.erased

    def __repr__(self) -> str:
        return f"Message(seq={self.seq}, role={self.role!r}, content={self.content!r}, tokens={self.tokens})"


_ENCODE = msgspec.msgpack.Encoder().encode


def message_digest(message: Message) -> bytes:
    """Return the SHA-256 of everything in a message, in 32 bytes."""
    stamp, event = message.stamp, message.event
    when = (stamp.seq, stamp.time_ns, stamp.occurred_ns, stamp.erased)
    return sha256(_ENCODE((when, msgspec.structs.astuple(event)[1:])))


def plain_message(message: Message) -> dict[str, Any]:
    """Return the fields of a message that have a value, as a dict."""
    fields = ("seq", "role", "content", "tokens", "pinned", "name", "tool_calls", "tool_call_id", "metadata", "erased")
    values = ((field, getattr(message, field)) for field in fields)
    return {field: value for field, value in values if value is not None and value is not False}


def imported_messages(event: StateImported, stamp: Stamp) -> Iterator[Message]:
    """Return the messages of an imported state, in order; if the state was erased, they have no content."""
    bodies = event.bodies or (ImportedBody(),) * len(event.messages)
    for skeleton, body in zip(event.messages, bodies, strict=True):
        yield _build_message(skeleton, body, stamp)


def messages_of(recorded: Recorded) -> Iterable[Message]:
    """Return the messages that an event added, or the one whose content it replaced; those of boards do not count."""
    event, stamp = recorded
    if isinstance(event, MessageAppended):
        return (Message(event, stamp),)
    if isinstance(event, MessageReplaced):
        return (Message(_with_content(event, pinned=False), stamp),)
    return imported_messages(event, stamp) if isinstance(event, StateImported) else ()


def replace_content(message: Message, event: MessageReplaced, stamp: Stamp) -> Message:
    """Return a message with the content that an event gave it; of its stamp, only the erased flag can change.

    If the flag stays the same, so does the stamp object, which an open batch updates later.
    """
    own = message.stamp
    if own.erased is not stamp.erased:
        own = msgspec.structs.replace(own, flags=own.flags ^ FLAG_ERASED)
    return Message(_with_content(event, pinned=message.pinned), own)


def current_messages(events: Iterable[Recorded]) -> dict[int, Message]:
    """Return the messages that events appended, by seq, with the contents that they have now; without erased ones."""
    messages = dict[int, Message]()
    for event, stamp in events:
        if isinstance(event, MessageAppended):
            messages[stamp.seq] = Message(event, stamp)
        elif isinstance(event, MessageReplaced) and event.origin in messages:
            messages[event.origin] = replace_content(messages[event.origin], event, stamp)
    return {seq: message for seq, message in messages.items() if not message.erased}


def with_preface(message: Message, text: str) -> Message:
    """Return a message whose content has a text in front, which is a block of its own if the content is blocks."""
    event, content = message.event, message.content
    if isinstance(content, list):
        event = msgspec.structs.replace(event, parts=pack_json([{"type": "text", "text": text}, *content]))
    else:
        event = msgspec.structs.replace(event, text=f"{text}\n{content or ''}")
    return Message(event, message.stamp)


def _with_content(event: MessageReplaced, *, pinned: bool) -> MessageAppended:
    structural = (event.id, event.role, event.tokens, pinned, event.call_ids, event.answers)
    return MessageAppended((), *structural, event.text, event.parts, event.name, event.calls, event.extra)


def _build_message(skeleton: ImportedMessage, body: ImportedBody, stamp: Stamp) -> Message:
    event = MessageAppended(
        (),
        skeleton.id,
        cast("Role", skeleton.role),
        skeleton.tokens,
        skeleton.pinned,
        skeleton.call_ids,
        skeleton.answers,
        body.text,
        body.parts,
        body.name,
        body.calls,
        body.extra,
    )
    when, flags = (skeleton.time_ns, skeleton.occurred_ns), stamp.flags | int(body.erased)
    return Message(event, Stamp(stamp.seq, stamp.stream, stamp.version, *when, flags=flags))


def message_event(
    sources: tuple[int, ...],
    message_id: str,
    role: object,
    content: object,
    tokens: int | TokenCounter,
    pinned: bool,  # noqa: FBT001 - positional, like every part of this row
    name: object,
    tool_calls: object,
    tool_call_id: object,
    metadata: object,
) -> MessageAppended:
    """Return the event of a message: its checked parts, the ids of the calls that it makes and answers, and its tokens.

    A counter as ``tokens`` counts the texts of the checked content, so it sees only content that can be stored; other
    blocks count ``MEDIA_TOKENS``. A number was checked before.
    """
    try:
        known = _ROLES[role]
    except (KeyError, TypeError):
        raise InvalidInput(f"role is {checks.brief(role)}; give one of {', '.join(ROLES)}") from None
    if type(content) is str and tool_calls is None and tool_call_id is None and name is None and metadata is None:
        # A shortcut through the code below for plain text, which is nearly every message.
        is_short = content.isascii() and len(content) <= VALUE_BYTES_MAX
        plain = content if is_short else checks.text(content, "content")
        size = tokens if isinstance(tokens, int) else checks.tokens(tokens.count(plain))
        return MessageAppended(sources, message_id, known, size, pinned, (), None, plain)
    text, parts = (content, None) if isinstance(content, str) or content is None else (None, content)
    if text is not None:
        text = checks.text(text, "content")
    blocks = None if parts is None else checks.json_objects(parts, "content", "a str, a list of dicts or None")
    if tool_calls is not None and role != "assistant":
        raise InvalidInput(f"a {role} message has tool_calls; only an assistant message makes calls")
    calls = None if tool_calls is None else checks.json_objects(tool_calls, "tool_calls")
    _check_texts(blocks or ())
    packed_blocks = None if blocks is None else checks.packed_json(blocks, "content")
    packed_calls = None if calls is None else checks.packed_json(calls, "tool_calls")
    if not isinstance(tokens, int):
        stored = text if packed_blocks is None else unpack_json(packed_blocks)
        texts = countable_texts(stored, None if packed_calls is None else unpack_json(packed_calls))
        size = sum(map(checks.tokens, map(tokens.count, texts)))
        tokens = size + sum(MEDIA_TOKENS[kind] for kind in media_kinds(stored))
    return MessageAppended(
        sources,
        message_id,
        known,
        tokens,
        pinned,
        () if calls is None and blocks is None else _call_ids(role, calls or [], blocks or []),
        _call_of_answer(role, tool_call_id, blocks),
        text,
        packed_blocks,
        None if name is None else checks.text(name, "name"),
        packed_calls,
        None if metadata is None else checks.json_object(metadata, "metadata"),
    )


_TEXT_BLOCKS: Final = ("text", "input_text", "output_text")


def _check_texts(blocks: Sequence[dict[str, Any]]) -> None:
    """Raise ``InvalidInput`` for a text block without a text, or an empty block: both are mistakes of the caller.

    Other blocks are kept as given: providers add types, frameworks have their own, and data sets leave media out.
    """
    for number, block in enumerate(blocks, 1):
        is_text = block.get("type") in _TEXT_BLOCKS
        if not block or (is_text and not isinstance(block.get("text", 0), (str, NoneType))):
            raise InvalidInput(
                f"block {number} of content is {checks.brief(block)}, which has no text; "
                f'give {{"type": "text", "text": "..."}}, or leave the block out'
            )


def _call_ids(role: object, calls: list[dict[str, Any]], blocks: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the ids of the calls that a message makes, in tool calls or in ``tool_use`` blocks of its content."""
    if role != "assistant":
        return ()
    used = [block for block in blocks if block.get("type") == "tool_use"]
    ids = (call.get("id") for call in [*calls, *used])
    return tuple(dict.fromkeys(checks.text(call_id, "a call's id") for call_id in ids if isinstance(call_id, str)))


def _call_of_answer(role: object, tool_call_id: object, blocks: list[dict[str, Any]] | None) -> str | None:
    """Return the id of the call that a message answers, as given or from a ``tool_result`` block of its content."""
    if tool_call_id is not None:
        if role not in TOOL_ROLES:
            raise InvalidInput(f"a {role} message has a tool_call_id; only a tool message answers a call")
        return checks.text(tool_call_id, "tool_call_id")
    if role == "assistant" or blocks is None:
        return None
    answers = (block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result")
    return next((checks.text(call_id, "tool_use_id") for call_id in answers if isinstance(call_id, str)), None)
