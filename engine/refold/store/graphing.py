"""When a shelf gets a graph, when it gets another, and the thread that builds it."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from refold.limits import (
    CALIBRATED_ROWS_MIN,
    GRAPH_FRESH_ROWS_MIN,
    GRAPH_GONE_RATIO_MAX,
    HYBRID_NS,
    NEAREST_NS,
)
from refold.rank.products import product
from refold.store.graph import Graph, built, library
from refold.store.moments import Moment
from refold.store.threads import Worker

_logger = logging.getLogger("refold")

_TIMINGS: Final = 3
_FRESH_SHARE: Final = 20
"""One row behind a graph for so many in it may wait to be built in."""


class Crossover(NamedTuple):
    """From how many rows on a graph is faster than a pass over all of them."""

    nearest_rows: int
    hybrid_rows: int

    def least(self, *, is_hybrid: bool) -> int:
        """Return the number for one kind of search."""
        return self.hybrid_rows if is_hybrid else self.nearest_rows


def measured(moment: Moment) -> Crossover:
    """Return the crossover of this machine for rows like these, by timing one product with all of them."""
    matrix = moment.frame.matrix
    times: list[int] = []
    for _ in range(_TIMINGS):
        begin = time.perf_counter_ns()
        product(matrix, matrix[0])
        times.append(time.perf_counter_ns() - begin)
    row_ns = max(min(times) / len(matrix), 0.01)
    return Crossover(
        max(CALIBRATED_ROWS_MIN, round(NEAREST_NS / row_ns)), max(2 * CALIBRATED_ROWS_MIN, round(HYBRID_NS / row_ns))
    )


class Grower:
    """The graph of a shelf, and the one thread that builds the next one while the shelf is in use.

    A graph is built when a search would gain by it. It is built on where many rows came since, and anew where many of
    its rows are gone.
    """

    def __init__(
        self,
        lock: threading.RLock,
        now: Callable[[], Moment],
        swapped: Callable[[], None],
        crossover: Crossover | None,
    ) -> None:
        self._lock = lock
        self._now = now
        self._swapped = swapped
        self.fixed = crossover
        self._crossover: Crossover | None = None
        self._calibrated_count = 0
        self._uses = {True: False, False: False}
        self._thread: Worker | None = None
        self._is_closed = False
        self._refused_count = 0
        """How many rows there were when a graph was not worth having; at twice as many it is tried again."""
        self.graph: Graph | None = None
        self.builds_count = 0

    def pays(self, moment: Moment, *, is_hybrid: bool) -> bool:
        """Return whether the moment's graph is to be asked; where it is missing or old, begin to build another."""
        if self._is_closed:
            return False
        floor = self.fixed.least(is_hybrid=is_hybrid) if self.fixed is not None else CALIBRATED_ROWS_MIN
        count = moment.alive_count if 2 * moment.count >= floor else 0
        if 2 * count < floor:
            self._uses[is_hybrid] = False
            return False
        least = self._bounds(moment).least(is_hybrid=is_hybrid)
        # Once in use a graph is used until half of the rows are gone, so that it is not built for every second search.
        self._uses[is_hybrid] = count >= least or (self._uses[is_hybrid] and 2 * count >= least)
        if self._uses[is_hybrid] and moment is self._now():
            self._keep_up(moment)
        return self._uses[is_hybrid] and moment.graph is not None

    def _bounds(self, moment: Moment) -> Crossover:
        if self.fixed is not None:
            return self.fixed
        if self._crossover is None or moment.count >= 2 * self._calibrated_count:
            self._crossover = measured(moment)
            self._calibrated_count = moment.count
        return self._crossover

    def _keep_up(self, moment: Moment) -> None:
        """Begin to build a graph, if the one that is there is not good enough and nobody builds one."""
        if (self._thread is not None and not self._thread.is_over) or moment.count < 2 * self._refused_count:
            return
        graph = moment.graph
        if graph is not None:
            gone = graph.covered - int(np.count_nonzero(moment.frame.alive[: graph.end]))
            fresh = moment.count - graph.end
            is_worn = gone > GRAPH_GONE_RATIO_MAX * graph.covered
            if not is_worn and fresh <= max(GRAPH_FRESH_ROWS_MIN, graph.covered // _FRESH_SHARE):
                return
            graph = None if is_worn else graph
        self._start(moment, graph)

    def _start(self, moment: Moment, base: Graph | None) -> None:
        if library() is None:
            self._refused_count = moment.count
            return
        with self._lock:
            if (self._thread is None or self._thread.is_over) and not self._is_closed:
                # No daemon: a thread that is killed inside of a library may take the process with it.
                self._thread = Worker(partial(self._build, moment, base), "refold-graph", daemon=False)
                self._thread.start()

    def _build(self, moment: Moment, base: Graph | None) -> None:
        graph = None
        try:
            graph = built(moment.frame.matrix, moment.frame.alive, base, self._is_wanted)
        except (MemoryError, RuntimeError):
            _logger.exception("a graph of %d rows could not be built; searches pass over all rows", moment.count)
        finally:
            with self._lock:
                self._thread = None
                if graph is None:
                    self._refused_count = moment.count
                elif not self._is_closed:
                    self.take(graph)

    def _is_wanted(self) -> bool:
        """Return whether to go on building: neither the shelf was closed nor does the program end."""
        return not self._is_closed and threading.main_thread().is_alive()

    def take(self, graph: Graph) -> None:
        """Let searches that begin from now on ask this graph; the lock is held."""
        self.graph = graph
        self.builds_count += 1
        self._swapped()

    def settle(self) -> None:
        """Return once nothing is being built."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def close(self) -> None:
        """Stop building, and let the graph go, and the shelf: its vectors leave RAM with the last who uses it."""
        with self._lock:
            self._is_closed = True
        self.settle()
        with self._lock:
            self.graph = None
            self._swapped()
            # Each holds the other until here, and nobody may collect such cycles for long: arrays do not count there.
            self._now, self._swapped = _closed, _nothing


def _nothing() -> None:
    """Do nothing."""


def _closed() -> Moment:
    message = "a closed shelf has no graph to keep up"
    raise AssertionError(message)
