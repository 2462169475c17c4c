"""The rows beside the log, held against what a walk over it has seen: names, erasures, sources, requests, meta."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from refold.engine.keys import key_of
from refold.engine.reading import HASH_KEY, STORE_ID_KEY, TAGS_KEY
from refold.engine.seen import Seen
from refold.engine.streams import NEXT_NUMBER_KEY, place_in
from refold.errors import StoreCorrupt
from refold.limits import GRAPHS_READ_COUNT, HASH_KEY_BYTES, KEYED_HASH_BYTES, PAGE_EVENTS, STORE_ID_BYTES
from refold.results import CACHE, DAMAGE, WRITER, Finding
from refold.store.protocol import Log, scan
from refold.store.record import BRANCH, SEQ

_REQUEST_BYTES: Final = KEYED_HASH_BYTES + 2 * SEQ.size
_SIZES: Final = ((STORE_ID_KEY, STORE_ID_BYTES), (HASH_KEY, HASH_KEY_BYTES))
_TAGS: Final = msgspec.msgpack.Decoder(list[int])


def names(log: Log, seen: Seen) -> Iterator[Finding]:
    """Check that every stream has one number and every number one name."""
    numbers = {
        key_of(BRANCH.unpack_from(key)[0], key[BRANCH.size :].decode()): int.from_bytes(number, "big")
        for key, number in scan(log, "names", b"", PAGE_EVENTS)
    }
    given = Counter(numbers.values())
    named: dict[int, str] = {}
    for key, packed in scan(log, "streams", b"", PAGE_EVENTS):
        number = int.from_bytes(key, "big")
        try:
            name, branch = place_in(packed)
        except StoreCorrupt as error:
            yield Finding("names", 0, str(error), CACHE if number in given else DAMAGE)
            continue
        named[number] = key_of(branch, name)
        if seen.branches.get(number, branch) != branch:
            said = f"stream number {number} is of branch {branch}, its events are of another"
            yield Finding("names", 0, said, WRITER if given[number] > 1 else DAMAGE)
    for number in sorted(seen.heads.keys() - named.keys()):
        said = f"stream number {number} has events and no name"
        yield Finding("names", seen.heads[number][1], said, CACHE if number in given else DAMAGE)
    for number in sorted(named.keys() - seen.heads.keys()):
        yield Finding("names", 0, f"stream number {number} is named {named[number]!r}, and has no event", CACHE)
    for number, name in sorted(named.items()):
        if numbers.pop(name, None) != number:
            said = f"stream number {number} is named {name!r}, which stands for another number"
            yield Finding("names", 0, said, CACHE)
    for name, number in sorted(numbers.items()):
        yield Finding("names", 0, f"{name!r} stands for stream number {number}, which has another name", CACHE)
    following = int.from_bytes(log.row("meta", NEXT_NUMBER_KEY) or b"", "big")
    if named and following <= max(named):
        yield Finding("names", 0, f"the next stream would get the number {following} again", CACHE)


def erasures(_: Log, seen: Seen) -> Iterator[Finding]:
    """Check that the bodies that are gone are those that an event says were erased."""
    for seq in sorted(seen.marked - seen.erased):
        yield Finding("erasure", seq, "the body is gone, and no event says that it was erased")
    for seq in sorted(seen.erased - seen.marked):
        yield Finding("erasure", seq, "an event says that the body was erased, and it is still there")


def derived(log: Log, seen: Seen) -> Iterator[Finding]:
    """Check that the index of sources is that of the events."""
    stored = {key for key, _ in scan(log, "derived", b"", PAGE_EVENTS)}
    for key in sorted(stored ^ seen.derived):
        source, seq = SEQ.unpack(key[:8])[0], SEQ.unpack(key[8:])[0]
        said = f"the index row from source {source} is missing or stands for nothing"
        yield Finding("derived", seq, said, CACHE)


def requests(log: Log, seen: Seen) -> Iterator[Finding]:
    """Check that each answered request names events of one command, or none."""
    head = len(seen.commands)
    for key, row in scan(log, "requests", b"", PAGE_EVENTS):
        if len(row) != _REQUEST_BYTES or len(key) != KEYED_HASH_BYTES:
            yield Finding("requests", 0, f"the request row {key.hex()} has {len(key)} and {len(row)} bytes")
            continue
        first, last = SEQ.unpack_from(row, KEYED_HASH_BYTES)[0], SEQ.unpack_from(row, KEYED_HASH_BYTES + SEQ.size)[0]
        if (first, last) == (0, 0):
            continue
        said = f"the request row {key.hex()} is answered by seqs {first} to {last}"
        if not 0 < first <= last <= head:
            yield Finding("requests", min(first, head), f"{said}, and the log goes from 1 to {head}")
        elif seen.commands[first - 1] != seen.commands[last - 1]:
            yield Finding("requests", first, f"{said}, which are of several commands")


def meta(log: Log, seen: Seen) -> Iterator[Finding]:
    """Check what the store says of itself: its id, the key of its hashes, the tags that an older program must know."""
    for key, size in _SIZES:
        found = log.row("meta", key)
        if found is None or len(found) != size:
            held = "nothing" if found is None else f"{len(found)} bytes"
            yield Finding("meta", 0, f"the row {key.decode()} holds {held}, and should hold {size} bytes")
    tags = set(_TAGS.decode(log.row("meta", TAGS_KEY) or b"\x90"))
    for tag in sorted(seen.tags ^ tags):
        said = "in the log, and not in the list of tags" if tag in seen.tags else "in the list of tags, and not the log"
        yield Finding("meta", 0, f"tag {tag} is {said}", CACHE)


def graphs(log: Log, seen: Seen) -> Iterator[Finding]:
    """Check that each stored graph is of a stream that has events, and is what was stored."""
    for key, blob in scan(log, "graphs", b"", GRAPHS_READ_COUNT):
        from refold.store.graph_bytes import is_intact  # noqa: PLC0415 - loads numpy, where a project has a graph

        number = int.from_bytes(key, "big")
        if number not in seen.heads:
            yield Finding("graphs", 0, f"a graph is stored for stream number {number}, which has no event", CACHE)
        elif not is_intact(blob):
            yield Finding("graphs", seen.heads[number][1], f"the graph of stream number {number} is damaged", CACHE)


CHECKS: Final = (
    ("names", names, DAMAGE),
    ("erasure", erasures, DAMAGE),
    ("derived", derived, CACHE),
    ("meta", meta, CACHE),
    ("graphs", graphs, CACHE),
)
"""What is checked of any log, by the name of the finding for a row that cannot be read, and its fault."""
