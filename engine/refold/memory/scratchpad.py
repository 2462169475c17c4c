"""The scratchpad of a conversation: its keys and notes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

import msgspec

from refold import checks
from refold.engine.keys import KeyMap, decide_delete, decide_set
from refold.memory.conversation_handle import ConversationHandle
from refold.memory.options import MutationOptions, mutation
from refold.views.scratchpad import SCRATCH, NoteAdded, Scratch, ScratchpadCleared, ScratchpadDeleted, ScratchpadSet

if TYPE_CHECKING:
    from refold.memory.reasons import Revision

T = TypeVar("T")


ENTRIES: Final[KeyMap[str]] = KeyMap(SCRATCH)


class Scratchpad(ConversationHandle):
    """The keys and notes of one conversation: values are ``str``, keys are sorted, notes keep their order.

    A key is limited to ``KEY_BYTES_MAX`` = 4,096 bytes of UTF-8, a value or a note to ``VALUE_BYTES_MAX`` = 16 MiB;
    larger ones raise ``LimitExceeded``.

    >>> from refold import Memory
    >>> scratchpad = Memory().conversation("chat-42").scratchpad
    >>> scratchpad.set("user_name", "Alice")
    >>> scratchpad.note("Likes tea.")
    >>> scratchpad.to_json()
    '{"entries":{"user_name":"Alice"},"notes":["Likes tea."]}'
    """

    __slots__ = ()

    def __repr__(self) -> str:
        counts = self._core.counts(lambda: f"keys={len(self.keys())}, notes={len(self.notes())}")
        return f"Scratchpad({self._stream!r}, {counts})"

    def _look(self, query: Callable[[Scratch], T]) -> T:
        return self._read(lambda state: query(state.part(SCRATCH)))

    @mutation
    def set(self, key: str, value: str, **options: Unpack[MutationOptions]) -> None:
        """Set a key; setting it to its current value appends nothing."""
        key, value, cited = checks.key(key), checks.text(value, "value"), self._source_seqs(options)
        decide = decide_set(ENTRIES, key, value, lambda prior, place: ScratchpadSet(cited, prior, place, key, value))
        self._write(decide, ("set", key, value), options)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or ``default``."""
        value = self._core.read_key(self._stream, ENTRIES, checks.key(key), self._at)
        return default if value is None else value

    @mutation
    def delete(self, key: str, **options: Unpack[MutationOptions]) -> bool:
        """Remove a key; return whether it was there."""
        key, cited = checks.key(key), self._source_seqs(options)
        decide = decide_delete(ENTRIES, key, lambda prior, place: ScratchpadDeleted(cited, prior, place, key))
        return self._write(decide, ("delete", key), options) is not None

    def blame(self, key: str) -> "list[Revision]":
        """Return every value that a key ever had, oldest first, with its writer and the turn that led to it."""
        from refold.memory.blame import revisions  # noqa: PLC0415 - loaded only when used

        return revisions(self._core, self._stream, "scratchpad", checks.key(key), self._at)

    def keys(self) -> list[str]:
        """Return the keys, sorted."""
        return self._look(lambda scratch: sorted(scratch.entries.values))

    def items(self) -> list[tuple[str, str]]:
        """Return keys and values, sorted by key."""
        return self._look(lambda scratch: sorted(scratch.entries.values.items()))

    @mutation
    def note(self, text: str, **options: Unpack[MutationOptions]) -> None:
        """Add a free-form note."""
        text = checks.text(text, "text")
        self._write(NoteAdded(self._source_seqs(options), text), ("note", text), options)

    def notes(self) -> list[str]:
        """Return the notes, oldest first."""
        return self._look(lambda scratch: [text for _, text in scratch.notes])

    @mutation
    def clear(self, **options: Unpack[MutationOptions]) -> None:
        """Drop every key and note."""
        event = ScratchpadCleared(self._source_seqs(options))
        self._write(lambda state: None if state.part(SCRATCH).is_empty else event, ("clear",), options)

    def to_dict(self) -> dict[str, Any]:
        """Return ``entries``, sorted by key, and ``notes``, both from the same state."""
        return self._look(SCRATCH.plain)

    def to_json(self) -> str:
        """Return ``to_dict`` as one JSON object."""
        return msgspec.json.encode(self.to_dict()).decode()
