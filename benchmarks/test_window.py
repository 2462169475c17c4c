"""The window and its floor: both return the same objects after the same messages."""

import pytest
import workloads
from peers.loader import load
from rounds import Job, Measure
from rows import window


@pytest.mark.parametrize("name", [window.REFOLD, window.DEQUE])
def test_append_evict_and_read(name: str, measure: Measure, sizes: workloads.Sizes) -> None:
    windows = window.Windows(sizes.window_operations)
    measure(windows.jobs()[name])
    windows.fold()
    assert len(windows.read) == workloads.WINDOW_MESSAGES
    assert windows.read[-1].event == windows.arriving[-1][0]
    assert windows.slide() == workloads.WINDOW_MESSAGES


def test_the_floor_returns_what_refold_returns(sizes: workloads.Sizes) -> None:
    windows = window.Windows(sizes.window_operations)
    for name in (window.REFOLD, window.DEQUE):
        job = windows.jobs()[name]
        job.prepare()
        job.run()
    assert list(windows.messages) == windows.read


def test_trim_messages_of_langchain(measure: Measure) -> None:
    peer, reason = load("langchain_window", "langchain_core")
    if peer is None:
        pytest.skip(reason)
    trimmed = peer.Trimmed(window.BUDGET, workloads.MESSAGE_TOKENS)
    for _ in range(2 * workloads.WINDOW_MESSAGES):
        trimmed.step()
    measure(Job(trimmed.step))
    assert len(trimmed.history) == workloads.WINDOW_MESSAGES
