"""Builds of refold that are broken on purpose, in which the rig has to find violations."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, Final

from refold.engine import backup
from refold.engine.engine import Engine
from refold.engine.reader import UNSWEPT_KEY
from refold.errors import StoreError
from refold.log import delayed, directory, environment, lmdb_log, site
from refold.log.delayed import Tail


def sound() -> None:
    """Change nothing."""


def go_on() -> None:
    """Write on after an I/O error."""
    environment.Environment.stop = lambda *_: None  # type: ignore[method-assign]


def acknowledge_failures() -> None:
    """Tell those whose write failed that it was written."""
    commit = lmdb_log.LmdbTurn.write

    @wraps(commit)
    def committed(*arguments: Any) -> None:
        with suppress(StoreError):
            commit(*arguments)

    setattr(lmdb_log.LmdbTurn, commit.__name__, committed)


def stay_panicked() -> None:
    """Leave LMDB's environment as it is once it refuses even to read."""
    for name in ("is_panicked", "_regain"):
        assert hasattr(environment.Environment, name)
        setattr(environment.Environment, name, lambda _: False)


def drop_tails() -> None:
    """Forget what waits for the disk when the disk fails."""
    write = delayed.DelayedLog._flush_written

    @wraps(write)
    def written(self: Any) -> None:
        try:
            write(self)
        except StoreError:
            self._written, self._failure = None, None
            self._waiting = Tail(self._inner.head())

    delayed.DelayedLog._flush_written = written  # type: ignore[method-assign]


def create_in_place() -> None:
    """Create a store where it will stand."""

    def create(path: str, seed: dict[bytes, bytes]) -> None:
        Path(path).mkdir()
        directory._create_inside(path, seed)

    directory._create = create


def forget_sweeps() -> None:
    """Leave what a sweep that failed has left to do."""

    def is_unswept(engine: Engine) -> bool:
        return engine.reader.log.row("meta", UNSWEPT_KEY) == b""

    setattr(Engine, "is_unswept", property(is_unswept))  # noqa: B010 - a property is no attribute to assign


def back_up_in_place() -> None:
    """Make a backup where it will stand."""

    @contextmanager
    def built(path: str, *_: Any, **__: Any) -> Generator[str]:
        with site._telling(path):
            Path(path).mkdir()
            yield path

    setattr(backup, "building", built)  # noqa: B010 - a name that the module does not export


BUILDS: Final[Mapping[str, Callable[[], None]]] = {
    "sound": sound,
    "go_on": go_on,
    "acknowledge_failures": acknowledge_failures,
    "stay_panicked": stay_panicked,
    "drop_tails": drop_tails,
    "create_in_place": create_in_place,
    "forget_sweeps": forget_sweeps,
    "back_up_in_place": back_up_in_place,
}
