"""The stores open in this process: memories of the same path share one, and each memory is closed separately."""

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from weakref import WeakSet, WeakValueDictionary

from refold import checks
from refold.engine.engine import Engine, open_engine
from refold.engine.vectors import has_rows
from refold.errors import StoreBusy
from refold.limits import MEMORY_BYTES_DEFAULT, OPEN_WAIT_SECONDS_MAX
from refold.log.commits import hide_password, is_address
from refold.memory.core import ClosedEngine, Core
from refold.threads import LOOK_SECONDS, forkable_lock

if TYPE_CHECKING:
    from refold.embedders import Embedder


class Terms(NamedTuple):
    """The terms shared by all memories of a store. A memory that omits one accepts the store's, except ``delayed``."""

    delayed: bool = False
    memory_bytes: int = MEMORY_BYTES_DEFAULT
    embedder: "Embedder | None" = None
    witness: str | None = None
    clock_ns: Callable[[], int] = time.time_ns  # noqa: TID251 - compared here, and called only by the engine
    random_bytes: Callable[[int], bytes] = os.urandom


_EMBEDDER: Final = ("id", "dim", "merge_threshold", "compact_threshold", "floor_rate")
"""The attributes that two embedders must share to be the same one. Each run of a notebook cell makes a new object."""


def _options(terms: Terms) -> dict[str, object]:
    """Return the options of ``Memory`` that terms stand for, as they are compared and shown."""
    options = terms._asdict()
    is_delayed, embedder = options.pop("delayed"), options.pop("embedder")
    described = {name: getattr(embedder, name) for name in _EMBEDDER if hasattr(embedder, name)}
    durability = "delayed" if is_delayed else "durable"
    return {"durability": durability, "embedder": described or "built-in", **options}


_opening: Final["WeakValueDictionary[str, threading.RLock]"] = WeakValueDictionary()
"""Locks by path, each held while the store there is opened, so that two threads open it once."""
_holding: Final = forkable_lock()
"""Held briefly while the holders of any store change, or the locks above."""
_shares: "WeakSet[Share]" = WeakSet()
"""The stores in directories that this process opened for writing."""


class Share:
    """An open store, and the cores of the memories that hold it; a garbage-collected core no longer holds it."""

    def __init__(self, main: Core, terms: Terms) -> None:
        self._main = main
        self._terms = terms
        self._holders: WeakSet[Core] = WeakSet()
        self._closers: set[int] = set()
        """The threads that are closing the store."""

    @property
    def is_closing(self) -> bool:
        """Whether a thread is closing the store."""
        return bool(self._closers)

    def hold(self, **own: Any) -> Core:
        """Return the core of an additional memory, with its own defaults; it embeds messages if the store does."""
        core = Core(self._main.engine, main=self._main, path=self._main.path, embedder=self._terms.embedder, **own)
        if has_rows(core.engine.reader.log):
            from refold.memory.message_vectors import follow  # noqa: PLC0415 - loaded only if messages are embedded

            follow(core)
        core.leave = self.leave
        self._holders.add(core)
        return core

    def is_of(self, files: object) -> bool:
        """Return whether this is the store with these files, and still open."""
        reader = self._main.engine.reader
        return reader.log.files is files and not reader.is_closed

    def check(self, terms: Terms, path: str) -> None:
        """Raise ``StoreBusy`` if a memory wants the store on other terms."""
        default = _options(Terms())
        for (option, wanted), known in zip(_options(terms).items(), _options(self._terms).values(), strict=True):
            if wanted != known and (option == "durability" or wanted != default[option]):
                raise StoreBusy(
                    f"this process has the store at {path} open with another {option}: {checks.brief(known)}, not "
                    f"{checks.brief(wanted)}; give the same one, or close the memories that have it"
                )

    def leave(self, core: Core) -> None:
        """Close a memory, and the store with the last one; if that raises, both stay as they are.

        After an interrupted call, another call does the rest.
        """
        me = threading.get_ident()
        try:
            with _holding:
                if core in self._holders and len(self._holders) == 1:
                    self._closers.add(me)
                else:
                    self._holders.discard(core)
            if me in self._closers:
                self._main.close()
                return
        finally:
            self._closers.discard(me)
        reason = f"this memory is closed; open the store again with Memory({core.path!r})"
        core.engine = cast("Engine", ClosedEngine(reason))
        for subscription in core.subscriptions:
            subscription.close()
        for watch in tuple(core.own_watches):
            watch.close()
        if not self._main.engine.reader.is_closed:
            self._main.engine.reader.log.durability.flush()


def open_core(place: str | None, terms: Terms, *, readonly: bool, cache: str | None, **own: Any) -> Core:
    """Return the core of a memory over the store at a path, which is opened unless this process has it open already.

    ``own`` are the memory's own defaults. A store that is read-only, in RAM or on a server is not shared with other
    memories.
    """
    if place is None or readonly or is_address(place):
        return _open(place, terms, is_shared=False, readonly=readonly, cache=cache, **own)
    until = time.monotonic() + OPEN_WAIT_SECONDS_MAX
    with _holding:
        opening = _opening.setdefault(os.path.realpath(place), forkable_lock())
    while True:
        with opening:
            share = _find_share(place)
            if share is None:
                return _open(place, terms, is_shared=True, readonly=readonly, cache=cache, **own)
            share.check(terms, place)
            with _holding:
                if not share.is_closing:
                    return share.hold(**own)
        if time.monotonic() > until:
            raise StoreBusy(f"this process is closing the store at {place} for long; call again")
        time.sleep(LOOK_SECONDS)


def _open(place: str | None, terms: Terms, *, is_shared: bool, readonly: bool, cache: str | None, **own: Any) -> Core:
    engine = open_engine(
        place,
        readonly=readonly,
        clock_ns=terms.clock_ns,
        random_bytes=terms.random_bytes,
        memory_bytes=terms.memory_bytes,
        delayed=terms.delayed,
        witness=terms.witness,
        cache=cache,
    )
    try:
        path = None if place is None else hide_password(place)
        share = Share(Core(engine, path=path, embedder=terms.embedder, **own), terms)
        core = share.hold(**own)
        if is_shared:
            _shares.add(share)
    except BaseException:
        engine.close()
        raise
    return core


def _find_share(directory: str) -> Share | None:
    if not _shares:
        return None
    from refold.log.registry import writer_at  # noqa: PLC0415 - loaded only if a directory is open

    files = writer_at(directory)
    return None if files is None else next((share for share in list(_shares) if share.is_of(files)), None)
