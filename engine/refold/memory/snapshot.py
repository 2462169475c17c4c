"""Snapshots: a pointer to a state, and its rendering as portable bytes for a hand-over."""

from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from refold import checks, fold
from refold.engine.core import Engine
from refold.engine.keys import key_of
from refold.errors import InvalidInput, StoreVersion
from refold.event import ImportedBody, ImportedMessage, StateImported
from refold.hashing import sha256
from refold.message import ROLES, Message
from refold.views.scratch import SCRATCH
from refold.views.session import SESSION
from refold.views.state import STATE
from refold.views.window import POLICY, WINDOW, Window

_MAGIC: Final = b"REFOLDSN"
_FORMAT: Final = 1
_HEAD_BYTES: Final = len(_MAGIC) + 1 + 32
_ENCODE: Final = msgspec.msgpack.Encoder().encode


class Carried(Struct, frozen=True, array_like=True):
    """What snapshot bytes hold: where the state stood, and the state itself."""

    store_id: bytes
    stream: str
    seq: int
    tokens: int
    state: StateImported


class Snapshot(Struct, frozen=True, eq=False, repr_omit_defaults=True):
    """A state of one conversation, the stream and the seq at which it stood; without a stream, of a whole memory.

    >>> from refold import Memory
    >>> chat = Memory().conversation("chat-42")
    >>> chat.set("user_name", "Alice")
    >>> Snapshot.from_bytes(chat.snapshot().to_bytes()).seq
    2
    """

    stream: str
    seq: int
    name: str | None = None
    origin: Any = None
    """Where ``to_bytes`` gets the state: the engine, or what ``from_bytes`` carried."""

    branch: int = 0
    """The fork of the memory in which the state stood: 0 is the main line."""

    @property
    def _place(self) -> tuple[int, str, int]:
        """What it points at: the branch, the stream, the seq."""
        return self.branch, self.stream, self.seq

    def __eq__(self, other: object) -> bool:
        """Return whether both point at the same state."""
        return isinstance(other, Snapshot) and self._place == other._place

    def __hash__(self) -> int:
        """Return a hash of the pointer."""
        return hash(self._place)

    def __repr__(self) -> str:
        """Return the pointer."""
        branch = f", branch={self.branch}" if self.branch else ""
        named = "" if self.name is None else f", name={self.name!r}"
        return f"Snapshot(stream={self.stream!r}, seq={self.seq}{branch}{named})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickle keeps: the rendered state, so that a pickled snapshot is one that was handed over."""
        return Snapshot.from_bytes, (self.to_bytes(),)

    def to_bytes(self) -> bytes:
        """Return the state rendered whole, with a checksum: what another store can restore from.

        Raises ``InvalidInput`` for the snapshot of a whole memory: that is what ``memory.export`` hands over.
        """
        carried = self.origin if isinstance(self.origin, Carried) else self._rendered()
        payload = _ENCODE(carried)
        return _MAGIC + bytes([_FORMAT]) + sha256(payload) + payload

    def _rendered(self) -> Carried:
        engine = self.origin
        if not isinstance(engine, Engine):
            checks.invalid("this Snapshot was made by hand; take one with chat.snapshot() or Snapshot.from_bytes()")
        if not self.stream:
            checks.invalid("the snapshot is of a whole memory; hand that over with memory.at(seq).export(path)")
        store_id = engine.store_id

        def render(state: fold.State) -> Carried:
            return Carried(store_id, self.stream, self.seq, state.part(WINDOW).tokens, exported(state))

        return engine.read(key_of(self.branch, self.stream), render, self.seq)

    @staticmethod
    def from_bytes(rendered: object) -> "Snapshot":
        """Return the snapshot of bytes that ``to_bytes`` gave.

        Raises ``InvalidInput`` for bytes that are damaged or not a snapshot, ``StoreVersion`` for a newer format.
        """
        carried = _carried(rendered)
        return Snapshot(carried.stream, carried.seq, None, carried)


def _carried(rendered: object) -> Carried:
    if not isinstance(rendered, (bytes, bytearray, memoryview)):
        checks.invalid(f"snapshot bytes must be bytes, not {type(rendered).__name__}; give what to_bytes() returned")
    rendered = bytes(cast("bytes", rendered))
    if len(rendered) < _HEAD_BYTES or not rendered.startswith(_MAGIC):
        checks.invalid("these bytes are not a refold snapshot; give what to_bytes() returned, whole")
    found = rendered[len(_MAGIC)]
    if not found:
        checks.invalid("the snapshot bytes are damaged: they name no format; hand them over again")
    if found > _FORMAT:
        message = f"the snapshot is of format {found}, and this refold reads up to {_FORMAT}; upgrade refold"
        raise StoreVersion(message)
    payload = rendered[_HEAD_BYTES:]
    if sha256(payload) != rendered[len(_MAGIC) + 1 : _HEAD_BYTES]:
        checks.invalid("the snapshot bytes are damaged: their checksum does not match; hand them over again")
    try:
        carried = msgspec.msgpack.decode(payload, type=Carried)
    except msgspec.DecodeError as error:
        message = f"the snapshot bytes hold no state ({error}); hand them over again"
        raise InvalidInput(message) from error
    _check(carried)
    return carried


def _check(carried: Carried) -> None:
    """Recompute what the bytes claim: the messages, folded, must be the window that was rendered."""
    state = carried.state
    if state.policy not in (0, POLICY):
        message = f"the snapshot's eviction policy {state.policy} is unknown here; upgrade refold"
        raise StoreVersion(message)
    if len(state.bodies) != len(state.messages):
        checks.invalid(f"the snapshot has {len(state.messages)} messages and {len(state.bodies)} bodies")
    unknown = {message.role for message in state.messages} - set(ROLES)
    if unknown:
        checks.invalid(f"the snapshot has messages of unknown roles: {', '.join(sorted(unknown))}")
    tokens = sum(message.tokens for message in state.messages)
    if tokens != carried.tokens:
        checks.invalid(f"the snapshot says {carried.tokens} tokens, its messages have {tokens}; hand it over again")
    if tokens > state.window_tokens:
        checks.invalid(f"the snapshot's messages have {tokens} tokens, over its own budget of {state.window_tokens}")
    from refold.engine import vetting  # noqa: PLC0415 - only bytes from elsewhere need it

    problem = "it stands at a seq below 0" if carried.seq < 0 else vetting.problem_in(state)
    if problem is not None:
        checks.invalid(f"the snapshot bytes hold what no refold wrote: {problem}; hand them over again")


def exported(state: fold.State, sources: tuple[int, ...] = ()) -> StateImported:
    """Return a conversation's whole state as the event that would bring another conversation there."""
    window, scratch, scopes = state.part(WINDOW), state.part(SCRATCH), state.part(STATE)
    return StateImported(
        sources,
        window.window_tokens,
        window.counter,
        window.policy,
        tuple(_skeleton(window, message) for message in window.live()),
        tuple(_body(message) for message in window.live()),
        tuple(scratch.entries.values.items()),
        tuple(text for _, text in scratch.notes),
        tuple(scopes.entries.values.items()),
        state.part(SESSION).project,
    )


def _skeleton(window: Window, message: Message) -> ImportedMessage:
    event = message.event
    answers = event.answers if event.id in window.owners else None
    when = (message.stamp.time_ns, message.stamp.occurred_ns)
    return ImportedMessage(event.id, event.role, event.tokens, event.pinned, event.call_ids, answers, *when)


def _body(message: Message) -> ImportedBody:
    event = message.event
    return ImportedBody(event.text, event.parts, event.name, event.calls, event.extra, message.erased)
