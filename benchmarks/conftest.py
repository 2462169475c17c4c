"""What the benchmarks share: full sizes when they measure, tiny ones under `--benchmark-disable`."""

import signal
from typing import Any

import pytest
import workloads
from pytest_benchmark.fixture import BenchmarkFixture
from rounds import Job, Measure


def pytest_configure() -> None:
    """Lets children hear Ctrl-C: a shell that runs this in its background has it ignored, and they inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def sizes(request: pytest.FixtureRequest) -> workloads.Sizes:
    return workloads.TINY if request.config.getoption("benchmark_disable") else workloads.FULL


@pytest.fixture
def measure(benchmark: BenchmarkFixture, sizes: workloads.Sizes) -> Measure:
    """Return what measures a job, a tenth of the report's rounds, and gives back its last result."""

    runner: Any = benchmark

    def run(job: Job) -> object:
        def prepare() -> None:
            job.prepare()

        runner.extra_info["operations"] = job.operations

        def settle() -> None:
            job.settle()

        return runner.pedantic(job.run, setup=prepare, teardown=settle, rounds=max(sizes.rounds // 10, 1))

    return run
