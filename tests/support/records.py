"""Records for tests that look at a log from below: events of any bytes, sealed as a log takes them."""

from collections.abc import Iterable, Sequence

from refold.log.protocol import Log
from refold.log.record import MARK_COMMAND, NO_LINK, Columns, Record, Sealed, StreamHead, pack

SEED = bytes(range(32))


def sealed(first_seq: int, arrays: Sequence[bytes], link: bytes = NO_LINK) -> list[Sealed]:
    """Return the records of one command in stream 1, whose events begin at ``first_seq``."""
    count = len(arrays)
    columns = Columns(
        [StreamHead(1, first_seq - 1, first_seq - 1)],
        [0] * count,
        [MARK_COMMAND, *[0] * (count - 1)],
        [0] * count,
        [0] * count,
        (),
        arrays,
    )
    return pack(columns, first_seq=first_seq, time_ns=1_000 + first_seq, command=0, seed=SEED, link=link).records


def arrays_in(records: Iterable[Sealed]) -> list[bytes]:
    """Return the events of records as they lie in them."""
    return [array for _, record in records for array in Record(record).arrays]


def arrays_at(log: Log, seqs: Sequence[int]) -> list[bytes]:
    """Return the events of a log at some seqs."""
    return [event.array for event in log.events_at(seqs)]
