"""The state of a conversation as a mapping of JSON values, by the lifetimes that the keys' prefixes name."""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, cast

from refold import checks
from refold.engine.pending import ANY
from refold.errors import InvalidInput
from refold.event import ConversationOpened, unpack_json
from refold.fold import State
from refold.keyed import Keyed
from refold.memory.deciding import deleting, setting
from refold.memory.door import Door
from refold.views.state import PROJECT, SESSION, STATE, TEMP, StateDeleted, StateSet


def _without_session(key: str) -> str:
    held = key.removeprefix(SESSION)
    if held != key and held.startswith((TEMP, SESSION, PROJECT)):
        message = f"key {checks.shown(key)} has two prefixes; give one of temp:, session:, project:, or none"
        raise InvalidInput(message)
    return held


def _values(state: State) -> Keyed[bytes]:
    return state.part(STATE).entries


class ScopedState:
    """A mapping of JSON values: ``temp:`` until the round ends, ``session:`` (or no prefix), ``project:`` beyond.

    >>> from refold import Memory
    >>> chat = Memory().conversation("chat-42", project="acme")
    >>> chat.state["plan"] = ["read", "write"]
    >>> chat.state.set("project:language", "Python")
    >>> sorted(chat.state)
    ['plan', 'project:language']
    """

    __slots__ = ("_at", "_door", "_opening", "_project", "_stream")

    def __init__(
        self, door: Door, stream: str, opening: ConversationOpened, project: str | None, at: int | None
    ) -> None:
        self._door = door
        self._stream = stream
        self._opening = opening
        self._project = project
        self._at = at

    def _place(self, key: str) -> tuple[str, str]:
        """Return the stream that a key lives in, and the key there."""
        key = checks.key(key)
        if not key.startswith(PROJECT):
            return self._stream, _without_session(key)
        if self._project is None:
            message = f"{checks.shown(key)} needs a project; open the conversation with project=..."
            raise InvalidInput(message)
        return f"project/{self._project}", key.removeprefix(PROJECT)

    def _note(self, stream: str, decide: Any, asked: tuple[Any, ...], expected: object, request_id: str | None) -> bool:
        opening = self._opening if stream == self._stream else None
        door = self._door
        noted = door.note(
            stream, decide, at=self._at, asked=asked, opening=opening, expected=expected, request_id=request_id
        )
        return noted is not None

    def set(
        self,
        key: str,
        value: Any,
        *,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sequence[Any] = (),
    ) -> None:
        """Set a key to a JSON value; setting the value it has appends nothing."""
        stream, held = self._place(key)
        if not held:
            message = f"key {checks.shown(key)} is only a prefix; give it a name behind the colon"
            raise InvalidInput(message)
        packed = checks.packed_json(value, "value")
        cited = self._door.sources(sources)

        decide = setting(_values, held, packed, lambda prior, place: StateSet(cited, prior, place, held, packed))
        self._note(stream, decide, ("state.set", held, packed), expected, request_id)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, fresh, or ``default``."""
        stream, held = self._place(key)
        packed = self._door.read(stream, lambda state: state.part(STATE).entries.values.get(held), self._at)
        return default if packed is None else unpack_json(packed)

    def delete(
        self,
        key: str,
        *,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sequence[Any] = (),
    ) -> bool:
        """Remove a key; return whether it was there."""
        stream, held = self._place(key)
        cited = self._door.sources(sources)

        decide = deleting(_values, held, lambda prior, place: StateDeleted(cited, prior, place, held))
        return self._note(stream, decide, ("state.delete", held), expected, request_id)

    def _keys(self) -> list[str]:
        def query(state: State) -> list[str]:
            return sorted(state.part(STATE).entries.values)

        own = self._door.read(self._stream, query, self._at)
        if self._project is None:
            return own
        shared = self._door.read(f"project/{self._project}", query, self._at)
        return own + [PROJECT + key for key in shared]

    def keys(self) -> list[str]:
        """Return the keys, session keys without their prefix, each scope sorted."""
        return self._keys()

    def items(self) -> list[tuple[str, Any]]:
        """Return keys and values."""
        return [(key, self[key]) for key in self._keys()]

    def values(self) -> list[Any]:
        """Return the values in the order of ``keys``."""
        return [self[key] for key in self._keys()]

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key; ``KeyError`` where there is none."""
        missing = object()
        value = self.get(key, missing)
        if value is missing:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        """Set a key to a JSON value."""
        self.set(key, value)

    def __delitem__(self, key: str) -> None:
        """Remove a key; ``KeyError`` where there is none."""
        if not self.delete(key):
            raise KeyError(key)

    def pop(self, key: str, *default: Any) -> Any:
        """Remove a key and return the value it had; ``default``, or ``KeyError``, where there is none."""
        value = self.get(key, *default) if default else self[key]
        self.delete(key)
        return value

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, set to ``default`` first where there is none."""
        if key not in self:
            self.set(key, default)
        return self[key]

    def update(self, *others: Mapping[str, Any], **values: Any) -> None:
        """Set every key of other mappings, and every named one."""
        for other in (*others, values):
            for key, value in other.items():
                self.set(key, value)

    def __eq__(self, other: object) -> bool:
        """Return whether another mapping has the same keys and values."""
        return isinstance(other, Mapping) and dict(self.items()) == dict(cast("Mapping[str, Any]", other).items())

    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    def __contains__(self, key: object) -> bool:
        """Return whether a key has a value."""
        missing = object()
        return isinstance(key, str) and bool(key) and self.get(key, missing) is not missing

    def __iter__(self) -> Iterator[str]:
        """Return the keys."""
        return iter(self._keys())

    def __len__(self) -> int:
        """Return how many keys there are."""
        return len(self._keys())

    def __repr__(self) -> str:
        """Return the mapping with its counts."""
        if self._door.engine.is_closed:
            return f"ScopedState({self._stream!r}, closed)"
        counts = self._door.counts(lambda: f"keys={len(self)}")
        return f"ScopedState({self._stream!r}, {counts})"


# Registered, not derived: keys, items and values are lists here, taken at one moment, where a Mapping has live views.
MutableMapping.register(ScopedState)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
