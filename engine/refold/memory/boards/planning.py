"""What each verb of a board plans: the event of what differs, or none."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from refold import checks
from refold.errors import InvalidInput, NotFound
from refold.event import Event, pack_json, unpack_json
from refold.memory.boards import parts
from refold.memory.boards.overlaying import Layers, Scope
from refold.memory.boards.parts import Given, JsonObject, iso
from refold.memory.boards.writing import Place, Plan
from refold.memory.conversation import Conversation
from refold.memory.door import Door
from refold.message import Message
from refold.views.board import (
    FIELDS,
    MESSAGES,
    MESSAGES_KEPT,
    BoardMessageAppended,
    Posted,
    changing,
    order_of,
)
from refold.views.window import WINDOW

_MICROSECOND_NS: Final = 1_000
_SORTED: Final = msgspec.msgpack.Encoder(order="deterministic").encode
_DEFAULTS: Final[dict[str, Any]] = {
    **dict.fromkeys((*FIELDS["session"], "working_history", "last_user_message"), ""),
    **{name: {"nodes": [], "edges": []} for name in FIELDS["project_structure"]},
    **{name: {} for name in ("node_context", "fetched_context", "messages_meta")},
    **{f"config.{name}": value for name, value in parts.SETTINGS.items()},
}
"""What a field says that nobody set."""


def setting(cited: tuple[int, ...], values: dict[str, Any]) -> Plan:
    """Return the plan to give fields their values; those that have them already are left out."""

    def plan(layers: Layers) -> Sequence[Event]:
        changed = {field: value for field, value in values.items() if not _says(layers, field, value)}
        return [changing(cited, changed)] if changed else []

    return plan


def _says(layers: Layers, field: str, value: Any) -> bool:
    """Return whether a field has a value already; the order of keys in objects says nothing."""
    if field == MESSAGES:
        held = [unpack_json(posted.packed) for posted in layers.layer(MESSAGES).messages if posted.packed]
        return held == [said for _, said in value["rows"]]
    return bool(_SORTED(layers.value(field, _DEFAULTS[field])) == _SORTED(value))


def session_fields(scope: Scope, given: dict[str, str]) -> dict[str, str]:
    """Return the fields to set of a session; ``InvalidInput`` for another one than the handle is on."""
    fixed = {"session_id": scope.session or "", "project_id": scope.project, "active_node_id": scope.node}
    for name, value in given.items():
        expected = fixed.get(name)
        if expected is not None and value != expected:
            message = (
                f"{name} is {checks.shown(value)}, and this board is of {checks.shown(expected)}; take another one "
                f"with memory.board(...)"
            )
            raise InvalidInput(message)
    return {f"session.{name}": value for name, value in given.items() if name != "session_id"}


def appending(cited: tuple[int, ...], given: Given, now_ns: int) -> Plan:
    """Return the plan to put a message on a board; one that is there already, by its id, appends nothing."""

    def plan(layers: Layers) -> Sequence[Event]:
        said, created_ns = given
        held = _held(layers, said["id"])
        if not said["created_at"]:
            created_ns = now_ns if held is None else held.created_ns
            said = said | {"created_at": iso(now_ns) if held is None else unpack_json(held.packed)["created_at"]}
        if held is not None and unpack_json(held.packed) == said:
            return []
        return [_posting(cited, said, created_ns)]

    return plan


def _held(layers: Layers, message_id: str) -> Posted | None:
    held = (posted for posted in layers.layer(MESSAGES).messages if posted.id == message_id and posted.packed)
    return next(held, None) if message_id else None


def _posting(cited: tuple[int, ...], said: JsonObject, created_ns: int | None) -> Event:
    return BoardMessageAppended(cited, said["id"], created_ns, pack_json(said))


# Messages of a conversation.


def window_of(place: Place, conversation: object) -> tuple[str, Callable[[], list[Message]]]:
    """Return the id of a conversation and what reads its window; that of the session where none is named."""
    door = place.door
    conversation = getattr(conversation, "plain", conversation)  # Of a handle for asyncio, the plain one.
    if isinstance(conversation, Conversation):
        other: Door | None = getattr(conversation, "_door", None)
        if other is None or other.engine is not door.engine or other.branch != door.branch:
            message = f"{checks.shown(conversation)} belongs to another memory; take one of the board's own"
            raise InvalidInput(message)
        return conversation.id, conversation.window
    name = place.scope.session if conversation is None else checks.name(conversation, "conversation")
    if name is None:
        checks.invalid("conversation is missing, and this board is of no session; name the conversation to read")
    stream = f"conversation/{name}"
    if conversation is not None and not door.version(stream):
        message = f"there is no conversation {checks.shown(name)}; conversations() lists those there are"
        raise NotFound(message)
    return name, lambda: door.read(stream, lambda state: list(state.part(WINDOW).live()), None)


def hydrating(
    cited: tuple[int, ...], name: str, window: Callable[[], list[Message]], node: str | None, now_ns: int
) -> Plan:
    """Return the plan to put those messages of a conversation on a board that it lacks and that it would hold.

    Each names the message that it is made of as its source.
    """

    def plan(layers: Layers) -> Sequence[Event]:
        said = [(message, text) for message in window() if (text := text_of(message))][-MESSAGES_KEPT:]
        held = layers.layer(MESSAGES).messages
        known, taken = {posted.id for posted in held}, {_microsecond(posted.created_ns) for posted in held}
        lacking: dict[str, Event] = {}
        posted = list(held)
        for message, text in said:
            if message.id not in known:
                created_ns = _free(message.occurred_ns or now_ns, taken)
                row = _row(message, text, name, node, created_ns)
                lacking[message.id] = _posting((message.stamp.seq, *cited), row, created_ns)
                posted.append(Posted(0, 0, message.id, created_ns, b""))
        kept = {row.id for row in sorted(posted, key=order_of)[-MESSAGES_KEPT:]}
        return [event for message_id, event in lacking.items() if message_id in kept]

    return plan


def _microsecond(time_ns: int | None) -> int | None:
    return None if time_ns is None else time_ns // _MICROSECOND_NS


def _free(when_ns: int, taken: set[int | None]) -> int:
    """Return the first microsecond from a time on that no message has: those of one commit have the same time.

    No finer than what a message says as text, so that messages which somebody reads and sets again keep their order.
    """
    place = when_ns // _MICROSECOND_NS
    while place in taken:
        place += 1
    taken.add(place)
    return place * _MICROSECOND_NS


def _row(message: Message, text: str, name: str, node: str | None, created_ns: int) -> JsonObject:
    return {
        "id": message.id,
        "session_id": name,
        "node_id": node,
        "role": message.role,
        "message_type": "",
        "content": text,
        "created_at": iso(created_ns),
    }


def text_of(message: Message) -> str:
    """Return what a message says in words, empty where it is erased or only calls tools."""
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    texts = (part.get("text") for part in content)
    return "\n".join(text for text in texts if isinstance(text, str))
