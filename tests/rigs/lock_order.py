"""Records in which order threads take the locks of the engine, and finds orders in which they could deadlock.

A deadlock needs an unlucky moment; the order that makes it possible shows in every run that takes the locks at all.
"""

import itertools
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple, Self

MAKERS = (threading.RLock, threading.Lock)
LENGTH_MAX = 4
"""The longest circle of locks that is looked for."""


class Wait(NamedTuple):
    """How a thread took a lock while it held others, given by their places."""

    held: frozenset[str]
    calls: list[str]


class Lock:
    """A lock that records what its thread held when it had to wait for it."""

    def __init__(self, order: "LockOrder", inner: Any, place: str) -> None:
        self.order, self.inner, self.place = order, inner, place

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT002 - as in `threading`
        if blocking and timeout == -1:
            self.order.note(self)
        is_taken: bool = self.inner.acquire(blocking, timeout)
        if is_taken:
            self.order.held.append(self)
        return is_taken

    def release(self) -> None:
        held = self.order.held
        place = next((place for place in reversed(range(len(held))) if held[place] is self), None)
        if place is None:
            self.order.signals.add(self.place)
        else:
            del held[place]
        self.inner.release()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class LockOrder(threading.local):
    """Every order in which two locks were taken, by the places that make them, and what each thread holds."""

    def __init__(self, waits: dict[tuple[str, str], list[Wait]], signals: set[str]) -> None:  # Called in each thread.
        self.held: list[Lock] = []
        self.waits = waits
        self.signals = signals
        """Locks that one thread takes and another frees, which are no locks but signals."""

    def note(self, lock: Lock) -> None:
        if any(each is lock for each in self.held):
            return
        held = frozenset(each.place for each in self.held)
        for place in held - {lock.place}:  # Locks that one line makes, as those of two stores, have no order.
            ways = self.waits.setdefault((place, lock.place), [])
            if all(way.held != held for way in ways):
                ways.append(Wait(held, calls(sys._getframe(2))))

    def circles(self) -> list[str]:
        """Describe each circle of locks in which as many threads could wait for each other."""
        after: dict[str, set[str]] = {}
        for first, second in list(self.waits):
            if not {first, second} & self.signals:
                after.setdefault(first, set()).add(second)
        found: list[str] = []
        for begin in after:
            paths: list[tuple[str, ...]] = [(begin,)]
            while paths:
                path = paths.pop()
                for place in after.get(path[-1], ()):
                    if place == begin and len(path) > 1:
                        found += self.describe(path)
                    elif place > begin and place not in path and len(path) < LENGTH_MAX:
                        paths.append((*path, place))
        return found

    def describe(self, path: tuple[str, ...]) -> list[str]:
        """Describe a circle, unless a lock that two of its threads hold keeps them apart."""
        pairs = list(zip(path, (*path[1:], path[0]), strict=True))
        for ways in itertools.product(*(self.waits[pair] for pair in pairs)):
            if all(one.held.isdisjoint(other.held - self.signals) for one, other in itertools.combinations(ways, 2)):
                steps = zip(pairs, ways, strict=True)
                return ["\n    ".join([f"{first}, then {second}", *way.calls]) for (first, second), way in steps]
        return []


def calls(frame: FrameType | None) -> list[str]:
    """Describe the calls of the engine that lead to a frame, innermost first."""
    lines: list[str] = []
    while frame is not None and len(lines) < 20:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("refold"):
            lines.append(f"{module}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return lines


@contextmanager
def recorded() -> Generator[LockOrder]:
    """Record the locks that modules of refold make in the block, and those that belong to its modules."""
    order = LockOrder({}, set())

    def maker(make: Callable[[], Any]) -> Callable[[], Any]:
        def made() -> Any:
            frame: FrameType = sys._getframe(1)
            while frame.f_globals.get("__name__") == "refold.threads" and frame.f_back is not None:
                frame = frame.f_back
            module = frame.f_globals.get("__name__", "")
            if not module.startswith("refold"):
                return make()
            return Lock(order, make(), f"{module}:{frame.f_lineno}")

        return made

    makers = {id(make): maker(make) for make in MAKERS}
    kinds = tuple(type(make()) for make in MAKERS)
    changes: list[tuple[Any, str, object]] = []
    common: dict[int, Lock] = {}
    for name, module in list(sys.modules.items()):
        if name != "threading" and not name.startswith("refold"):
            continue
        for key, value in list(vars(module).items()):
            if id(value) in makers:
                changes.append((module, key, value))
                setattr(module, key, makers[id(value)])
            elif isinstance(value, kinds) and name != "threading":
                changes.append((module, key, value))
                setattr(module, key, common.setdefault(id(value), Lock(order, value, f"{name}.{key}")))
    try:
        yield order
    finally:
        for module, key, value in changes:
            setattr(module, key, value)
