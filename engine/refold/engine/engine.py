"""The engine: stamp, log, fold, over a directory or over RAM."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from weakref import WeakSet

from refold.engine.reader import HASH_KEY, STORE_ID_KEY, UNSWEPT_KEY, Reader
from refold.engine.transaction import Transaction
from refold.engine.writer import Writer
from refold.errors import InvalidInput, LimitExceeded, StoreBusy, StoreError, StoreFull
from refold.limits import HASH_KEY_BYTES, MEMORY_BYTES_DEFAULT, STORE_ID_BYTES
from refold.log.commits import POSITION_KEY, Lag, is_address
from refold.log.protocol import Log, LogTurn, StoreGone, TurnLost, retry_turn, write
from refold.threads import FORKED

if TYPE_CHECKING:
    from refold.engine.loader import Lens
    from refold.engine.observer import Observer
    from refold.engine.subscriptions import Subscriber, Subscription, Subscriptions
    from refold.engine.witness import Witness
    from refold.log.replica import ReplicaLog


T = TypeVar("T")

_CLOSED: Final = "is closed; open the store again with Memory(path)"

# Forking: a child process must not use its parent's engine, because LMDB and the locks belong to the parent.


class Disownable(Protocol):
    """Something that belongs to one process."""

    def disown(self) -> None:
        """Refuse all further use."""
        ...


_owned: Final[WeakSet[Disownable]] = WeakSet()


def disown_at_fork(owned: Disownable) -> None:
    """Disown an object in every child process that is forked from now on."""
    _owned.add(owned)


def _disown_all() -> None:
    for owned in _owned:
        owned.disown()


os.register_at_fork(after_in_child=_disown_all)


class Engine:
    """A reader and a writer over one log, with subscriptions and a witness beside them."""

    def __init__(
        self,
        log: Log,
        *,
        clock_ns: Callable[[], int],
        random_bytes: Callable[[int], bytes],
        memory_bytes: int = MEMORY_BYTES_DEFAULT,
        lens: "Lens | None" = None,
    ) -> None:
        self.reader = Reader(log, clock_ns=clock_ns, random_bytes=random_bytes, memory_bytes=memory_bytes, lens=lens)
        self.writer = Writer(self.reader)
        self._subscriptions: Subscriptions | None = None
        self._is_disowned = False
        """Whether this process is a forked child of the one that the log belongs to."""
        self.shared: ReplicaLog | None = None
        """The log, if it is a copy of one on a server."""
        self.is_durable = False
        """Whether a commit survives a power loss once it has returned."""
        self.witness: Witness | None = None
        """The file away from the store that records how far the log has come, if there is one."""
        disown_at_fork(self)

    def watch(self, path: str) -> None:
        """Check the log against the witness at ``path``, and keep the witness up to date from now on."""
        from refold.engine.witness import Witness  # noqa: PLC0415 - loaded only with a witness

        witness = Witness(self.reader, path)
        witness.begin()
        self.witness = witness

    @property
    def lag(self) -> Lag | None:
        """How far the copy of a log on a server is behind; ``None`` if the log is no copy or is closed."""
        return None if self.shared is None or self.reader.closed else self.shared.lag()

    def commit(self, transaction: Transaction, *, is_exclusive: bool = False) -> None:
        """Write a transaction durably, whole or not at all, and complete the stamps of its results.

        ``is_exclusive`` is for a thread that is inside ``exclusive``.
        """
        if transaction.is_torn:
            raise InvalidInput(
                "a mutation of this batch was interrupted; nothing of the batch was written, run it again"
            )
        self.writer.submit(transaction, is_exclusive=is_exclusive)

    def observe(self, observer: "Observer") -> None:
        """Report each commit, cold read and search to an observer from now on; it replaces the previous one.

        Commits are wrapped only from then on: without an observer, a commit makes no extra call.
        """
        with self.reader.state_lock:
            self.reader.check_open()
            is_first = self.reader.observer is None
            self.reader.observer = self.reader.loader.observer = observer
            if is_first:
                self.writer.observe()

    def exclusive(self) -> AbstractContextManager[object]:
        """Return a context manager that keeps every other thread from committing."""
        return self.writer.exclusive()

    def subscribe(self, function: "Subscriber", after: int | None, branch: int) -> "Subscription":
        """Subscribe a function to a branch's events after ``after``, or to new ones for ``None``, until closed."""
        from refold.engine.subscriptions import Subscriptions  # noqa: PLC0415 - loaded only for subscribers

        with self.reader.state_lock:
            self.reader.check_open()
            if self._subscriptions is None:
                self._subscriptions = Subscriptions(self.reader)
        return self._subscriptions.subscribe(function, after, branch)

    def flush(self) -> None:
        """Store the checkpoint rows of every stream that was touched, so that the next opening has no tail to scan.

        The witness then records the head of the log; if that fails, the rows are stored all the same.
        """
        self.settle()
        self._advance_witness()

    def _advance_witness(self) -> None:
        if self.witness is not None and not self.reader.log.readonly:
            self.witness.advance()

    def settle(self) -> None:
        """Store the checkpoint rows without advancing the witness."""
        reader = self.reader
        with self.exclusive(), reader.state_lock:
            reader.check_open()
            if reader.is_writable:
                reader.notice()
                streams = reader.streams
                try:
                    caches = [*reader.index.graph_rows(), *reader.more_rows(), *reader.head_digests.take()]
                    for rows in reader.packer.remaining_rows(reader.head, caches):
                        # The rows may hold data that another machine has erased meanwhile. In that case everything was
                        # read again, and they are not stored.
                        put = partial(self.writer.put, rows, is_current=lambda: reader.streams is streams)
                        if not reader.log.in_turn(put):
                            break
                except TurnLost:
                    pass  # RAM predates an erasure by another process, and nothing depends on it.
                except BaseException:
                    reader.is_torn = True
                    raise
                reader.log.durability.flush()

    def close(self) -> None:
        """End the subscriptions, store the caches and release the log.

        A second call does nothing, and a call after one that was interrupted does the rest.

        If acknowledged events cannot be made durable, the error is raised and the engine stays open, so that the caller
        can free space or repair the disk and close it again. If the witness cannot be written, the engine is closed and
        the error is raised.
        """
        if self._is_disowned:
            return  # Before taking a lock: a thread that does not exist in this process may hold it.
        if self._subscriptions is not None:
            self._subscriptions.close()
        try:
            with self.exclusive(), self.reader.state_lock:
                if self.reader.is_closed:
                    self.reader.log.close()
                    return
                try:
                    self._finish()
                finally:
                    self._release()
        finally:
            # Without the locks, because the threads that end here may be waiting for them.
            if self.reader.is_closed:
                self.reader.index.forget()
                if self.witness is not None:
                    self.witness.stop()
                if self.shared is not None:
                    self.shared.join()

    def _finish(self) -> None:
        """Store the caches and advance the witness.

        If all events are durable, a failure to store checkpoint rows is no error: there may be no space or no turn, the
        store may no longer be at its path, or the disk may have failed.
        """
        log = self.reader.log
        head = log.head()
        has_tail = log.durability.durable_until(head) < head
        if log.durability.is_stopped:
            if not has_tail:
                return
            log.durability.resume()
        try:
            self.settle()
        except (StoreGone, StoreBusy, StoreFull):
            if has_tail:
                raise
        self._advance_witness()

    def _release(self) -> None:
        log = self.reader.log
        head = log.head()  # Read first: another process may append meanwhile, and what it appends is durable.
        if log.durability.durable_until(head) >= head:
            try:
                log.close()
            finally:
                # Not through `check_no_batch`: a signal can end a Python function before its first line.
                self.reader.closed, self.reader.is_writable = _CLOSED, False
        else:
            self._subscriptions = None

    def disown(self) -> None:
        """Refuse all further use: LMDB and the locks belong to the process that forked this one."""
        self._is_disowned = True
        self.reader.closed, self.reader.is_writable = FORKED, False
        self.writer.disown()
        self.reader.index.disown()
        if self._subscriptions is not None:
            self._subscriptions.disown()

    @property
    def is_unswept(self) -> bool:
        """Whether the log may still hold bytes of erased events."""
        return self.reader.log.row("meta", UNSWEPT_KEY) is not None

    def sweep(self) -> None:
        """Remove every byte of erased events from the log; if that fails, a later opening does it."""
        log = self.reader.log
        with self.reader.state_lock:
            erasure = log.row("meta", UNSWEPT_KEY)
            log.files.sweep()

            def unmark(turn: LogTurn) -> None:
                # Events that another machine has erased meanwhile are left to its sweep, or to a later one.
                if log.row("meta", UNSWEPT_KEY) == erasure:
                    turn.write((), [("meta", UNSWEPT_KEY, None)])

            retry_turn(lambda: log.in_turn(unmark))
            log.durability.flush()  # Now, while the ballast is lent.

    def sweep_again(self) -> None:
        """Finish an erasure that was interrupted, if the log allows it now."""
        if self.reader.log.readonly or not self.is_unswept:
            return
        # If a server does not answer or there is no space, the row stays and the next opening tries again.
        with suppress(StoreError), self.exclusive():
            self.reader.log.files.alone(self.sweep)

    def run_exclusive(self, use: Callable[[], object]) -> None:
        """Call ``use`` while no other thread reads or writes; do nothing if the engine is closed."""
        with self.exclusive(), self.reader.state_lock:
            if not self.reader.is_closed:
                use()

    def refresh(self) -> None:
        """Fold everything that other processes and machines have written so far."""
        self.reader.check_open()
        if self.shared is not None:
            self.shared.refresh()
        self.reader.notice()

    def check_at_head(self, check: Callable[[int], T]) -> T:
        """Return the result of a check of seqs against the head; if it fails, refresh and check once more."""
        try:
            return check(self.reader.head)
        except (InvalidInput, LimitExceeded):
            self.refresh()
            return check(self.reader.head)

    def reload(self) -> None:
        """Drop everything in RAM and read it again; for callers that changed rows below the engine."""
        with self.exclusive(), self.reader.state_lock:
            self.reader.restart()


def open_engine(
    path: str | None,
    *,
    readonly: bool,
    clock_ns: Callable[[], int],
    random_bytes: Callable[[int], bytes],
    memory_bytes: int,
    delayed: bool,
    witness: str | None = None,
    cache: str | None = None,
) -> Engine:
    """Return an engine over the store at ``path``, creating it if there is none, or over RAM for ``None``.

    ``path`` can be the address of a log on a server, with its local copy in ``cache``. With a ``witness``, the log must
    be the one that the witness saw; otherwise nothing is changed and no store is created.
    """
    replica: ReplicaLog | None = None
    if path is not None and is_address(path):
        from refold.log.replica import open_replica  # noqa: PLC0415 - loaded only for a log on a server

        log: Log = (replica := open_replica(path, readonly=readonly, seed=_seed(random_bytes), cache=cache))
    else:
        log = _open_log(path, readonly=readonly, random_bytes=random_bytes, delayed=delayed, witness=witness)
    try:
        engine = Engine(log, clock_ns=clock_ns, random_bytes=random_bytes, memory_bytes=memory_bytes)
        engine.is_durable = replica is not None or (path is not None and not delayed)
        if witness is not None:
            engine.watch(witness)
        engine.sweep_again()
        if replica is not None:
            engine.shared, engine.writer.server = replica, replica.commits.name
            replica.follow(engine.run_exclusive)
    except BaseException:
        log.close()
        if replica is not None:
            replica.join()
        raise
    return engine


def _seed(random_bytes: Callable[[int], bytes]) -> dict[bytes, bytes]:
    return {STORE_ID_KEY: random_bytes(STORE_ID_BYTES), HASH_KEY: random_bytes(HASH_KEY_BYTES)}


def _check_not_replica(log: Log, path: str) -> None:
    if log.row("meta", POSITION_KEY) is not None:
        raise InvalidInput(f"{path} is the local copy of a log on a server; open the address of that log, or readonly")


def _open_log(
    path: str | None, *, readonly: bool, random_bytes: Callable[[int], bytes], delayed: bool, witness: str | None
) -> Log:
    seed = _seed(random_bytes)
    if path is None:
        from refold.log.memory_log import RamLog  # noqa: PLC0415 - a store on disk needs no log in RAM

        in_ram = RamLog()
        write(in_ram, (), [("meta", key, value) for key, value in seed.items()])
        return in_ram
    from refold.log.directory import directory_at, holds_store  # noqa: PLC0415 - a memory in RAM needs no LMDB
    from refold.log.lmdb_log import LmdbLog  # noqa: PLC0415

    if witness is not None:
        from refold.engine import witness as engine_witness  # noqa: PLC0415 - loaded only with a witness

        engine_witness.prepare(witness, has_store=holds_store(path), readonly=readonly)
    log = LmdbLog(directory_at(path, readonly=readonly, seed=seed, exclusive=delayed))
    try:
        if not readonly:
            _check_not_replica(log, path)
        if not delayed:
            return log
        from refold.log.delayed import DelayedLog  # noqa: PLC0415 - loaded only for delayed writes

        return DelayedLog(log)
    except BaseException:
        log.close()  # A traceback may keep it alive.
        raise
