"""Builds of refold that are broken on purpose: a rig that stays green on one proves nothing.

Each takes the place of something in this process, until it ends. Which rig sees which is said by the tests of the rigs;
``test_breaks.py`` fails if one is seen by none.
"""

import os
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial, wraps
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import lmdb

from refold import fold
from refold.engine import backup, erasure, fold_check, walk
from refold.engine import witness as engine_witness
from refold.engine.engine import Engine
from refold.errors import StoreError
from refold.log import clean_copy, delayed, directory, disk, environment, lmdb_log, witness
from refold.log.delayed import Tail
from refold.log.lmdb_log import LmdbLog, LmdbTurn
from refold.log.protocol import Durability, Log, LogFiles
from refold.log.record import Record, erase_bodies
from refold.message import MessageAppended
from refold.results import Receipt

Verb = Callable[..., Any]


def sound() -> None:
    """Change nothing."""


# ------------------------------------------------------------------------------------------ what a flush is left out of


def open_with(**broken: bool) -> Callable[[], None]:
    """Return a build in which every LMDB environment is opened with the given options."""

    def change() -> None:
        opened = lmdb.open

        @wraps(opened)
        def open_broken(*arguments: Any, **options: Any) -> Any:
            return opened(*arguments, **{**options, **broken})

        lmdb.open = open_broken  # type: ignore[assignment]

    return change


def leave_directories() -> None:
    """Create a store without flushing any directory."""
    flush = disk.flush
    disk.flush = lambda path: None if Path(path).is_dir() else flush(path)


def witness_ahead() -> None:
    """Let a witness tell of events that are not durable yet."""
    seen = engine_witness._durable_slot

    def see_too_much(reader: Any) -> Any:
        head = reader.log.head()
        return seen(reader)._replace(seq=head, link=engine_witness._link_at(reader.log, head)) if head else seen(reader)

    engine_witness._durable_slot = see_too_much


def unflushed_witness() -> None:
    """Make a witness without flushing it before it gets its name."""
    create = witness.create

    def create_unflushed(path: str, witnessed: witness.WitnessSlot) -> bool:
        with patch("os.fsync"):
            return create(path, witnessed)

    witness.create = create_unflushed


def leave_copies() -> None:
    """Put copies of a store in place without flushing anything but what LMDB flushes."""
    assert callable(disk.flush)
    disk.flush = lambda _path: None  # type: ignore[assignment]
    clean_copy.os = SimpleNamespace(**vars(os) | {"fsync": lambda _file: None})  # type: ignore[attr-defined, assignment]


def leave_swaps() -> None:
    """Put a swept file in its place without flushing the directory that names it."""
    assert callable(vars(environment)["flush"])
    vars(environment)["flush"] = lambda _path: None


def forget_to_sweep() -> None:
    """Erase where the events are, and leave what they were in the file."""
    write = LmdbTurn.write

    def write_there(turn: LmdbTurn, records: Any, rows: Any = (), erased: Any = (), *, is_clean: bool = False) -> int:
        assert is_clean or not erased
        return write(turn, records, rows, erased)

    setattr(LmdbTurn, "write", method_of(write_there))  # noqa: B010 - as it is done below


def erase_late() -> None:
    """Say that events are erased, and erase them before the next erasure, or when the memory is closed."""
    held: list[Callable[[], Any]] = []
    erase = erasure.erase

    def erase_held() -> None:
        while held:
            held.pop()()

    def late(engine: Any, target: erasure.Target, *, derived: bool, forks: bool = False) -> Receipt:
        erase_held()
        held.append(partial(erase, engine, target, derived=derived, forks=forks))
        told = tuple(sorted(target.seqs))
        return Receipt(told, (), (), (), 0, 0, 0, 0, 0, 0, ())

    close = Engine.close

    def close_late(engine: Engine) -> None:
        erase_held()
        close(engine)

    erasure.erase = late
    setattr(Engine, "close", close_late)  # noqa: B010 - as it is done below


class EarlyTurns:
    """Turns whose ``write`` returns before it wrote: the log writes when it is asked for anything else.

    Nobody is inside a turn while a write is held back, and a write that is under way is still among the held ones. So
    who writes late waits for no turn, and may hold any lock of the engine meanwhile: a turn ends with its ``write``.
    """

    def __init__(self) -> None:
        self._held: list[Callable[[], None]] = []
        self._writing = threading.Lock()
        self._inside = threading.local()
        self._write_turn = LmdbTurn.write

    def _write(self, log: LmdbLog, *arguments: Any, **options: Any) -> None:
        log.in_turn(lambda turn: self._write_turn(turn, *arguments, **options))

    def write_held(self) -> None:
        """Write what is held back, in order; inside a turn there is nothing."""
        if not self._held or getattr(self._inside, "turn", False):
            return
        with self._writing:
            while self._held:
                self._inside.turn = True
                self._held[0]()
                del self._held[0]
            self._inside.turn = False

    def when_none_is_held(self, in_turn: Verb) -> Verb:
        """Return a verb that calls with a turn once nothing is held back."""

        @wraps(in_turn)
        def taken(log: LmdbLog, use: Verb) -> Any:
            if getattr(self._inside, "turn", False):
                return in_turn(log, use)
            while True:
                self.write_held()
                used: list[Any] = []
                in_turn(log, partial(self._use, log, use, used))
                if used:
                    return used[0]

        return taken

    def _use(self, log: LmdbLog, use: Verb, used: list[Any], turn: LmdbTurn) -> None:
        """Use a turn if nothing is held back; take the lock that its ``write`` gave back again, for the end."""
        if self._held:
            return
        self._inside.turn, self._inside.log = True, log
        try:
            used.append(use(turn))
        finally:
            if not self._inside.turn:
                turn._environment.writing.acquire()
            self._inside.turn = False

    def hold(self, turn: LmdbTurn, *arguments: Any, **options: Any) -> int:
        """End a turn and hold back what it should have written; return the number that its commit is to get."""
        assert self._inside.turn, "a turn writes once"
        self._held.append(partial(self._write, self._inside.log, *arguments, **options))
        turn.txn, turn.is_open = None, False
        shared = turn._environment
        if shared.turnstile.is_held:
            shared.turnstile.unlock()
            shared.turnstile.is_held = False
        shared.writing.release()
        self._inside.turn = False
        return turn.last_commit + 1

    def after_held(self, verb: Verb) -> Verb:
        """Return a verb of the log that first writes what is held back."""

        @wraps(verb)
        def asked(*arguments: Any, **options: Any) -> Any:
            self.write_held()
            return verb(*arguments, **options)

        return asked


def method_of(change: Verb) -> Verb:
    """Return a function that takes the turn as its ``self``, which a method of another object does not."""

    def method(turn: LmdbTurn, *arguments: Any, **options: Any) -> Any:
        return change(turn, *arguments, **options)

    return method


def acknowledge_early() -> None:
    """Let a turn's ``write`` return before it wrote."""
    early = EarlyTurns()
    for kind, protocol in ((LmdbLog, Log), (directory.Directory, LogFiles), (environment.Environment, Durability)):
        for name in vars(protocol):
            verb = vars(kind).get(name)
            if not name.startswith("_") and callable(verb):
                wrap = early.when_none_is_held if name in {"in_turn", "in_snapshot"} else early.after_held
                setattr(kind, name, wrap(verb))
    setattr(LmdbTurn, "write", method_of(early.hold))  # noqa: B010 - as above


# ------------------------------------------------------------------------------------------ what a failed call leads to


def go_on() -> None:
    """Write on after an I/O error."""
    environment.Environment.stop = lambda *_: None  # type: ignore[method-assign]


def acknowledge_failures() -> None:
    """Tell those whose write failed that it was written."""
    commit = lmdb_log.LmdbTurn.write

    @wraps(commit)
    def committed(turn: LmdbTurn, *arguments: Any) -> int:
        with suppress(StoreError):
            return commit(turn, *arguments)
        return turn.last_commit

    setattr(lmdb_log.LmdbTurn, commit.__name__, committed)


def stay_panicked() -> None:
    """Leave LMDB's environment as it is once it refuses even to read."""
    for name in ("is_panicked", "_recover_panic"):
        assert hasattr(environment.Environment, name)
        setattr(environment.Environment, name, lambda _: False)


def drop_tails() -> None:
    """Forget what waits for the disk when the disk fails."""
    write = delayed.DelayedLog._flush_tail

    @wraps(write)
    def written(self: Any) -> None:
        try:
            write(self)
        except StoreError:
            self._written, self._failure = None, None
            self._waiting = Tail(self._inner.head())

    delayed.DelayedLog._flush_tail = written  # type: ignore[method-assign]


def create_in_place() -> None:
    """Create a store where it will stand."""

    def create(path: str, seed: dict[bytes, bytes]) -> None:
        Path(path).mkdir()
        directory._create_inside(path, seed)

    directory._create = create


def back_up_in_place() -> None:
    """Make a backup where it will stand."""

    @contextmanager
    def built(path: str, *_: Any, **__: Any) -> Generator[str]:
        try:
            Path(path).mkdir()
            yield path
        except OSError as error:
            raise disk.disk_error(error, path, "call again") from error

    setattr(backup, "build_directory", built)  # noqa: B010 - a name that the module does not export


def replace_in_silence() -> None:
    """Replace the file, and let nobody notice who has it open."""
    environment.Turnstile.count_replacement = lambda _: None  # type: ignore[assignment, method-assign]


def keep_salts() -> None:
    """Erase bodies from records, and leave the records the salts that they had."""

    def cut_only(record: bytes, places: Any, blank: Any, _salt: bytes) -> bytes:
        return erase_bodies(record, places, blank, Record(record).salt)

    setattr(erasure, "erase_bodies", cut_only)  # noqa: B010 - a name that the module does not export


# ------------------------------------------------------------------------------------------------ what is not looked at


def skip_links() -> None:
    """Believe every record: hold none against the chain."""
    setattr(walk.Walk, "_link", lambda *_: iter(()))  # noqa: B010 - a name that the module does not export


def skip_checkpoints() -> None:
    """Believe every checkpoint row and digest."""
    setattr(fold_check.FoldCheck, "_schedule", lambda _: None)  # noqa: B010


def skip_structure() -> None:
    """Let LMDB follow whatever stands in the file, as it does in one that is too large to be walked at opening."""
    setattr(environment, "check_structure", lambda *_: None)  # noqa: B010


# -------------------------------------------------------------------------------------------- what is lost now and then

EVERY: Final = 7
"""One of how many goes wrong."""

ENOUGH: Final = 20
"""How many writes go well in a process that then loses all: enough for the streams that threads share to be opened."""


def replace_in_log(name: str, replacement: Callable[[Verb], Verb]) -> None:
    """Replace a method in every class of the log on disk that has it."""
    having = [kind for kind in (LmdbLog, LmdbTurn) if name in vars(kind)]
    assert having, f"neither the log on disk nor its turns have a method {name}"
    for kind in having:
        original = getattr(kind, name)
        setattr(kind, name, wraps(original)(replacement(original)))


def lose_acknowledgements() -> None:
    """Skip a write of the log now and then, and return as if it were durable; not one that opens a stream.

    The events of a stream without its name could not be read at all, and a rig has to find what is hard to find.
    """
    numbers = count(1)

    def skipping(write: Verb) -> Verb:
        def written(turn: LmdbTurn, records: Any, rows: Any = (), **options: Any) -> int:
            if any(table != "requests" for table, _, _ in rows) or next(numbers) % EVERY:
                return int(write(turn, records, rows, **options))
            return turn.last_commit

        return written

    replace_in_log("write", skipping)


def lose_the_end() -> None:
    """Write nothing any more after some writes, and return as if it were durable: no gap in the log tells of it."""
    numbers = count(1)

    def skipping(write: Verb) -> Verb:
        def written(turn: LmdbTurn, *arguments: Any, **options: Any) -> int:
            return int(write(turn, *arguments, **options)) if next(numbers) < ENOUGH else turn.last_commit

        return written

    replace_in_log("write", skipping)


def skip_folds() -> None:
    """Leave a message out of the state now and then."""
    fold_one, fold_run, numbers = fold.fold, fold.fold_run, count(1)

    def is_kept(event: Any) -> bool:
        return not isinstance(event, MessageAppended) or bool(next(numbers) % EVERY)

    def skipping(state: Any, stamp: Any, event: Any) -> None:
        if is_kept(event):
            fold_one(state, stamp, event)

    def skipping_run(state: Any, stamps: Any, events: Any) -> None:
        kept = [pair for pair in zip(stamps, events, strict=True) if is_kept(pair[1])]
        if kept:
            fold_run(state, *map(list, zip(*kept, strict=True)))

    fold.fold, fold.fold_run = skipping, skipping_run


def forget_requests() -> None:
    """Find no request that was answered before."""

    def forgetting(row: Verb) -> Verb:
        return lambda self, table, key: None if table == "requests" else row(self, table, key)

    replace_in_log("row", forgetting)


BUILDS: Final[Mapping[str, Callable[[], None]]] = {
    "sound": sound,
    "no_sync": open_with(sync=False),
    "no_meta_sync": open_with(metasync=False),
    "no_directory_flush": leave_directories,
    "no_copy_flush": leave_copies,
    "no_swap_flush": leave_swaps,
    "forgotten_sweep": forget_to_sweep,
    "late_erasure": erase_late,
    "early_acknowledgement": acknowledge_early,
    "witness_ahead": witness_ahead,
    "unflushed_witness": unflushed_witness,
    "go_on": go_on,
    "acknowledge_failures": acknowledge_failures,
    "stay_panicked": stay_panicked,
    "drop_tails": drop_tails,
    "create_in_place": create_in_place,
    "backup_in_place": back_up_in_place,
    "silent_replacement": replace_in_silence,
    "kept_salts": keep_salts,
    "skip_links": skip_links,
    "skip_checkpoints": skip_checkpoints,
    "skip_structure": skip_structure,
    "lost_acknowledgement": lose_acknowledgements,
    "lost_end": lose_the_end,
    "skipped_fold": skip_folds,
    "forgotten_request": forget_requests,
}
