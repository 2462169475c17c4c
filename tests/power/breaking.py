"""Builds of refold: the sound one, and deliberately broken ones in which the rig has to find violations."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

import lmdb

from refold.store import directory
from refold.store.log import LmdbLog, LmdbTurn

Verb = Callable[..., Any]


def sound() -> None:
    """Change nothing."""


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
    assert callable(directory._flush_directory)
    directory._flush_directory = lambda _path: None  # type: ignore[assignment]


def acknowledge_early() -> None:
    """Let a turn's ``write`` return before it wrote: it writes when the log is asked for anything else."""
    held: list[Callable[[], Any]] = []

    def after_held(verb: Verb) -> Verb:
        @wraps(verb)
        def catch_up(*arguments: Any, **options: Any) -> Any:
            while held:
                held.pop(0)()
            return verb(*arguments, **options)

        return catch_up

    write = LmdbLog.write
    for name, verb in list(vars(LmdbLog).items()):
        if not name.startswith("_") and callable(verb):
            setattr(LmdbLog, name, after_held(verb))

    def hold(turn: LmdbTurn, *arguments: Any, **options: Any) -> None:
        log, txn, turn._txn = turn._log, turn._txn, None
        assert txn is not None
        txn.abort()
        held.append(lambda: write(log, *arguments, **options))

    LmdbTurn.write = hold  # type: ignore[assignment, method-assign]


BUILDS: Final[Mapping[str, Callable[[], None]]] = {
    "sound": sound,
    "no_sync": open_with(sync=False),
    "no_meta_sync": open_with(metasync=False),
    "no_directory_flush": leave_directories,
    "early_acknowledgement": acknowledge_early,
}
