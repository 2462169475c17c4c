"""Verification by several processes: each walks its part of the records and folds its part of the streams.

A worker reports observations, never findings. If a part is not sound, or cannot be checked by itself, one process
checks the whole log, so a report does not depend on the number of workers.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from struct import Struct as Layout
from typing import IO, Any, Final, NamedTuple

import msgspec

from refold.engine import history
from refold.engine.engine import Engine, open_engine
from refold.engine.fold_check import UNREADABLE, FoldCheck
from refold.engine.streams import records_through
from refold.engine.walk import Walk, WalkState
from refold.errors import RefoldError


class WorkerTask(msgspec.Struct, frozen=True):
    """The share of a worker: the records from one seq to another, and every n-th stream."""

    path: str
    memory_bytes: int
    head: int
    after: int
    until: int
    place: int
    count: int


class StreamDigests(NamedTuple):
    """A stream as folded anew: version and seq of its last event, and the digests of its views there."""

    head: tuple[int, int]
    digests: list[tuple[str, bytes]]


class WorkerResult(msgspec.Struct):
    """The results of a worker for a sound part."""

    seen: WalkState
    folded: dict[int, StreamDigests]
    """The worker's streams, by number."""


# The output of a worker: messages, each after its length. They hold the number of events walked so far and, at the end,
# the answer.

_LENGTH: Final = Layout("<Q")
_ENCODE: Final = msgspec.msgpack.Encoder(enc_hook=bytes).encode
_PROGRESS_COUNT: Final = 100  # So few that they never fill a pipe that is not read yet.


def _array(kind: type[Any], packed: bytes) -> Any:
    return kind("Q", packed)


def _send(message: object) -> None:
    packed, pipe = _ENCODE(message), sys.stdout.buffer
    pipe.write(_LENGTH.pack(len(packed)) + packed)
    pipe.flush()


def _receive(pipe: IO[bytes], kind: Any) -> Any:
    """Return the next message, or ``None`` if the sender is gone."""
    head = pipe.read(_LENGTH.size)
    size = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else -1
    packed = pipe.read(size) if size >= 0 else b""
    return msgspec.msgpack.decode(packed, type=kind, dec_hook=_array) if len(packed) == size else None


# The verifying process.

_PROGRAM: Final = "import sys; sys.path[:] = sys.argv[2:]; from refold.engine.workers import main; main(sys.argv[1])"


def run_workers(engine: Engine, path: str, count: int, progress: Callable[[int, int], None]) -> WorkerResult | None:
    """Return the answer of all workers for the whole log, or ``None`` if they cannot establish that it is sound.

    Workers read files, so they see only what is durable.
    """
    parts = list(_parts(engine, path, count))
    whole = WorkerResult(WalkState(), {})
    with ExitStack() as stack:
        workers = [_start_worker(part, stack) for part in parts]
        for part, pipe in zip(parts, workers, strict=True):
            while isinstance(answer := _receive(pipe, int | WorkerResult | None), int):
                progress(part.after + answer, part.head)
            if answer is None or not whole.seen.connects_to(answer.seen):
                return None
            progress(part.until, part.head)
            whole.seen.merge(answer.seen)
            whole.folded |= answer.folded
    return None if any(whole.seen.unproved_seqs()) else whole


def _parts(engine: Engine, path: str, count: int) -> Iterator[WorkerTask]:
    """Split the log between records into parts of about the same number of events."""
    reader = engine.reader
    wanted = {reader.head * place // count for place in range(1, count)} - {0}
    ends = {last for seq in wanted for last, _ in reader.log.read(seq - 1, seq)}
    cuts = list(pairwise(sorted({0, *(end for end in ends if end < reader.head), reader.head})))
    for place, (after, until) in enumerate(cuts):
        yield WorkerTask(path, reader.memory_bytes // len(cuts), reader.head, after, until, place, len(cuts))


def _start_worker(part: WorkerTask, stack: ExitStack) -> IO[bytes]:
    """Start a worker, which ends with the stack, and return the pipe for its answers.

    It is a new program: a forked copy of a process with threads can wait forever for something that a thread of the
    original holds. Ctrl-C reaches this process alone, which then ends the worker.
    """
    command = [sys.executable, "-c", _PROGRAM, msgspec.json.encode(part).decode(), *sys.path]
    silence, pipe = subprocess.DEVNULL, subprocess.PIPE
    try:
        worker = subprocess.Popen(command, stdin=silence, stdout=pipe, start_new_session=True)  # noqa: S603
    except OSError as error:
        raise RefoldError(f"{sys.executable!r} cannot be started as a worker ({error}); verify with jobs=1") from error
    stack.enter_context(worker)
    stack.callback(worker.kill)
    assert worker.stdout is not None, "the worker's stdout is a pipe"
    return worker.stdout


# A worker.


def main(argument: str) -> None:
    """Verify the part that the argument describes, and send the answer."""
    part = msgspec.json.decode(argument, type=WorkerTask)
    engine = open_engine(
        part.path,
        readonly=True,
        clock_ns=int,  # A worker only reads, so it dates nothing.
        random_bytes=os.urandom,
        memory_bytes=part.memory_bytes,
        delayed=False,
    )
    try:
        answer = engine.reader.log.in_snapshot(lambda: _check_part(engine, part))
    except UNREADABLE:
        answer = None  # The part is damaged; the verifying process finds out how.
    _send(answer)


def _check_part(engine: Engine, part: WorkerTask) -> WorkerResult | None:
    reader = engine.reader
    reader.notice()
    if reader.head != part.head:
        return None  # Another process is writing.
    check = FoldCheck(engine, lambda: history.from_zero(engine, part.head), part.place, part.count)
    heads: dict[int, tuple[int, int]] = {}

    def fold(after: int, until: int) -> None:
        for record in records_through(reader.log, after, until):
            heads.update(check.take_own(record))

    step = max((part.until - part.after) // _PROGRESS_COUNT, 1)
    sent = 0

    def report_progress(done: int, _: int) -> None:
        nonlocal sent
        if done - part.after >= sent + step:
            sent = done - part.after
            _send(sent)

    fold(0, part.after)
    walk = Walk(reader.log, part.until, check.take, part.after)
    if any(walk.findings(report_progress)):
        return None
    heads |= {number: head[1:3] for number, head in walk.seen.heads.items()}
    fold(part.until, part.head)
    if any(check.finish(heads)):
        return None
    return WorkerResult(
        walk.seen, {number: StreamDigests(heads[number], digests) for number, digests in check.hashed.items()}
    )
