"""No order in which the engine takes its locks lets threads wait for each other for ever."""

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase

from refold import Memory
from refold.memory import search as searches
from tests.differential.machine import main
from tests.engine.test_stress import BEGIN_COUNT, Work, fill
from tests.index.scan import needs_hnswlib
from tests.rigs.lock_order import Lock, LockOrder, recorded
from tests.support.bounds import lowered

ROUNDS = 12


def new_order() -> tuple[LockOrder, Lock, Lock, Lock]:
    order = LockOrder({}, set())
    one, other, gate = (Lock(order, threading.RLock(), name) for name in ("one", "other", "gate"))
    return order, one, other, gate


def test_two_orders_of_two_locks_are_a_circle() -> None:
    order, one, other, _ = new_order()
    with one, other:
        pass
    assert order.circles() == []
    with other, one:
        pass
    assert [step.split("\n")[0] for step in order.circles()] == ["one, then other", "other, then one"]


def test_a_lock_around_both_orders_keeps_them_apart() -> None:
    order, one, other, gate = new_order()
    with gate, one, other:
        pass
    with gate, other, one:
        pass
    assert order.circles() == []
    with other, one:
        pass
    assert len(order.circles()) == 2


def test_a_lock_that_is_only_tried_makes_no_order() -> None:
    order, one, other, _ = new_order()
    with one, other:
        pass
    with other:
        assert one.acquire(blocking=False)
        one.release()
    assert order.circles() == []


@pytest.mark.slow
def test_all_verbs_take_their_locks_in_one_order() -> None:
    with recorded() as order:
        main(7, 12, 30, phases=(Phase.generate,))
    assert len(order.waits) > 20
    assert order.circles() == []


@needs_hnswlib
@pytest.mark.slow
@pytest.mark.parametrize("durability", [None, "durable", "delayed"])
def test_searches_beside_writers_take_their_locks_in_one_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str | None
) -> None:
    options: dict[str, Any] = {} if durability is None else {"durability": durability}
    path = None if durability is None else tmp_path / "store"
    bounds = {"CHECKPOINT_EVENTS": 16, "PACKED_SLICE_COUNT": 8, "TAIL_EVENTS_MAX": 200, "PACKED_COUNT_MIN": 1}
    with recorded() as order, lowered(**bounds), Memory(path, memory_bytes=2**20, **options) as memory:
        work = Work(memory)
        for number, project in enumerate(work.projects):
            fill(project, random.Random(number), BEGIN_COUNT)
        memory.fork("kept")
        draw = random.Random(3)
        verbs = [work.search, work.search_many, work.search_the_past, work.search_a_fork, work.add, work.tend]
        for turn in range(ROUNDS):
            monkeypatch.setattr(
                searches, "FILLS_COUNT_MAX", turn % 2
            )  # With none, a search fills under the state lock.
            for verb in verbs:
                verb(draw)
            work.add_many(draw)
    assert order.circles() == []
