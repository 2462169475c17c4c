"""The end of a log checked: whether its last commits are what their links and commitments say.

Everything before them was durable before they began, and LMDB never writes to a page that a commit still needs. So this
is what an I/O error leaves in doubt, and all that has to be read before writing goes on.
"""

from struct import error as StructError  # noqa: N812 - struct names its exception in lower case

from refold.errors import StoreCorrupt
from refold.limits import ENDING_COMMITS_COUNT, PAGE_EVENTS
from refold.store.protocol import Log
from refold.store.record import (
    ARRAY_BEGIN,
    COMMIT,
    NO_LINK,
    CommitRow,
    covered,
    header_of,
    is_intact,
    link_after,
)


def check_end(log: Log, path: str) -> None:
    """Raise ``StoreCorrupt`` unless the last ``ENDING_COMMITS_COUNT`` commits are what their links say."""
    last = log.head()
    if log.read(last + 1, 1):
        raise _damaged(path, last + 1, "no commit row covers it")
    for _ in range(ENDING_COMMITS_COUNT):
        if last < 1:
            return
        last = _check_commit(log, path, last)


def _check_commit(log: Log, path: str, last: int) -> int:
    """Check the commit that ends with a seq, and return that of the last event before it."""
    try:
        commit = _row(log, last)
        previous = _row(log, commit.first_seq - 1)
        if (commit.next_seq, previous.next_seq) != (last + 1, commit.first_seq) or commit.first_seq > last:
            raise _damaged(path, last, "its commit row does not follow the one before")
        parts = [COMMIT.pack(commit.first_seq, commit.next_seq, commit.time_ns, NO_LINK)]
        for begin in range(commit.first_seq, commit.next_seq, PAGE_EVENTS):
            for record in log.read_at(range(begin, min(begin + PAGE_EVENTS, commit.next_seq))):
                header = header_of(record)
                if len(record) < ARRAY_BEGIN or not is_intact(record, header):
                    raise _damaged(path, last, "a body of its commit is not what the header commits to")
                parts += covered(record, header)
    except StructError as error:
        raise _damaged(path, last, str(error)) from error
    if link_after(previous.link, parts) != commit.link:
        raise _damaged(path, last, "the link of its commit does not fit its records")
    return commit.first_seq - 1


def _row(log: Log, seq: int) -> CommitRow:
    """Return the commit row that covers a seq; of seq 0 the one before the first."""
    row = log.commit_at(seq) if seq else None
    return CommitRow(0, 1, 0, NO_LINK) if row is None else CommitRow._make(COMMIT.unpack(row))


def _damaged(path: str, seq: int, reason: str) -> StoreCorrupt:
    message = (
        f"the end of the log in {path} was checked after an I/O error, and seq {seq} is damaged: {reason}; "
        f"open it with readonly=True to read what is there, run `refold verify`, restore a backup"
    )
    return StoreCorrupt(message)
