"""Erasing for tests: blanks events as the log defines it, where they are in the file."""

from collections.abc import Iterable

from refold import Memory
from refold.engine.erasure import blank_records
from refold.engine.streams import APPLIED_KEY, STORE_STREAM
from refold.engine.transaction import Mutation
from refold.event import Erased
from refold.limits import HASH_BYTES, PAGE_EVENTS
from refold.log.protocol import Row, scan
from refold.log.record import SEQ, digest_of
from tests.support.memories import erase
from tests.support.seams import engine_of


def blank(memory: Memory, seqs: Iterable[int]) -> int:
    """Blanks the events at the seqs and returns the seq of the event that says so.

    Every checkpoint row from the lowest blanked seq on may hold what is gone, of whatever stream, because forks and
    restores reach across streams; so may any digest. Without the row that says how far the others reach, the tail
    begins at the first event.
    """
    engine = engine_of(memory)
    wanted = sorted(set(seqs))
    records = list(blank_records(engine.reader, wanted, {}))
    digests = tuple((last, digest_of(record[HASH_BYTES:])) for last, record in records)
    engine.writer.submit(Mutation(STORE_STREAM, Erased((), tuple(wanted), digests)))
    stale: list[Row] = [
        ("checkpoints", key, None)
        for key, _ in scan(engine.reader.log, "checkpoints", b"", PAGE_EVENTS)
        if key == APPLIED_KEY or SEQ.unpack(key[-SEQ.size :])[0] >= wanted[0]
    ]
    stale += [("digests", key, None) for key, _ in scan(engine.reader.log, "digests", b"", PAGE_EVENTS)]
    erase(engine.reader.log, records, stale)
    engine.reload()
    return memory.head
