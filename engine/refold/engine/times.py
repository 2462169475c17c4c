"""From times to seqs and back, by the commit rows of the log: every event of a commit has the commit's time."""

from refold.engine.damage import guarded
from refold.errors import InvalidInput, StoreCorrupt
from refold.limits import TIME_NS_MAX
from refold.store.protocol import Log
from refold.store.record import COMMIT, CommitRow


def checked(time_ns: int) -> int:
    """Return what a clock said; ``InvalidInput`` if a record could not hold it."""
    if not -TIME_NS_MAX <= time_ns <= TIME_NS_MAX:
        message = f"clock_ns returned {time_ns}, beyond the 64 bits of a time in nanoseconds; give another clock"
        raise InvalidInput(message)
    return time_ns


def seq_at_time(log: Log, head: int, time_ns: int) -> int:
    """Return the last seq that was acknowledged at or before a time, 0 if none was, by bisection."""
    low, high = 0, head
    while low < high:
        middle = (low + high + 1) // 2
        commit = _commit_at(log, middle)
        if not commit.first_seq <= middle < commit.next_seq:
            message = f"the commit row of seq {middle} is damaged; run `refold verify` and restore a backup"
            raise StoreCorrupt(message)
        if commit.time_ns <= time_ns:
            low = commit.next_seq - 1
        else:
            high = commit.first_seq - 1
    return min(low, head)


def time_at_seq(log: Log, seq: int) -> int:
    """Return when the commit that wrote ``seq`` was made, 0 for seq 0."""
    return _commit_at(log, seq).time_ns if seq else 0


def end_of_commit(log: Log, seq: int) -> int:
    """Return the last seq of the commit that wrote ``seq``."""
    return _commit_at(log, seq).next_seq - 1


@guarded
def _commit_at(log: Log, seq: int) -> CommitRow:
    row = log.commit_at(seq)
    assert row is not None, f"seq {seq} has no commit row"
    return CommitRow._make(COMMIT.unpack(row))
