"""What keeps a transaction from being written: something that it relies on is not so any more."""

from contextlib import suppress
from typing import TYPE_CHECKING

from refold import fold
from refold.engine.reader import Reader
from refold.engine.streams import Stream, name_of
from refold.errors import WrongVersion

if TYPE_CHECKING:
    from refold.engine.transaction import Transaction


def check_current(reader: Reader, transaction: "Transaction", streams: dict[str, Stream], erased_count: int) -> None:
    """Raise ``WrongVersion`` where something that a transaction relies on is not so any more."""
    from refold.engine.transaction import EXISTS, NO_STREAM  # noqa: PLC0415 - which imports this

    for request, _ in transaction.requests.values():
        with suppress(LookupError):
            answer = reader.answered(request)
            raise WrongVersion(
                "a request_id of this batch was answered while the batch was open; run the batch again",
                expected=NO_STREAM,
                actual=answer.stamp.version if answer else 0,
            )
    if transaction.is_current is not None and not transaction.is_current():
        raise WrongVersion("the memory moved on while it was looked at; look again", expected=EXISTS, actual=0)
    # A stream that was found open for an event that was then refused is no part of the batch.
    for key in (transaction.opened & streams.keys()) - transaction.openings.keys():
        if not fold.is_open(reader.live(streams[key])):
            raise WrongVersion(
                f"{name_of(key)} was dropped or emptied while a batch was open; run the batch again",
                expected=EXISTS,
                actual=streams[key].version,
            )
    for key, version in transaction.reads.items():
        stream = streams.get(key) or reader.find(key)
        actual = 0 if stream is None else stream.version
        if actual != version:
            raise WrongVersion(
                f"{name_of(key)} moved from version {version} to {actual} while a batch was open; run the batch again",
                expected=version,
                actual=actual,
            )
    before = transaction.erased_count
    if before is not None and erased_count != before:
        # An erasure moves no version of the streams that it blanks.
        raise WrongVersion(
            "events were erased while a batch was open that may have read them; run the batch again",
            expected=before,
            actual=erased_count,
        )
