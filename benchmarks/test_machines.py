"""The model of workers and servers, where its outcome can be told without it."""

import pytest
from machines import Demands, Layout, simulated

COSTS = Demands(
    event=50e-6,
    commit=150e-6,
    server_event=5e-6,
    server_commit=195e-6,
    flush=600e-6,
    call=40e-6,
    server_call=30e-6,
    call_wait=30e-6,
    foreign_event=10e-6,
    foreign_commit=90e-6,
    has_turns=True,
)


def test_one_writer_takes_the_sum_of_all_services() -> None:
    outcome = simulated(COSTS, Layout(workers=1, logs=1, writers=1))
    assert outcome.events == pytest.approx(1_000, rel=0.01)
    assert outcome.median_seconds == pytest.approx(1e-3, rel=0.01)
    assert outcome.group == 1


def test_the_network_is_crossed_twice() -> None:
    layout = Layout(workers=1, logs=1, writers=1, machine_cores=1, server_cores=1, network_seconds=500e-6)
    assert simulated(COSTS, layout).events == pytest.approx(500, rel=0.01)


def test_logs_that_share_nothing_add_up_until_a_core_is_full() -> None:
    apart = [simulated(COSTS, Layout(count, count, 1, machine_cores=1, server_cores=64)).events for count in (1, 8)]
    assert apart[1] == pytest.approx(8 * apart[0], rel=0.25)  # They share the server's flushes.
    full = simulated(COSTS, Layout(64, 64, 1, machine_cores=1, server_cores=2))
    assert full.events == pytest.approx(2 / 200e-6, rel=0.02)
    assert full.busiest.startswith("processors of the server")


def test_writers_to_one_log_take_turns() -> None:
    outcome = simulated(COSTS, Layout(100, 1, 16, machine_cores=4, server_cores=64))
    assert outcome.busiest.startswith("turn at a log")
    assert outcome.group == 16
    assert outcome.events < 16 / (COSTS.commit + COSTS.server_commit + COSTS.flush)
