"""The indexes of messages, by conversation and of whole branches, filled from the log when they are searched.

An index goes on from there the next time: an append pays nothing for it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import Final, NamedTuple

from refold.engine.reader import Reader
from refold.engine.streams import key_of
from refold.engine.transaction import erased_count
from refold.errors import StoreBusy
from refold.event import Forked, Recorded, Restored, StateImported
from refold.index.messages import Look, MessageIndex
from refold.limits import MESSAGES_BYTES_MAX, REDO_COUNT_MAX
from refold.message import ROLES, Message, MessageAppended, imported_messages
from refold.text import countable

ROLE_NUMBERS: Final = {role: number for number, role in enumerate(ROLES)}
"""The numbers of roles in an index."""


class Base(NamedTuple):
    """A state of another conversation from which one went on: the seq of the event that says so, its key, its seq."""

    seq: int
    key: str
    base_seq: int


class _Filled:
    """An index with the seq up to which it is filled, and the conversations from which this one went on."""

    def __init__(self) -> None:
        self.index = MessageIndex()
        self.seq = 0
        self.bases: list[Base] = []


class MessageIndexes:
    """The indexes of a memory: of conversations by their keys, and of all those of a branch.

    Those searched longest ago are dropped beyond ``MESSAGES_BYTES_MAX``, and all of them once anything was erased.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._filled: OrderedDict[str, _Filled] = OrderedDict()
        self._erased_count = 0

    def clear(self) -> None:
        """Forget what was indexed."""
        with self._lock:
            self._filled.clear()

    def looks(self, reader: Reader, branch: int, starts: Sequence[tuple[str, int | None]]) -> list[Look]:
        """Return the rows of conversations, each up to a seq or to the head, and of those that they went on from.

        ``starts`` are their keys and seqs; the key of all conversations of a branch is that of ``branch_key``.
        """
        for _ in range(REDO_COUNT_MAX):
            count = erased_count(reader)
            with self._lock:
                if count != self._erased_count:
                    self._filled.clear()
                    self._erased_count = count
                looks = self._looks(reader, branch, starts)
                if erased_count(reader) == count:
                    self._forget()
                    return looks
        raise StoreBusy("the log was erased from faster than its messages could be read; let that end and call again")

    def _looks(self, reader: Reader, branch: int, starts: Sequence[tuple[str, int | None]]) -> list[Look]:
        untils: dict[str, int | None] = {}
        waiting = [*starts]
        while waiting:
            key, until = waiting.pop()
            known = untils.get(key, 0)
            if known is None or (until is not None and until <= known):
                continue
            untils[key] = until
            bases = self._reach(reader, branch, key, until).bases
            waiting += [(base.key, base.base_seq) for base in bases if until is None or base.seq <= until]
        return [self._filled[key].index.look(until) for key, until in untils.items()]

    def _reach(self, reader: Reader, branch: int, key: str, until: int | None) -> _Filled:
        """Return an index that is filled up to a seq or the head; one that is cut off meanwhile is not used again."""
        filled = self._filled.pop(key, None) or _Filled()
        end = reader.current_head() if until is None else until
        is_branch = key == branch_key(branch)
        events = reader.all_events(filled.seq, end, branch) if is_branch else reader.events(key, filled.seq, end)
        for recorded in events:
            add_messages(filled.index, recorded, recorded.stamp.seq)
            if not is_branch:
                filled.bases += bases_of(reader, key, recorded)
        filled.seq = max(filled.seq, end)
        self._filled[key] = filled
        return filled

    def _forget(self) -> None:
        size = sum(filled.index.nbytes for filled in self._filled.values())
        while size > MESSAGES_BYTES_MAX and len(self._filled) > 1:
            size -= self._filled.popitem(last=False)[1].index.nbytes


def branch_key(branch: int) -> str:
    """Return the key of the index of all conversations of a branch, which is no key of a stream."""
    return f"{branch}:"


def bases_of(reader: Reader, key: str, recorded: Recorded) -> Iterator[Base]:
    """Return the conversation from which one goes on by an event, if that is another one."""
    event = recorded.event
    if isinstance(event, (Forked, Restored)) and event.base_stream:
        names = reader.names()
        base = key_of(names.branch_of(event.base_stream), names.stream(event.base_stream))
        if base != key:
            yield Base(recorded.stamp.seq, base, event.base_seq)


def add_messages(messages: MessageIndex, recorded: Recorded, seq: int) -> None:
    """Add the messages that came by an event, those that were erased left out."""
    for place, message in enumerate(messages_of(recorded)):
        if not message.erased:
            text = "\n".join(countable(message.content, message.tool_calls))
            line = text if message.name is None else f"{message.name}: {text}"
            messages.add(seq, place, recorded.stamp.stream, ROLE_NUMBERS[message.event.role], line)


def messages_of(recorded: Recorded) -> Iterable[Message]:
    """Return the messages that came by an event; those of boards are none."""
    event, stamp = recorded
    if isinstance(event, MessageAppended):
        return (Message(event, stamp),)
    return imported_messages(event, stamp) if isinstance(event, StateImported) else ()
