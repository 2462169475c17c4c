"""Metrics and traces of a memory, through OpenTelemetry. It needs the extra `otel`.

Nothing of what is stored is in them, no name either: their attributes are operations, types of errors, and what the
caller says.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Final
from weakref import WeakSet

from refold import Memory, __version__
from refold.engine.engine import Engine
from refold.engine.observer import COMMIT, READ, SEARCH
from refold.memory.options import core_of

try:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter
    from opentelemetry.trace import SpanKind, StatusCode, TracerProvider, get_current_span, get_tracer
except ImportError as error:
    raise ImportError(f"to measure a memory takes OpenTelemetry: {error}; pip install 'refold[otel]'") from error

_SCOPE: Final = "refold"
# Those of OpenTelemetry's conventions for databases, from 1 ms on: most of what is done here takes less.
_SECONDS: Final = (0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
_ROWS: Final = (0, 10, 100, 1_000, 10_000, 100_000, 1_000_000)

_Value = str | bool | int | float
Attributes = Mapping[str, _Value]


class _Telemetry:
    """The observer of one engine."""

    def __init__(
        self,
        engine: Engine,
        attributes: Attributes,
        meter_provider: MeterProvider | None,
        tracer_provider: TracerProvider | None,
    ) -> None:
        self.lag = engine.lag
        self.attributes: dict[str, _Value] = {"db.system.name": "refold", **attributes}
        durable: dict[str, _Value] = {"refold.commit.durable": engine.is_durable}
        self._committed = self.attributes | durable
        self._attributes = {name: self.attributes | {"db.operation.name": name} for name in (COMMIT, READ, SEARCH)}
        self._attributes[COMMIT] |= durable
        # A server is called by a commit alone: reads and searches are answered here.
        self._kinds = {COMMIT: SpanKind.INTERNAL if engine.lag is None else SpanKind.CLIENT}
        self._tracer = get_tracer(_SCOPE, __version__, tracer_provider)
        meter = get_meter(_SCOPE, __version__, meter_provider)
        self._duration = meter.create_histogram(
            "db.client.operation.duration",
            "s",
            "Duration of commits, of reads of a state that is not in RAM, and of searches.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._events = meter.create_counter("refold.commit.events", "{event}", "Events that were committed.")
        self._bytes = meter.create_counter("refold.commit.size", "By", "Bytes of the records that were committed.")
        self._folded = meter.create_counter(
            "refold.read.events", "{event}", "Events that were folded to build states that were not in RAM."
        )
        self._rows = meter.create_histogram(
            "refold.search.rows", "{row}", "Rows that a search looked at.", explicit_bucket_boundaries_advisory=_ROWS
        )

    @contextmanager
    def operation(self, name: str) -> Generator[None]:
        """Measure an operation, in a span of its own."""
        attributes, begin = self._attributes[name], perf_counter()
        # No message of an error is recorded: it may quote what is stored.
        with self._tracer.start_as_current_span(
            name,
            kind=self._kinds.get(name, SpanKind.INTERNAL),
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                failed: dict[str, _Value] = {"error.type": type(error).__qualname__}
                span.set_attributes(failed)
                span.set_status(StatusCode.ERROR)
                attributes = attributes | failed
                raise
            finally:
                self._duration.record(perf_counter() - begin, attributes)

    def committed(self, events: int, size_bytes: int) -> None:
        """Count events and bytes."""
        self._events.add(events, self._committed)
        self._bytes.add(size_bytes, self._committed)

    def folded(self, events: int) -> None:
        """Count events."""
        self._folded.add(events, self.attributes)
        get_current_span().set_attribute("refold.read.events", events)

    def searched(self, rows: int, *, exact: bool) -> None:
        """Note rows and exactness."""
        kind: dict[str, _Value] = {"refold.search.exact": exact}
        self._rows.record(rows, self.attributes | kind)
        get_current_span().set_attributes({"refold.search.rows": rows, **kind})


_copies: Final[dict[MeterProvider | None, WeakSet[_Telemetry]]] = {}
"""By provider, what observes the copies of logs on servers: a gauge of OpenTelemetry is made once, for all of them."""


def _watch_lag(telemetry: _Telemetry, meter_provider: MeterProvider | None) -> None:
    if meter_provider in _copies:
        _copies[meter_provider].add(telemetry)
        return
    copies = _copies[meter_provider] = WeakSet((telemetry,))

    def commits(_: CallbackOptions) -> Iterator[Observation]:
        yield from (Observation(each.lag().commits, each.attributes) for each in copies if each.lag is not None)

    def seconds(_: CallbackOptions) -> Iterator[Observation]:
        yield from (Observation(each.lag().seconds, each.attributes) for each in copies if each.lag is not None)

    meter = get_meter(_SCOPE, __version__, meter_provider)
    meter.create_observable_gauge(
        "refold.replica.lag.commits", [commits], "{commit}", "Commits that a copy is told of and lacks."
    )
    meter.create_observable_gauge(
        "refold.replica.lag.duration", [seconds], "s", "Time since a copy had all commits of its server."
    )


def instrument(
    memory: Memory,
    *,
    attributes: Attributes | None = None,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
) -> None:
    """Measure a memory and its forks from here on: commits, reads of what is not in RAM, searches, and how far behind.

    Metrics and spans go to the providers of the process, unless others are given; a span is the child of the one that
    surrounds the call. A read ends its span while it keeps writers out, so let spans wait for their export, as those of
    a ``BatchSpanProcessor`` do. ``attributes`` are added to all, to tell the memories of a process apart:
    ``{"db.namespace": "support"}``. A second call replaces the first one.
    """
    engine = core_of(memory)[0].engine
    telemetry = _Telemetry(engine, attributes or {}, meter_provider, tracer_provider)
    engine.observe(telemetry)
    if engine.lag is not None:
        _watch_lag(telemetry, meter_provider)
