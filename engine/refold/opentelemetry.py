"""Metrics and traces of a memory, through OpenTelemetry; needs the extra `otel`.

They contain nothing of the stored content, not even names: their attributes are operations, error types, and those that
the caller passes.
"""

from collections.abc import Callable, Mapping
from functools import partial, wraps
from time import perf_counter
from typing import Any, Concatenate, Final, ParamSpec
from weakref import ref

from refold import Memory, __version__
from refold.checks import brief
from refold.engine.engine import Engine
from refold.engine.observer import COMMIT, READ, SEARCH
from refold.errors import logger
from refold.memory.core import core_of

try:
    from opentelemetry.context import attach, detach
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter
    from opentelemetry.trace import (
        Span,
        SpanKind,
        StatusCode,
        TracerProvider,
        get_current_span,
        get_tracer,
        set_span_in_context,
    )
except ImportError as error:
    raise ImportError(f"to measure a memory takes OpenTelemetry: {error}; pip install 'refold[otel]'") from error

_SCOPE: Final = "refold"
# The bounds of OpenTelemetry's conventions for databases from 1 ms on, and lower ones, since most operations here take
# less.
_SECONDS: Final = (0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
_ROWS: Final = (0, 10, 100, 1_000, 10_000, 100_000, 1_000_000)

_Value = str | bool | int | float
Attributes = Mapping[str, _Value]
P = ParamSpec("P")


def _suppress_errors(
    note: Callable[Concatenate["_Telemetry", P], None],
) -> Callable[Concatenate["_Telemetry", P], None]:
    """Return a callback that never raises, even if code of the host does.

    A processor or a sampler of the host can raise, but a commit is written by then.
    """

    @wraps(note)
    def attempt(self: "_Telemetry", /, *arguments: P.args, **options: P.kwargs) -> None:
        try:
            note(self, *arguments, **options)
        except Exception:  # noqa: BLE001 - third-party code failed, and the operation that it measures continues
            if not self.has_failed:
                self.has_failed = True
                logger().exception("OpenTelemetry failed at measuring a memory; what fails from now on is not logged")

    return attempt


class _OperationSpan:
    """The context of one operation, which has a span of its own."""

    __slots__ = ("begin", "name", "span", "telemetry", "token")

    def __init__(self, telemetry: "_Telemetry", name: str) -> None:
        self.telemetry = telemetry
        self.name = name
        self.begin = perf_counter()
        self.span: Span | None = None
        self.token: Any = None

    def __enter__(self) -> None:
        self.telemetry.begin(self)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.telemetry.end(self, error)


class _Telemetry:
    """The observer of one engine."""

    def __init__(
        self,
        engine: Engine,
        attributes: Attributes,
        meter_provider: MeterProvider | None,
        tracer_provider: TracerProvider | None,
    ) -> None:
        self.engine = engine
        self.has_failed = False
        self.attributes: dict[str, _Value] = {"db.system.name": "refold", **attributes}
        durable: dict[str, _Value] = {"refold.commit.durable": engine.is_durable}
        self._committed = self.attributes | durable
        self._attributes = {name: self.attributes | {"db.operation.name": name} for name in (COMMIT, READ, SEARCH)}
        self._attributes[COMMIT] |= durable
        # Only a commit calls a server; reads and searches are answered locally.
        self._kinds = {COMMIT: SpanKind.INTERNAL if engine.shared is None else SpanKind.CLIENT}
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

    def operation(self, name: str) -> _OperationSpan:
        """Measure an operation in a span of its own."""
        return _OperationSpan(self, name)

    @_suppress_errors
    def begin(self, operation: _OperationSpan) -> None:
        """Begin the span of an operation."""
        name = operation.name
        operation.span = self._tracer.start_span(
            name, kind=self._kinds.get(name, SpanKind.INTERNAL), attributes=self._attributes[name]
        )
        operation.token = attach(set_span_in_context(operation.span))

    @_suppress_errors
    def end(self, operation: _OperationSpan, error: BaseException | None) -> None:
        """Record the duration of an operation, and end its span."""
        attributes, span = self._attributes[operation.name], operation.span
        try:
            if error is not None:  # Its message is left out: it may quote stored content.
                failed: dict[str, _Value] = {"error.type": type(error).__qualname__}
                attributes = attributes | failed
                if span is not None:
                    span.set_attributes(failed)
                    span.set_status(StatusCode.ERROR)
            self._duration.record(perf_counter() - operation.begin, attributes)
        finally:
            if operation.token is not None:
                detach(operation.token)
            if span is not None:
                span.end()

    @_suppress_errors
    def record_commit(self, events: int, size_bytes: int) -> None:
        """Count committed events and bytes."""
        self._events.add(events, self._committed)
        self._bytes.add(size_bytes, self._committed)

    @_suppress_errors
    def record_fold(self, events: int) -> None:
        """Count folded events."""
        self._folded.add(events, self.attributes)
        get_current_span().set_attribute("refold.read.events", events)

    @_suppress_errors
    def record_search(self, rows: int, *, exact: bool) -> None:
        """Record rows and exactness."""
        kind: dict[str, _Value] = {"refold.search.exact": exact}
        self._rows.record(rows, self.attributes | kind)
        get_current_span().set_attributes({"refold.search.rows": rows, **kind})


_Copies = list[ref[_Telemetry]]
_copies: Final[dict[MeterProvider | None, _Copies]] = {}
"""By provider, the observers of copies of logs on servers, because a gauge of OpenTelemetry is created once for all of
them. The lists have no lock, which a forked child could find held; each step on them is one C call."""


def _watch_lag(telemetry: _Telemetry, meter_provider: MeterProvider | None) -> None:
    made = _Copies()
    copies = _copies.setdefault(meter_provider, made)
    copies.append(ref(telemetry, copies.remove))
    if copies is made:
        meter = get_meter(_SCOPE, __version__, meter_provider)
        meter.create_observable_gauge(
            "refold.replica.lag.commits",
            [partial(_lags, copies, "commits")],
            "{commit}",
            "Commits that a copy is told of and lacks.",
        )
        meter.create_observable_gauge(
            "refold.replica.lag.duration",
            [partial(_lags, copies, "seconds")],
            "s",
            "Time since a copy had all commits of its server.",
        )


def _lags(copies: _Copies, field: str, _: CallbackOptions) -> list[Observation]:
    """Observe open copies; of copies with the same attributes, the one that is furthest behind."""
    worst: dict[frozenset[tuple[str, _Value]], float] = {}
    for reference in tuple(copies):
        telemetry = reference()
        if telemetry is not None and (lag := telemetry.engine.lag) is not None:
            key = frozenset(telemetry.attributes.items())
            worst[key] = max(worst.get(key, 0), getattr(lag, field))
    return [Observation(value, dict(key)) for key, value in worst.items()]


def _check(memory: object, attributes: Mapping[Any, Any]) -> None:
    if not isinstance(memory, Memory):
        raise TypeError(f"memory is {brief(memory)}; give the Memory itself, of which everything is measured")
    if not all(isinstance(name, str) and isinstance(value, _Value) for name, value in attributes.items()):
        raise TypeError(f"attributes is {brief(attributes)}; it maps names to str, bool, int or float")


def instrument(
    memory: Memory,
    *,
    attributes: Attributes | None = None,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
) -> None:
    """Measure a memory and its forks from now on: commits, reads of states that are not in RAM, searches, and lag.

    Metrics and spans go to the providers of the process unless others are given; a span is a child of the one that
    surrounds the call. A read ends its span while it keeps writers out, so spans should be queued for export, as
    ``BatchSpanProcessor`` does. ``attributes`` are added to all of them, to tell the memories of a process apart:
    ``{"db.namespace": "support"}``. A second call replaces the first; with a ``NoOpMeterProvider`` and a
    ``NoOpTracerProvider`` it ends the measurement. An error of a provider is logged once and fails no call.
    """
    attributes = {**(attributes or {})}
    _check(memory, attributes)
    engine = core_of(memory)[0].engine
    telemetry = _Telemetry(engine, attributes, meter_provider, tracer_provider)
    engine.observe(telemetry)
    if engine.shared is not None:
        _watch_lag(telemetry, meter_provider)
