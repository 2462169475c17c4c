"""Tables of many projects in a bound of RAM; graphs kept in a store, and stores from before they were."""

import gc
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from refold import Memory
from refold.engine.streams import number_key
from refold.index.cache import IndexCache
from refold.index.hnsw import seqs_of
from refold.index.ranking import Query
from refold.index.table import Crossover, VectorTable
from refold.log.directory import directory_at
from refold.log.lmdb_log import LmdbLog
from refold.log.protocol import write
from tests.index.scan import BEGIN_NS, MODEL, ask, filled, near, needs_hnswlib, searched, told
from tests.support.seams import log_of

DIMENSIONS = 32
WISH = Query(now_ns=BEGIN_NS)


def filler(seed: int, fills: list[int], count: int = 100) -> Callable[[], VectorTable]:
    def fill() -> VectorTable:
        fills.append(seed)
        shelf = VectorTable(DIMENSIONS, MODEL)
        filled(shelf, count, seed)
        return shelf

    return fill


def test_cold_shelves_leave_and_come_back_the_same() -> None:
    fills: list[int] = []
    one_bytes = filler(0, [])().nbytes
    shelves = IndexCache[VectorTable](bytes_max=3 * one_bytes + one_bytes // 2)
    first = [told(searched(shelves.get(seed, filler(seed, fills)), ask(None), WISH).hits) for seed in range(10)]
    assert len(shelves) == 3
    assert shelves.nbytes <= 3 * one_bytes + one_bytes // 2
    assert fills == list(range(10))
    shelves.get(7, filler(7, fills))  # Still there, and from now on the last to leave.
    shelves.get(0, filler(0, fills))
    assert fills == [*range(10), 0]
    shelves.get(7, filler(7, fills))
    assert fills == [*range(10), 0]
    again = [told(searched(shelves.get(seed, filler(seed, fills)), ask(None), WISH).hits) for seed in range(10)]
    assert again == first
    shelves.close()
    assert (len(shelves), shelves.nbytes) == (0, 0)


def test_a_shelf_that_left_gives_its_memory_back_at_once() -> None:
    """Without waiting for a collection of cycles, which comes late where few objects hold much memory."""
    shelves = IndexCache[VectorTable](bytes_max=1)
    left = weakref.ref(shelves.get(0, filler(0, [])))
    gc.collect()
    gc.disable()
    try:
        shelf = left()
        assert shelf is not None
        assert searched(shelf, ask(np.ones(DIMENSIONS), ["word1"]), WISH).hits
        assert near(shelf, np.ones(DIMENSIONS), WISH).hits
        del shelf
        shelves.get(1, filler(1, []))
        assert left() is None
    finally:
        gc.enable()


def test_one_shelf_may_be_larger_than_the_bound() -> None:
    shelves = IndexCache[VectorTable](bytes_max=1)
    fills: list[int] = []
    assert shelves.get(1, filler(1, fills)) is shelves.get(1, filler(1, fills))
    shelves.get(2, filler(2, fills))
    assert len(shelves) == 1
    assert fills == [1, 2]


def test_a_shelf_that_grows_pushes_others_out() -> None:
    fills: list[int] = []
    one_bytes = filler(0, [])().nbytes
    shelves = IndexCache[VectorTable](bytes_max=4 * one_bytes)
    for seed in range(3):
        shelves.get(seed, filler(seed, fills))
    filled(shelves.get(2, filler(2, fills)), 150, 9, first_seq=1_000)
    shelves.get(2, filler(2, fills))
    assert len(shelves) == 2
    assert shelves.nbytes <= 4 * one_bytes


def test_a_dropped_shelf_is_filled_again() -> None:
    fills: list[int] = []
    shelves = IndexCache[VectorTable](2**30)
    shelf = shelves.get("name", filler(3, fills))
    shelves.drop("name", shelf)
    shelves.drop("name", shelf)
    assert shelves.nbytes == 0
    assert shelves.get("name", filler(3, fills)) is not shelf
    assert fills == [3, 3]


def test_a_shelf_is_filled_once_however_many_ask() -> None:
    fills: list[int] = []
    fill, arrived = filler(4, fills), threading.Barrier(6)
    shelves, found = IndexCache[VectorTable](2**30), list[VectorTable]()

    def ask() -> None:
        arrived.wait()
        found.append(shelves.get("name", fill))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fills == [4]
    assert {id(shelf) for shelf in found} == {id(found[0])}


def test_filling_that_fails_leaves_nothing_and_is_tried_again() -> None:
    shelves = IndexCache[VectorTable](2**30)

    def fail() -> VectorTable:
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            shelves.get("name", fail)
    assert len(shelves) == 0
    assert searched(shelves.get("name", filler(1, [])), ask(None), WISH).hits


def test_filling_that_fails_keeps_nothing_of_its_key() -> None:
    class Key:
        pass

    def fail() -> VectorTable:
        raise ZeroDivisionError

    shelves, key = IndexCache[VectorTable](2**30), Key()
    left = weakref.ref(key)
    with suppress(ZeroDivisionError):
        shelves.get(key, fail)
    del key
    gc.collect()
    assert left() is None


def test_one_of_those_that_ask_fails_and_the_others_get_one_shelf() -> None:
    fills: list[int] = []
    fill, arrived = filler(4, fills), threading.Barrier(6)
    shelves, found, failed = IndexCache[VectorTable](2**30), list[VectorTable](), list[Exception]()

    def fill_at_second() -> VectorTable:
        if not failed:
            failed.append(ZeroDivisionError())
            raise failed[0]
        return fill()

    def ask() -> None:
        arrived.wait()
        with suppress(ZeroDivisionError):
            found.append(shelves.get("name", fill_at_second))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (fills, len(found)) == ([4], 5)
    assert {id(shelf) for shelf in found} == {id(found[0])}


@needs_hnswlib
def test_a_graph_is_kept_in_a_store_with_the_position_of_its_log(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.conversation("chat").append("user", "hello", tokens=1)
    shelf = VectorTable(DIMENSIONS, MODEL, crossover=Crossover(1, 1))
    filled(shelf, 900, 5)
    near(shelf, np.ones(DIMENSIONS), WISH)
    shelf.builder.wait()
    blob = shelf.graph_to_bytes(2)
    assert blob is not None
    log = LmdbLog(directory_at(str(tmp_path / "store"), readonly=False, seed={}))
    write(log, (), [("graphs", number_key(1), blob)])
    log.close()
    with Memory(tmp_path / "store") as memory:
        kept = log_of(memory).row("graphs", number_key(1))
        assert kept is not None
        again = VectorTable(DIMENSIONS, MODEL, crossover=Crossover(1, 1))
        filled(again, 900, 5)
        again.graph_from_bytes(kept)
        assert len(seqs_of(kept)) == 900
        # It may tell of what is erased, so it goes with it.
        memory.conversation("chat").erase()
        assert log_of(memory).row("graphs", number_key(1)) is None
        assert memory.verify().ok
