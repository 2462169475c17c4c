"""Metrics and traces: what is measured, under which names, that nothing stored is in it, and that off is off."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode

from refold import Closed, InvalidInput, Memory, StoreUnreachable, WrongVersion
from refold.log import replica
from refold.opentelemetry import instrument
from tests.conftest import Held, Servers
from tests.support.commits import RamCommits
from tests.support.seams import engine_of

STORED = "harbour"
UNITS = {
    "db.client.operation.duration": "s",
    "refold.commit.events": "{event}",
    "refold.commit.size": "By",
    "refold.read.events": "{event}",
    "refold.search.rows": "{row}",
}
LAG_UNITS = {"refold.replica.lag.commits": "{commit}", "refold.replica.lag.duration": "s"}


class Telemetry:
    """Providers that keep in RAM what they are given."""

    def __init__(self) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader])

    def instrument(self, memory: Memory, **options: Any) -> None:
        instrument(memory, meter_provider=self.meters, tracer_provider=self.tracers, **options)

    def spans(self, name: str = "") -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if name in ("", span.name)]

    def points(self, name: str) -> list[Any]:
        """Return the points of a metric, each with attributes and a value, or a count and a sum."""
        found = self._metrics()
        return list(found[name].data.data_points) if name in found else []

    def units(self) -> dict[str, str]:
        return {name: metric.unit for name, metric in self._metrics().items()}

    def _metrics(self) -> dict[str, Any]:
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        return {metric.name: metric for scope in scopes for metric in scope.metrics}

    def durations(self, operation: str, **attributes: Any) -> int:
        """Return how many durations of an operation have these attributes."""
        wanted = {"db.operation.name": operation, **{key.replace("_", "."): value for key, value in attributes.items()}}
        points = self.points("db.client.operation.duration")
        return sum(point.count for point in points if wanted.items() <= dict(point.attributes).items())

    def everything(self) -> str:
        """Return all that was exported, as text."""
        data = self._reader.get_metrics_data()
        return "".join([span.to_json() for span in self.spans()]) + ("" if data is None else data.to_json())


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    made = Telemetry()
    yield made
    made.meters.shutdown()


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


class TestACommit:
    def test_is_counted_with_its_events_and_bytes(self, memory: Memory, held: Held, telemetry: Telemetry) -> None:
        telemetry.instrument(memory)
        memory.conversation("c").append("user", STORED)  # Opens the conversation, too.
        with memory.batch():
            for number in range(5):
                memory.profile().set(f"key {number}", "value")
        assert telemetry.durations("commit") == 2
        (events,), (size,) = telemetry.points("refold.commit.events"), telemetry.points("refold.commit.size")
        assert events.value == memory.head == 7
        assert size.value > 7 * 10
        is_durable = held.memory._core.path is not None
        for point in (events, size, *telemetry.points("db.client.operation.duration")):
            assert point.attributes["refold.commit.durable"] is is_durable
            assert point.attributes["db.system.name"] == "refold"

    def test_that_the_disk_does_not_have_yet_is_not_durable(self, tmp_path: Path, telemetry: Telemetry) -> None:
        with Memory(tmp_path / "store", durability="delayed") as memory:
            telemetry.instrument(memory)
            memory.profile().set("key", "value")
        assert not telemetry.points("refold.commit.events")[0].attributes["refold.commit.durable"]

    def test_is_a_child_of_what_surrounds_it(self, memory: Memory, telemetry: Telemetry) -> None:
        telemetry.instrument(memory)
        with telemetry.tracers.get_tracer("host").start_as_current_span("turn") as turn:
            memory.conversation("c").append("user", "hello")
        (span,) = telemetry.spans("commit")
        assert span.parent is not None
        assert span.parent.span_id == turn.get_span_context().span_id
        assert span.status.status_code is StatusCode.UNSET

    def test_of_a_task_is_a_child_of_what_surrounds_the_task(self, memory: Memory, telemetry: Telemetry) -> None:
        telemetry.instrument(memory)

        async def turn(name: str) -> int:
            with telemetry.tracers.get_tracer("host").start_as_current_span(name) as span:
                await memory.aio.conversation(name).append("user", "hello")
                return span.get_span_context().span_id

        async def turns() -> list[int]:
            return [await turn("first"), await turn("second")]

        surrounding = asyncio.run(turns())
        assert [span.parent and span.parent.span_id for span in telemetry.spans("commit")] == surrounding

    def test_that_fails_says_the_type_of_its_error_and_no_more(self, memory: Memory, telemetry: Telemetry) -> None:
        telemetry.instrument(memory)
        chat = memory.conversation(STORED)
        chat.append("user", "hello")
        with pytest.raises(WrongVersion):
            chat.append("user", STORED, expected=7)
        assert telemetry.durations("commit", error_type="WrongVersion") == 1
        assert telemetry.durations("commit") == 2
        span = telemetry.spans("commit")[-1]
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
        assert attributes_of(span)["error.type"] == "WrongVersion"
        assert not span.events

    def test_of_a_fork_is_measured(self, memory: Memory, telemetry: Telemetry) -> None:
        telemetry.instrument(memory)
        memory.fork("what if").profile().set("key", "value")
        assert telemetry.points("refold.commit.events")[0].value == engine_of(memory).reader.head

    def test_is_measured_once_however_often_that_is_asked_for(self, memory: Memory, telemetry: Telemetry) -> None:
        telemetry.instrument(memory)
        telemetry.instrument(memory, attributes={"db.namespace": "support"})
        memory.profile().set("key", "value")
        assert telemetry.durations("commit") == telemetry.durations("commit", db_namespace="support") == 1


class TestARead:
    def test_of_what_is_not_in_ram_counts_the_events_it_folds(self, tmp_path: Path, telemetry: Telemetry) -> None:
        with Memory(tmp_path / "store") as memory:
            for number in range(40):
                memory.conversation("c").append("user", f"{number}")
            seq = memory.head - 3
            telemetry.instrument(memory)
            assert len(memory.conversation("c").window()) == 40
            assert not telemetry.spans("read")
            assert len(memory.at(seq).conversation("c").window()) == 37
            assert len(memory.at(seq).conversation("c").window()) == 37
        (span,) = telemetry.spans("read")
        (folded,) = telemetry.points("refold.read.events")
        assert folded.value == attributes_of(span)["refold.read.events"] > 0
        assert telemetry.durations("read") == 1

    def test_of_a_reopened_store_is_cold_once(self, tmp_path: Path, telemetry: Telemetry) -> None:
        with Memory(tmp_path / "store") as memory:
            memory.conversation("c").append("user", "hello")
        with Memory(tmp_path / "store") as memory:
            telemetry.instrument(memory)
            for _ in range(3):
                memory.conversation("c").window()
            assert telemetry.durations("read") == 1

    def test_is_measured_after_the_log_was_read_again(self, tmp_path: Path, telemetry: Telemetry) -> None:
        with Memory(tmp_path / "store") as memory:
            memory.conversation("c").append("user", "hello")
            telemetry.instrument(memory)
            engine_of(memory).reload()
            memory.conversation("c").window()
            assert telemetry.durations("read") == 1


class TestASearch:
    def test_says_how_many_rows_it_looked_at(self, memory: Memory, telemetry: Telemetry) -> None:
        with memory.batch():
            for number in range(12):
                memory.add(f"{STORED} fact {number}")
                memory.conversation("c").append("user", f"{STORED} {number}")
        memory.project().record_episode("success", task=STORED)
        telemetry.instrument(memory)
        memory.search(STORED)
        memory.project().search_many([STORED, "another"])
        memory.search_messages(STORED)
        memory.project().search_episodes(STORED)
        assert telemetry.durations("search") == 4
        rows = [attributes_of(span)["refold.search.rows"] for span in telemetry.spans("search")]
        assert rows == [12, 24, 12, 1]
        (point,) = telemetry.points("refold.search.rows")
        assert (point.count, point.sum, point.attributes["refold.search.exact"]) == (4, 49, True)

    def test_that_a_filter_narrows_looks_at_fewer_rows(self, memory: Memory, telemetry: Telemetry) -> None:
        for number in range(10):
            memory.add(f"fact {number}", metadata={"even": number % 2 == 0})
        telemetry.instrument(memory)
        assert len(memory.search("fact", metadata={"even": True}, min_importance=0)) == 5
        (point,) = telemetry.points("refold.search.rows")
        assert point.sum == 5

    def test_that_fails_is_an_error_which_quotes_nothing(self, telemetry: Telemetry) -> None:
        class Broken:
            id, dim = "broken", 2

            def embed(self, texts: list[str]) -> Any:
                raise OSError(texts)

        with Memory(embedder=Broken()) as memory:
            memory.project().add("fact", vector=[1.0, 0.0])
            telemetry.instrument(memory)
            with pytest.raises(InvalidInput):
                memory.search(STORED, top_k=0)  # Refused before it is a search.
            with pytest.raises(OSError, match=STORED):
                memory.search(STORED)
        assert telemetry.durations("search") == telemetry.durations("search", error_type="OSError") == 1
        assert STORED not in telemetry.everything()


class TestALogOnAServer:
    @pytest.fixture
    def open_copy(self, commits: list[bytes]) -> Callable[[], Memory]:
        assert not commits
        return lambda: Memory("postgresql://db/x", cache=":memory:")

    @pytest.fixture
    def commits(self, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
        commits = list[bytes]()
        monkeypatch.setattr(replica, "connect", lambda *_, **__: RamCommits(commits))
        return commits

    def test_shows_how_far_each_copy_is_behind(
        self, commits: list[bytes], telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, other = (Memory("postgresql://refold:hunter2@db/x", cache=":memory:") for _ in range(2))
        for name, memory in (("one", one), ("other", other)):
            telemetry.instrument(memory, attributes={"db.namespace": name})
        one.profile().set("key", "value")
        other.refresh()
        lags = {
            point.attributes["db.namespace"]: point.value for point in telemetry.points("refold.replica.lag.commits")
        }
        assert lags == {"one": 0, "other": 0}
        for point in telemetry.points("refold.replica.lag.duration"):
            assert 0 <= point.value < 60

        def unreachable(*_: object) -> None:
            raise StoreUnreachable("it does not answer")

        log = engine_of(other).reader.log
        assert isinstance(log, replica.ReplicaLog)
        monkeypatch.setattr(log.commits, "read", unreachable)
        monkeypatch.setattr(log.commits, "wait", lambda _: len(commits))
        before = log.whole_at
        one.profile().set("key", "other")
        deadline = time.monotonic() + 20
        while not log.lag().commits and time.monotonic() < deadline:
            time.sleep(0.01)
        lags = {
            point.attributes["db.namespace"]: point.value for point in telemetry.points("refold.replica.lag.commits")
        }
        assert lags == {"one": 0, "other": 1}
        assert log.whole_at == before
        monkeypatch.undo()
        for memory in (one, other):
            memory.close()

    def test_shows_the_copy_that_is_furthest_behind_of_those_that_look_alike(
        self, open_copy: Callable[[], Memory], telemetry: Telemetry
    ) -> None:
        with open_copy() as one, open_copy() as other:
            for memory in (one, other):
                telemetry.instrument(memory)
            log = engine_of(one).reader.log
            assert isinstance(log, replica.ReplicaLog)
            log.known = log.position + 7
            (point,) = telemetry.points("refold.replica.lag.commits")
            assert (point.value, point.attributes) == (7, {"db.system.name": "refold"})

    def test_has_no_lag_once_it_is_closed(self, open_copy: Callable[[], Memory], telemetry: Telemetry) -> None:
        memory = open_copy()
        telemetry.instrument(memory)
        assert telemetry.units() == LAG_UNITS
        memory.close()
        assert telemetry.units() == {}

    def test_has_no_lag_in_a_child_of_its_process(self, open_copy: Callable[[], Memory], telemetry: Telemetry) -> None:
        with open_copy() as memory:
            telemetry.instrument(memory)
            child = os.fork()
            if not child:
                os._exit(len(telemetry.units()))
            assert os.waitpid(child, 0)[1] == 0

    def test_is_observed_while_others_are_added(
        self, open_copy: Callable[[], Memory], telemetry: Telemetry, caplog: pytest.LogCaptureFixture
    ) -> None:
        with open_copy() as memory:

            def add() -> None:
                for _ in range(300):
                    telemetry.instrument(memory)

            adding = threading.Thread(target=add)
            adding.start()
            while adding.is_alive():
                telemetry.units()
            adding.join()
            assert len(telemetry.points("refold.replica.lag.commits")) == 1
        assert not caplog.records

    def test_has_no_address_in_what_it_exports(self, commits: list[bytes], telemetry: Telemetry) -> None:
        with Memory("postgresql://refold:hunter2@db.internal/x", cache=":memory:") as memory:
            telemetry.instrument(memory)
            memory.profile().set("key", "value")
            assert telemetry.points("refold.commit.events")[0].attributes["refold.commit.durable"]
            text = telemetry.everything()
        assert "refold.replica.lag.commits" in text
        assert "hunter2" not in text
        assert "db.internal" not in text
        assert commits


class TestWhatIsMeasured:
    @pytest.mark.parametrize("fails_at", ["on_start", "on_end"])
    def test_goes_on_where_a_processor_fails_which_is_logged_once(
        self, memory: Memory, telemetry: Telemetry, caplog: pytest.LogCaptureFixture, fails_at: str
    ) -> None:
        class Broken(SpanProcessor):
            pass

        def fail(*_: object, **__: object) -> None:
            raise OSError("no collector")

        setattr(Broken, fails_at, fail)
        telemetry.tracers.add_span_processor(Broken())
        telemetry.instrument(memory)
        for _ in range(3):
            memory.conversation("c").append("user", "hello")
        assert len(memory.conversation("c").window()) == 3
        assert telemetry.durations("commit") == 3
        assert [record.name for record in caplog.records] == ["refold"]
        assert not trace.get_current_span().get_span_context().is_valid

    def test_is_counted_once_while_eight_threads_write_and_others_begin_and_end_to_measure(
        self, memory: Memory, telemetry: Telemetry
    ) -> None:
        start, errors = threading.Barrier(11), list[BaseException]()

        def write(name: str) -> None:
            for number in range(20):
                memory.conversation(name).append("user", f"{number}")

        def measure() -> None:
            for _ in range(50):
                instrument(memory, meter_provider=NoOpMeterProvider(), tracer_provider=NoOpTracerProvider())
                telemetry.instrument(memory)

        def run_at_once(run: Callable[[], None]) -> None:
            start.wait(20)
            try:
                run()
            except BaseException as error:  # noqa: BLE001 - it is compared below
                errors.append(error)

        runs: list[Callable[[], None]] = [*(partial(write, f"c{number}") for number in range(8)), measure, measure]
        threads = [threading.Thread(target=run_at_once, args=(run,)) for run in runs]
        for thread in threads:
            thread.start()
        start.wait(20)
        for thread in threads:
            thread.join(60)
        assert not errors
        assert memory.head == 8 * 21
        measured = telemetry.durations("commit")
        memory.profile().set("key", "value")
        assert telemetry.durations("commit") == measured + 1
        assert measured <= 8 * 20

    def test_ends_with_providers_that_do_nothing(self, memory: Memory, telemetry: Telemetry) -> None:
        telemetry.instrument(memory)
        memory.profile().set("key", "value")
        instrument(memory, meter_provider=NoOpMeterProvider(), tracer_provider=NoOpTracerProvider())
        memory.profile().set("key", "other")
        assert telemetry.durations("commit") == len(telemetry.spans("commit")) == 1
        assert LAG_UNITS.keys().isdisjoint(telemetry.units())

    def test_leaves_the_spans_of_others_alone(self, memory: Memory, telemetry: Telemetry) -> None:
        instrument(memory, tracer_provider=NoOpTracerProvider())
        with telemetry.tracers.get_tracer("host").start_as_current_span("turn"):
            memory.add("a fact")
            memory.search("a fact")
        assert not attributes_of(telemetry.spans("turn")[0])

    def test_adds_up_for_two_memories(self, telemetry: Telemetry) -> None:
        with Memory() as one, Memory() as other:
            for memory in (one, other):
                telemetry.instrument(memory)
                memory.profile().set("key", "value")
            assert telemetry.points("refold.commit.events")[0].value == one.head + other.head

    @pytest.mark.parametrize("given", [{"name": ["a"]}, {"name": None}, {1: "a"}, "name"])
    def test_has_attributes_that_a_metric_can_have(self, given: Any) -> None:
        with pytest.raises(TypeError, match=r"attributes is|not a mapping"):
            instrument(Memory(), attributes=given)

    def test_is_an_open_memory(self) -> None:
        memory = Memory()
        for other in (memory.aio, memory.conversation("c"), None):
            with pytest.raises(TypeError, match="give the Memory itself"):
                instrument(other)  # type: ignore[arg-type]
        memory.close()
        with pytest.raises(Closed):
            instrument(memory)


def test_metrics_have_units_and_nothing_that_is_stored(memory: Memory, telemetry: Telemetry) -> None:
    telemetry.instrument(memory)
    chat = memory.conversation(STORED)
    chat.append("user", STORED)
    memory.project(STORED).add(STORED)
    memory.project(STORED).search(STORED)
    chat.search(STORED)
    memory.at(1).conversation(STORED).window()
    with pytest.raises(WrongVersion):
        chat.append("user", STORED, expected=0)
    assert STORED not in telemetry.everything()
    assert telemetry.units() == (UNITS if engine_of(memory).lag is None else UNITS | LAG_UNITS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgres", "nats"])
def test_a_log_on_a_server_is_measured(kind: str, servers: Servers, tmp_path: Path, telemetry: Telemetry) -> None:
    address = servers.logs(kind).address()
    with Memory(address, cache=tmp_path / "one") as one, Memory(address, cache=tmp_path / "other") as other:
        for memory in (one, other):
            telemetry.instrument(memory)
        one.conversation("c").append("user", "hello")
        other.refresh()
        assert [message.content for message in other.conversation("c").window()] == ["hello"]
        assert telemetry.durations("commit", refold_commit_durable=True) == 1
        assert telemetry.spans("commit")[0].kind is SpanKind.CLIENT
        assert telemetry.durations("read") == len(telemetry.spans("read")) == 1
        assert telemetry.units().items() >= LAG_UNITS.items()
        assert all(point.value == 0 for point in telemetry.points("refold.replica.lag.commits"))
        assert all(0 <= point.value < 60 for point in telemetry.points("refold.replica.lag.duration"))
        assert address not in telemetry.everything()


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_nothing_is_loaded_that_nobody_asked_for() -> None:
    program = "import sys; from refold import Memory; memory = Memory(); memory.conversation('c').append('user', 'x'); "
    assert run(program + "memory.add('x'); memory.search('x'); print('opentelemetry' in sys.modules)") == "False"


def test_without_opentelemetry_the_error_says_which_extra_to_install() -> None:
    program = "import sys; sys.modules['opentelemetry'] = None\ntry:\n    import refold.opentelemetry\n"
    program += "except ImportError as error:\n    print(error)"
    assert "pip install 'refold[otel]'" in run(program)


def test_without_an_sdk_it_does_nothing(memory: Memory) -> None:
    instrument(memory)
    memory.conversation("c").append("user", "hello")
    assert memory.conversation("c").window()[0].content == "hello"
