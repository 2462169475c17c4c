"""Conflicts that keep events from being written: an unexpected version, or something read that has changed since."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from refold import checks, fold
from refold.engine.reader import Reader, Request
from refold.engine.streams import Stream, name_of
from refold.errors import WrongVersion

ANY: Final = "any"
"""For ``expected``: any version, the default."""

NO_STREAM: Final = "no stream"
"""For ``expected``: nothing was written to the stream yet."""

EXISTS: Final = "exists"
"""For ``expected``: something was written to the stream."""


def check_version(key: str, actual: int, expected: object) -> None:
    """Raise ``WrongVersion`` unless a stream's version is the expected one."""
    fits = {NO_STREAM: actual == 0, EXISTS: actual > 0}.get(expected, expected == actual)  # type: ignore[call-overload]
    if not fits:
        raise WrongVersion(
            f"{name_of(key)} is at version {actual}, not at {checks.brief(expected)}; read it again and decide anew",
            expected=expected,
            actual=actual,
        )


def check_requests(reader: Reader, requests: Iterable[Request]) -> None:
    """Raise ``WrongVersion`` if a request of a batch was answered while the batch was open."""
    for request in requests:
        with suppress(LookupError):
            answer = reader.find_answer(request)
            raise WrongVersion(
                "a request_id of this batch was answered while the batch was open; run the batch again",
                expected=NO_STREAM,
                actual=answer.stamp.version if answer else 0,
            )


def check_open(reader: Reader, streams: Iterable[Stream]) -> None:
    """Raise ``WrongVersion`` if a stream that a batch found open no longer is."""
    for stream in streams:
        if not fold.is_open(reader.live(stream)):
            raise closed_stream_error(stream.name, stream.version)


def closed_stream_error(name: str, version: int) -> WrongVersion:
    """Return the error for a stream that was dropped, emptied or erased meanwhile."""
    problem = f"{name} was dropped or emptied while a batch was open; run the batch again"
    return WrongVersion(problem, expected=EXISTS, actual=version)


def check_reads(reader: Reader, reads: Mapping[str, int], streams: Mapping[str, Stream]) -> None:
    """Raise ``WrongVersion`` if a stream has moved on from the version that a batch read."""
    for key, version in reads.items():
        stream = streams.get(key) or reader.find(key)
        actual = 0 if stream is None else stream.version
        if actual != version:
            raise WrongVersion(
                f"{name_of(key)} moved from version {version} to {actual} while a batch was open; run the batch again",
                expected=version,
                actual=actual,
            )
