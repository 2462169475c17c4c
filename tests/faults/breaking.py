"""Builds of refold that are broken on purpose, in which the rig has to find violations."""

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Final

from refold.errors import StoreError
from refold.store import delayed, directory, environment, turns
from refold.store.tail import Tail


def sound() -> None:
    """Change nothing."""


def go_on() -> None:
    """Write on after an I/O error."""
    environment.Environment.stop = lambda *_: None  # type: ignore[method-assign]


def acknowledge_failures() -> None:
    """Tell those whose write failed that it was written."""
    commit = turns.LmdbTurn.commit

    @wraps(commit)
    def committed(*arguments: Any) -> bool:
        try:
            return commit(*arguments)
        except StoreError:
            return True

    setattr(turns.LmdbTurn, commit.__name__, committed)


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


BUILDS: Final[Mapping[str, Callable[[], None]]] = {
    "sound": sound,
    "go_on": go_on,
    "acknowledge_failures": acknowledge_failures,
    "stay_panicked": stay_panicked,
    "drop_tails": drop_tails,
    "create_in_place": create_in_place,
}
