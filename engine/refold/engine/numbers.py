"""The seqs and the streams of a log that is written anew, where they are not those of the old one."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from refold.engine.keys import key_of, name_of, parted
from refold.engine.streams import NEXT_NUMBER_KEY, name_key, number_key, place_in
from refold.errors import StoreCorrupt
from refold.limits import PAGE_EVENTS
from refold.store.protocol import Log, Row, scan
from refold.store.record import BRANCH, Header, header_of


class Seqs:
    """The seqs in the new log, by those in the old one: less by one behind each event that is left out."""

    def __init__(self) -> None:
        self._left_out: list[int] = []
        self._first: dict[int, int] = {}
        """The seq of an event that is left out -> the seq of the one that it repeats."""

    def __bool__(self) -> bool:
        """Return whether any is another one."""
        return bool(self._left_out)

    def leave_out(self, seq: int, first: int) -> None:
        """Take note of an event that is another one once more."""
        self._left_out.append(seq)
        self._first[seq] = self._first.get(first, first)

    def of(self, seq: int) -> int:
        """Return the seq of an event, of one that is left out that of the other; 0 stands for none."""
        seq = self._first.get(seq, seq)
        return seq - bisect_left(self._left_out, seq)

    def until(self, seq: int) -> int:
        """Return the seq of the last event at or before a seq."""
        return seq - bisect_right(self._left_out, seq)


class Stream(NamedTuple):
    """A stream of the new log."""

    number: int
    branch: int
    name: str


class StreamNumbers:
    """Which stream an event is of: that of its number, where a faulty writer has not given two streams the same.

    Then each stream goes on from its own events, and the one that began later gets another number.
    """

    def __init__(self, log: Log) -> None:
        self._keys = _keys(log)
        self._known: dict[tuple[int, int], Stream] = {}
        """By number in the old log, and place among the streams of that number."""
        self._shared: dict[int, tuple[list[int], list[int]]] = {}
        """Of a number that two streams have: the seqs of its events, and the place of the stream that each is of."""
        given = int.from_bytes(log.row("meta", NEXT_NUMBER_KEY) or b"", "big")
        self._next_number = max(given, 1, *(number + 1 for number in self._keys))
        for number, count in _begun(log, {number for number, keys in self._keys.items() if len(keys) > 1}).items():
            if count == 1:
                del self._keys[number][:-1]  # A name under which nothing ever began.
            elif len(self._keys[number]) == 2:  # noqa: PLR2004 - of more nobody can tell which began when
                self._shared[number] = ([], [])
            else:
                names = ", ".join(map(name_of, self._keys[number]))
                message = f"stream number {number} is that of {names}; recover to a seq before the second of them began"
                raise StoreCorrupt(message)

    def __bool__(self) -> bool:
        """Return whether two streams have one number anywhere."""
        return bool(self._shared)

    def of(self, seq: int, header: Header) -> Stream:
        """Return the stream of the event at a seq, the events before which were asked for."""
        if header.stream not in self._shared:
            return self._stream(header.stream, 0)
        seqs, places = self._shared[header.stream]
        before = bisect_left(seqs, header.prev_seq)
        is_of_one = before < len(seqs) and seqs[before] == header.prev_seq
        places.append(places[before] if is_of_one else int(bool(seqs)))
        seqs.append(seq)
        return self._stream(header.stream, places[-1])

    def number(self, number: int, seq: int) -> int:
        """Return the number of the stream that had a number at a seq."""
        if number not in self._shared:
            return number
        seqs, places = self._shared[number]
        count = bisect_right(seqs, seq)
        return self._stream(number, places[count - 1] if count else 0).number

    def _stream(self, number: int, place: int) -> Stream:
        found = self._known.get((number, place))
        if found is None:
            if number not in self._keys:
                message = f"stream number {number} has events and no name; recover to a seq before them"
                raise StoreCorrupt(message)
            new_number = self._next_number if place else number
            self._next_number += place
            found = self._known[number, place] = Stream(new_number, *parted(self._keys[number][place]))
        return found

    def rows(self) -> Iterator[Row]:
        """Return the rows of the streams that have events."""
        for number, branch, name in self._known.values():
            yield "names", name_key(branch, name), number_key(number)
            yield "streams", number_key(number), msgspec.msgpack.encode((name, branch))
        if self._known:
            yield "meta", NEXT_NUMBER_KEY, number_key(1 + max(stream.number for stream in self._known.values()))

    def repairs(self) -> Iterator[str]:
        """Say which streams have another number."""
        for (number, place), stream in self._known.items():
            if place:
                other = self._known[number, 0].name
                yield f"{stream.name} had the number of {other}, {number}, and has {stream.number} now"


def _keys(log: Log) -> dict[int, list[str]]:
    """Return the keys of the streams of each number, the one that was given it last at the end."""
    keys: dict[int, list[str]] = {}
    for number, packed in scan(log, "streams", b"", PAGE_EVENTS):
        try:
            name, branch = place_in(packed)
        except StoreCorrupt:
            continue  # Then the row of the name says it.
        keys[int.from_bytes(number, "big")] = [key_of(branch, name)]
    known = {own for (own,) in keys.values()}
    for packed, number in scan(log, "names", b"", PAGE_EVENTS):
        key = key_of(BRANCH.unpack_from(packed)[0], packed[BRANCH.size :].decode())
        if key not in known:
            keys.setdefault(int.from_bytes(number, "big"), []).insert(0, key)
    return keys


def _begun(log: Log, numbers: set[int]) -> Counter[int]:
    """Return how often events of streams with these numbers go on from none of the events before them."""
    begun = Counter[int]()
    seqs: dict[int, set[int]] = {number: set() for number in numbers}
    for begin in range(1, log.head() + 1 if numbers else 1, PAGE_EVENTS):
        for seq, record in enumerate(log.read(begin, PAGE_EVENTS), begin):
            header = header_of(record)
            if header.stream in numbers:
                begun[header.stream] += header.prev_seq not in seqs[header.stream]
                seqs[header.stream].add(seq)
    return begun
