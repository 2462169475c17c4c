"""Witnessing: a file away from the store records how far the log has come, and the log is compared with it.

The chain of commit rows gives each seq that ends a commit one link, which covers everything before it. A log that holds
the witnessed seq with the witnessed link is therefore the log that was seen, or continues it; a log that was cut off,
rolled back or rewritten is not. The file follows the log on its own thread, so no writer ever waits for it.
"""

from functools import partial
from typing import Final
from weakref import ref

from refold.engine.reader import Reader
from refold.errors import NotFound, StoreBusy, StoreCorrupt, StoreError
from refold.limits import RETRIES_COUNT_MAX, WITNESS_MS
from refold.log import witness
from refold.log.protocol import Log
from refold.log.record import NO_LINK, Record
from refold.log.witness import WitnessSlot
from refold.results import Finding
from refold.threads import NO_THREAD, Bell, Worker

_REMEDY: Final = "restore a backup; if it is meant, remove the witness, and the next opening begins a new one"


class Witness:
    """The witness of an open memory: compared when the memory opens, and advanced with its log from then on."""

    def __init__(self, reader: Reader, path: str) -> None:
        self.path = path
        self._reader = reader
        self._stop = Bell()
        self._thread: Worker | None = None
        self._failure = ""
        """The last failure that was logged, so that it is logged only once."""

    def begin(self) -> None:
        """Compare the log with the witness, creating one if there is none, and follow the log from now on.

        A read-only memory only compares, and raises ``NotFound`` if there is no witness to compare with.
        """
        reader = self._reader
        if not reader.log.readonly and witness.read(self.path) is None:
            witness.create(self.path, _durable_slot(reader))
        check(reader, self.path)
        if not reader.log.readonly:
            self._thread = Worker(partial(_follow, ref(self), self._stop), "refold-witness")
            self._thread.start()
            if not self._thread.wait_for_start():
                raise StoreError(f"the witness {self.path} cannot follow the log: {NO_THREAD}")

    def advance(self) -> None:
        """Record in the file how far the log is durable; the log must hold what the file recorded before.

        No lock of the memory is held and no transaction is open while the file is read or written. Raises
        ``StoreCorrupt`` if the log is not the one that was seen, and ``StoreFull``, ``StoreBusy`` or ``StoreError`` if
        the file cannot be written. The witness never goes back, and stays where it is once an I/O error has stopped a
        writer.
        """
        reader = self._reader
        for _ in range(RETRIES_COUNT_MAX):
            known = witness.read(self.path)
            if known is None:
                raise StoreError(witness.gone_message(self.path))
            with reader.state_lock:
                if reader.is_closed:
                    return
                _check_slot(reader, known, self.path)
                reader.notice()
                if reader.log.durability.is_suspect:
                    return  # Events that the log shows since the disk failed may be lost in a power loss.
                seen = _durable_slot(reader)
            if seen.seq <= known.seq or witness.replace(self.path, known, seen):
                return
        raise StoreBusy(
            f"other processes write the witness {self.path} all the time; it is theirs to keep, flush again"
        )

    def keep_up(self) -> None:
        """Advance the witness and log a failure, once; the next flush or close raises it."""
        try:
            self.advance()
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread tries again
            if str(error) != self._failure:
                self._failure = str(error)
                _report(error)
        else:
            self._failure = ""

    def stop(self) -> None:
        """Stop the thread; a second call does nothing."""
        self._stop.ring()
        if self._thread is not None:
            self._thread.join()


def prepare(path: str, *, has_store: bool, readonly: bool) -> None:
    """Raise any error of a witness that can be detected before its store is opened or created."""
    known = witness.read(path)
    if known is None:
        if readonly:
            raise NotFound(_missing_message(path))
        witness.check_room(path)
    elif not has_store:
        raise StoreCorrupt(f"there is no store, and the witness {path} saw one reach seq {known.seq}; {_REMEDY}")


def check(reader: Reader, path: str) -> None:
    """Raise ``StoreCorrupt`` unless the log is the one that the witness saw, ``NotFound`` if there is no witness."""
    known = witness.read(path)  # Before the log, as other processes may advance both.
    if known is None:
        raise NotFound(_missing_message(path))
    _check_slot(reader, known, path)


def findings(reader: Reader, path: str) -> list[Finding]:
    """Compare the log with the witness and return the findings; ``NotFound`` without a witness."""
    try:
        known = witness.read(path)
    except StoreCorrupt as error:
        return [Finding("witness", 0, str(error))]
    if known is None:
        raise NotFound(_missing_message(path))
    found = _problem(reader, known, path)
    return [Finding("witness", *found)] if found else []


def _missing_message(path: str) -> str:
    return f"there is no witness at {path}; opening the store with witness={path!r} and without readonly=True makes one"


def _check_slot(reader: Reader, known: WitnessSlot, path: str) -> None:
    found = _problem(reader, known, path)
    if found:
        raise StoreCorrupt(found[1])


def _problem(reader: Reader, known: WitnessSlot, path: str) -> tuple[int, str] | None:
    """Return the first seq known to be wrong and how the log differs from the one seen, or ``None`` if it does not."""
    if known.store_id != reader.store_id:
        other = f"the witness {path} is of store {known.store_id.hex()}, and this is {reader.store_id.hex()}"
        return 0, f"{other}: give each store a witness of its own; if this one was replaced, {_REMEDY}"
    head = reader.log.head()
    if head < known.seq:
        lost = f"the log ends at seq {head}, and the witness {path} saw seq {known.seq}"
        return head + 1, f"{lost}: the log was cut off, or an older copy was put in its place; {_REMEDY}"
    if known.seq and _link_at(reader.log, known.seq) != known.link:
        other = f"seq {known.seq} has not the link that the witness {path} saw"
        return known.seq, f"{other}: the log was rewritten, or rolled back and went on; {_REMEDY}"
    return None


def _durable_slot(reader: Reader) -> WitnessSlot:
    """Return the last commit that would survive a power loss, as a witness records it.

    It is at most the folded head, because a commit that is not folded yet may be about to fail.
    """
    seq = reader.log.durability.durable_until(reader.head)
    return WitnessSlot(reader.store_id, seq, _link_at(reader.log, seq) if seq else NO_LINK)


def _link_at(log: Log, seq: int) -> bytes:
    """Return the link of the record that ends at a seq; empty if none does."""
    return next((Record(packed).link for last, packed in log.read(seq - 1, seq) if last == seq), b"")


def _follow(followed: "ref[Witness]", stop: Bell) -> None:
    """Keep a witness up to date until it is stopped, or collected with a memory that was never closed."""
    while not stop.wait(WITNESS_MS / 1_000):
        kept = followed()
        if kept is None:
            return
        kept.keep_up()
        del kept


def _report(error: Exception) -> None:
    import logging  # noqa: PLC0415 - needed only after a failure

    logging.getLogger("refold").error("the witness was not written; flush and close raise this", exc_info=error)
