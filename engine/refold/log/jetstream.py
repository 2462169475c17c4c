"""A shared log on NATS JetStream: one message per commit, in a stream with three replicas if there are several servers.

An append expects the sequence of the last message, so it takes effect right after that message or not at all. Subjects
end with some digits of the commit's link, and an append also expects the last message under the subject of the commit
that it follows. A commit that is too large for one message is written as several, in one atomic batch. Messages do not
change: a replacement goes into a second stream, and the message is erased.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, cast
from urllib.parse import parse_qs, unquote

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeout
from nats.js import JetStreamContext, api, errors

from refold.errors import Closed, InvalidInput, StoreCorrupt, StoreError, StoreUnreachable, StoreVersion, logger
from refold.log.commits import (
    MISSING_LOG,
    PAGE_BYTES,
    AppendConflict,
    Check,
    CommitBytes,
    CommitsLost,
    ConnectionLost,
    Replacement,
    hide_password,
    link_of,
    split_address,
)
from refold.log.leadership import AGAIN_SECONDS, UNKNOWN_SECONDS, Cluster, Leadership
from refold.threads import NO_THREAD, Worker

_SECONDS: Final = 5.0
"""The time limit of one request."""
_REPLICA_SECONDS: Final = (0.2, 0.2, 0.4, 0.4, 0.8, 3.0)
"""The time limits of a request to any replica, one after the other: the servers may choose one that they do not reach
any more, in every second case where it is the one that led."""
_CALL_SECONDS: Final = 30.0
"""The time limit of a call with all of its requests."""
_VERSION_MIN: Final = (2, 12)
"""The first server version with atomic batches."""
_REPLICAS: Final = 3
_ATTEMPTS: Final = 8
"""How often a message that a replica lost is requested: first from the leader, then from whichever replica answers."""
_PAGE_COUNT: Final = 1_024
"""The number of messages read at a time."""
_HEADERS_BYTES: Final = 1_024
"""Bytes reserved for the headers of a message."""
_PARTS_MAX: Final = 1_000
"""The maximum number of messages in an atomic batch."""
_NAME_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_WRONG_SEQUENCE: Final = frozenset((10_071, 10_164))
"""Error codes of the server if the last message is not the expected one."""
_NO_STREAM: Final = 10_059
"""The error code of the server if it knows no such stream; one that is cut off may not know it yet."""
_NO_PEERS: Final = 10_005
"""The error code of the server if there are too few servers for the replicas."""

_PASSING: Final = (errors.ServiceUnavailableError, errors.ServerError)
"""The errors of the server while it has no leader, or cannot serve a request for now."""

_COMPARE: Final = "run `refold doctor` with --monitor for each server"

_SUBJECT_BYTES: Final = 2
"""How many bytes of a commit's link its subject has. The servers keep each subject in RAM, so there must be few."""

_PART: Final = "Refold-Part"
_LAST: Final = "Refold-Last"

_APART_NS: Final = 4_000_000
"""The maximum distance between the retries of machines that write at the same moment."""

T = TypeVar("T")


class _StreamMessage(NamedTuple):
    """A message of the stream: its sequence, its part number, the number of parts of its commit, and its bytes."""

    sequence: int
    part: int
    parts: int
    data: bytes

    @classmethod
    def of(cls, sequence: int, headers: dict[str, str], data: bytes) -> "_StreamMessage":
        part, _, parts = headers.get(_PART, "1/1").partition("/")
        return cls(sequence, int(part), int(parts), data)


class _CommitPart(NamedTuple):
    """A message to be published."""

    subject: str
    chunk: bytes
    headers: dict[str, str]


class _StreamState(msgspec.Struct, frozen=True):
    last_seq: int = 0


class _StreamConfig(msgspec.Struct, frozen=True):
    num_replicas: int = 1


class _StreamInfo(msgspec.Struct, frozen=True):
    """The servers' information on a stream, or their error."""

    error: dict[str, Any] | None = None
    config: _StreamConfig = _StreamConfig()
    state: _StreamState = _StreamState()
    cluster: Cluster = Cluster()


_INFO: Final = msgspec.json.Decoder(_StreamInfo)


class _CommitPage:
    """Commits that are assembled from messages in order, each from one or several."""

    def __init__(self, after: int, name: str) -> None:
        self.commits = list[CommitBytes]()
        self.parts = list[bytes]()
        """The parts of the last commit while it is incomplete."""
        self.firsts: dict[int, int] = {}
        """Number of a commit -> the sequence of its first message, if the two differ."""
        self.following = after + 1
        self._name = name

    def add(self, stored: _StreamMessage) -> None:
        """Take in the next message; an earlier one is skipped."""
        if stored.sequence < self.following:
            return
        self.following = stored.sequence + 1
        self.parts.append(stored.data)
        if stored.part != len(self.parts):
            raise StoreCorrupt(
                f"message {stored.sequence} of {self._name} is not part {len(self.parts)} of its commit; {_COMPARE}"
            )
        if stored.part == stored.parts:
            if stored.parts > 1:
                self.firsts[stored.sequence] = stored.sequence - stored.parts + 1
            self.commits.append(CommitBytes(stored.sequence, b"".join(self.parts)))
            self.parts = []

    def add_replacement(self, replaced: CommitBytes) -> None:
        """Take in the replacement of the commit that begins at the next message."""
        self.commits.append(replaced)
        self.following = replaced.number + 1


class JetStreamCommits:
    """The commits of one log in a stream; ``commits.CommitLog`` documents each method.

    The address is ``nats://host:4222,host2:4222/NAME``, or ``tls://``; ``?replicas=1`` is for a single server, and
    ``?creds=PATH`` names the file of a user's credentials.
    """

    def __init__(self, address: str, *, readonly: bool) -> None:
        place = _LogAddress.of(address)
        self.name = place.name
        self._stream, self._replaced = _stream_name(place.log), f"{_stream_name(place.log)}_REPLACED"
        self._subject, self._replaced_subject = f"refold.{place.log}.commit", f"refold.{place.log}.replaced"
        self._firsts: dict[int, int] = {}
        """Number of a commit -> the sequence of its first message, if the two differ."""
        self._leaderships = {stream: Leadership() for stream in (self._stream, self._replaced)}
        self._is_damaged = False
        """Whether a replica lacked a message that another one has."""
        self._is_closed = False
        self._lock = Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = Worker(self._loop.run_forever, "refold-nats")
        self._thread.start()
        if not self._thread.wait_for_start():
            raise StoreError(f"{self.name} cannot be used: {NO_THREAD}")
        self._client: Any = None
        self._jetstream: JetStreamContext
        self._consumer: Any = None
        self._is_missing = False
        """Whether the log did not exist when it was opened read-only."""
        try:
            self._call(partial(self._connect, place))
            self._find_log(place, readonly=readonly)
        except BaseException:
            self.close()
            raise

    def _find_log(self, place: "_LogAddress", *, readonly: bool) -> None:
        """Find the log, or create it; a call that fails makes the client go to another server."""
        for attempt in range(len(place.servers), 0, -1):
            try:
                self._call(partial(self._find, place, readonly=readonly))
            except StoreUnreachable:
                if attempt == 1:
                    raise
            else:
                return

    # Calls of the client, on the thread of its event loop.

    def _call(self, use: Callable[[], Coroutine[Any, Any, T]], seconds: float = _CALL_SECONDS) -> T:
        try:
            return self._result(use(), seconds)
        except (NatsError, TimeoutError, OSError, CancelledError) as error:
            if isinstance(error, (*_PASSING, NatsTimeout, TimeoutError)):
                self._change_server()
            self._raise(error)

    def _change_server(self) -> None:
        """Let the client connect to another server: one that is cut off from the others cannot serve it."""
        if self._client is not None and len(self._client.servers) > 1:
            with suppress(Closed, NatsError, TimeoutError, OSError, CancelledError):
                self._result(self._client.force_reconnect(), _SECONDS)

    def _result(self, coroutine: Coroutine[Any, Any, T], seconds: float) -> T:
        with self._lock:  # `close` cancels everything in the loop, and nothing can be added after it.
            if self._is_closed:
                coroutine.close()
                raise Closed(f"{self.name} is closed; open it again")
            future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, seconds), self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def _raise(self, error: BaseException) -> NoReturn:
        reason = " ".join(str(error).split()) or type(error).__name__
        if self._is_closed:
            raise Closed(f"{self.name} is closed; open it again") from error
        is_passing = isinstance(error, _PASSING) or (
            isinstance(error, errors.APIError) and error.err_code == _NO_STREAM
        )
        if isinstance(error, errors.APIError) and not is_passing:
            raise StoreError(f"{self.name}: {reason}; see that its user may use JetStream") from error
        raise StoreUnreachable(
            f"{self.name} does not answer: {reason}; see that it runs, has a leader and can be reached"
        ) from error

    async def _connect(self, place: "_LogAddress") -> None:
        reasons = deque[Exception](maxlen=len(place.servers))

        self._client = client = Client()

        async def note(error: Exception) -> None:
            reasons.append(error)  # Failed calls raise, and the client reconnects by itself.
            transport: Any = client._transport  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            if transport is not None and not client.is_connected:
                transport.close()  # The client would leave it open, and use another one.

        begin = time.perf_counter_ns() % len(place.servers)  # Another one each time.
        connect = client.connect(  # pyright: ignore[reportUnknownMemberType] - its options have no types
            servers=[*place.servers[begin:], *place.servers[:begin]],
            dont_randomize=True,  # When it leaves a server, it is not to come back to it at once.
            name="refold",
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=1,
            error_cb=note,
            connect_timeout=int(_SECONDS),
            ping_interval=int(_SECONDS),  # After three unanswered pings, the client tries another server.
            **place.credentials,
        )
        try:
            await asyncio.wait_for(connect, _SECONDS)  # By itself, the client tries forever.
        except TimeoutError as error:
            said = "; ".join(map(str, reasons)) or "no server has answered"
            raise TimeoutError(f"no connection within {_SECONDS:g} s: {said}") from error
        version = client.connected_server_version
        if (version.major, version.minor) < _VERSION_MIN:
            raise StoreVersion(
                f"{self.name} is nats-server {version.major}.{version.minor}, and a log needs "
                f"{_VERSION_MIN[0]}.{_VERSION_MIN[1]}: upgrade it"
            )
        self._jetstream = self._client.jetstream(timeout=_SECONDS)

    async def _find(self, place: "_LogAddress", *, readonly: bool) -> None:
        with suppress(errors.NotFoundError):
            await self._jetstream.stream_info(self._stream)
            return
        if not readonly:
            await self._create(place.replicas)
        else:
            self._is_missing = place.replicas == 1 or await self._is_unknown(place)

    async def _is_unknown(self, place: "_LogAddress") -> bool:
        """Return whether a majority of the servers says that there is no such log, and none knows it.

        A server that is cut off, or has led only for a moment, does not know the newest logs.
        """
        asked = [self._is_known_to(server, place) for server in place.servers]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        if True not in answers and answers.count(False) <= len(answers) // 2:
            raise errors.ServiceUnavailableError(description="too few servers answer to say that there is no such log")
        return True not in answers

    async def _is_known_to(self, server: str, place: "_LogAddress") -> bool:
        """Return whether a server knows the log; it is asked for as long as it may take to learn of one."""
        client, until = Client(), time.monotonic() + UNKNOWN_SECONDS

        async def ignore(_: Exception) -> None:
            """The client would log that it cannot connect."""

        try:
            connect = client.connect(  # pyright: ignore[reportUnknownMemberType] - as above
                servers=[server], allow_reconnect=False, max_reconnect_attempts=1, error_cb=ignore, **place.credentials
            )
            await asyncio.wait_for(connect, UNKNOWN_SECONDS)
            jetstream = client.jetstream(timeout=UNKNOWN_SECONDS)  # pyright: ignore[reportUnknownMemberType] - as above
            while time.monotonic() < until:
                with suppress(errors.NotFoundError):
                    await jetstream.stream_info(self._stream)
                    return True
                await asyncio.sleep(AGAIN_SECONDS)
            return False
        finally:
            await client.close()

    async def _create(self, replicas: int) -> None:
        for name, subject in (
            (self._replaced, f"{self._replaced_subject}.>"),
            (self._stream, f"{self._subject}.*"),
        ):
            config = api.StreamConfig(
                name=name,
                subjects=[subject],
                storage=api.StorageType.FILE,
                num_replicas=replicas,
                discard=api.DiscardPolicy.NEW,
                allow_direct=True,
                allow_atomic=True,
                deny_purge=True,
            )
            try:
                await self._jetstream.add_stream(config)  # pyright: ignore[reportUnknownMemberType] - as above
            except errors.BadRequestError as error:
                if error.err_code == _NO_PEERS:
                    raise errors.ServiceUnavailableError(description=error.description) from error
                try:
                    await self._jetstream.stream_info(name)  # Another machine made it at the same moment.
                except errors.NotFoundError:
                    raise error from None

    # Commits.

    @property
    def connections(self) -> int:
        """The number of times that the client has connected again."""
        return int(self._client.stats["reconnects"])

    def head(self) -> int:
        """Return the sequence of the last message, which is the number of its commit."""
        return 0 if self._is_missing else self._call(partial(self._last, self._stream))

    async def _last(self, stream: str) -> int:
        """Return the sequence of a stream's last message, from a server that is known to be its current leader."""
        leadership, until = self._leaderships[stream], time.monotonic() + _SECONDS
        while True:
            asked_at = time.monotonic()
            message = await self._client.request(f"$JS.API.STREAM.INFO.{stream}", timeout=_SECONDS)
            info, answered_at = _INFO.decode(message.data), time.monotonic()
            last_seq, is_single = info.state.last_seq, info.config.num_replicas == 1
            if info.error is None:
                seconds = 0.0 if is_single else leadership.retry_seconds(info.cluster, last_seq, asked_at, answered_at)
                reason = f"no leader of {stream} is in touch with a majority"
            else:
                if info.error.get("err_code") != _NO_STREAM:
                    errors.APIError.from_error(info.error)  # pyright: ignore[reportUnknownMemberType] - it raises
                seconds, reason = AGAIN_SECONDS, f"the servers do not know {stream}, which was there"
            if not seconds:
                return last_seq
            if time.monotonic() > until:
                raise errors.ServiceUnavailableError(description=reason)
            await asyncio.sleep(seconds)

    def read(self, after: int) -> list[CommitBytes]:
        """Return the first commits after a number."""
        return [] if self._is_missing else self._call(partial(self._read, after))

    async def _read(self, after: int) -> list[CommitBytes]:
        until, leadership = time.monotonic() + _SECONDS, self._leaderships[self._stream]
        leadership.note(after)
        while True:
            page = await self._page(after)
            if page.commits:
                break
            # The replica that answers may be a moment behind; only the leader knows the end of the stream.
            if (head := await self._last(self._stream)) <= after:
                if head < after:
                    raise CommitsLost
                break
            if time.monotonic() > until:
                while not page.commits:
                    await self._fill(page)
                break
            await asyncio.sleep(0.005)
        self._firsts |= page.firsts
        if page.commits:
            leadership.note(page.commits[-1].number)
        return page.commits

    async def _page(self, after: int) -> _CommitPage:
        """Return the commits after a number that a replica has, with replacements in their places."""
        page = _CommitPage(after, self.name)
        is_underway = True
        while is_underway:
            messages = await self._messages(page.following)
            for stored in messages:
                while page.following < stored.sequence:
                    await self._fill(page)
                page.add(stored)
            is_underway = bool(messages and page.parts)  # A commit may be longer than a page.
        if not page.commits and not page.parts and (replaced := await self._replacement(page.following)) is not None:
            page.add_replacement(replaced)
        return page

    async def _fill(self, page: _CommitPage) -> None:
        """Take in the next message, which a replica lacks, or its replacement if it was erased."""
        if not page.parts and (replaced := await self._replacement(page.following)) is not None:
            page.add_replacement(replaced)
            return
        try:
            page.add(await self._missing_message(page.following))
        except StoreCorrupt:  # Unless the replica that was asked for a replacement is behind.
            replaced = None if page.parts else await self._replacement(page.following, direct=False)
            if replaced is None:
                raise
            page.add_replacement(replaced)

    async def _missing_message(self, sequence: int) -> _StreamMessage:
        """Return a message that a replica lacks, from the leader or another replica."""
        passing: errors.APIError | None = None
        for attempt in range(_ATTEMPTS):
            try:
                found = await self._from_replica(partial(self._read_message, sequence, direct=attempt > 0))
            except _PASSING as error:
                passing = error
            except errors.APIError:
                continue
            else:
                if not self._is_damaged:
                    self._is_damaged = True
                    logger().warning(f"message {sequence} of {self.name} was missing in a replica; {_COMPARE}")
                return _StreamMessage.of(sequence, _headers(found), found.data or b"")
        if passing is not None:
            raise passing
        raise StoreCorrupt(
            f"message {sequence} of {self.name} is missing in all replicas that answer; {_COMPARE}, and restore "
            f"{self._stream} from a backup where none has it"
        )

    async def _from_replica(self, ask: Callable[[float], Coroutine[Any, Any, T]]) -> T:
        """Return the answer of a replica; if one gives none within its time limit, another may be chosen."""
        *short, last = _REPLICA_SECONDS
        for seconds in short:
            with suppress(NatsTimeout, TimeoutError):
                return await ask(seconds)
        return await ask(last)

    async def _read_message(self, sequence: int, seconds: float, *, direct: bool) -> api.RawStreamMsg:
        jetstream: JetStreamContext = self._client.jetstream(timeout=seconds)
        return await jetstream.get_msg(self._stream, sequence, direct=direct)

    async def _read_last_message(self, subject: str, seconds: float, *, direct: bool) -> api.RawStreamMsg:
        jetstream: JetStreamContext = self._client.jetstream(timeout=seconds)
        return await jetstream.get_last_msg(self._replaced, subject, direct=direct)

    async def _messages(self, first: int) -> list[_StreamMessage]:
        """Return the first messages of the stream from a sequence on, from any of its replicas."""
        return await self._from_replica(partial(self._messages_within, first))

    async def _messages_within(self, first: int, seconds: float) -> list[_StreamMessage]:
        inbox = self._client.new_inbox()
        subscription = await self._client.subscribe(inbox)
        try:
            request = {"seq": first, "batch": _PAGE_COUNT, "max_bytes": PAGE_BYTES}
            await self._client.publish(f"$JS.API.DIRECT.GET.{self._stream}", msgspec.json.encode(request), reply=inbox)
            found = list[_StreamMessage]()
            while True:
                message = await subscription.next_msg(timeout=_SECONDS if found else seconds)
                headers = _headers(message)
                if "Status" in headers:
                    if headers["Status"] == "503":
                        raise NoRespondersError
                    if headers["Status"] not in ("204", "404"):
                        raise errors.APIError(description=f"{headers['Status']} {headers.get('Description')}")
                    return found
                found.append(_StreamMessage.of(int(headers["Nats-Sequence"]), headers, message.data))
                if headers.get("Nats-Num-Pending") == "0":
                    return found
        finally:
            await subscription.unsubscribe()

    async def _replacement(self, first: int, *, direct: bool = True) -> CommitBytes | None:
        """Return the replacement of the commit whose first message has the sequence ``first``, if there is one."""
        parts, count, number = list[bytes](), 1, 0
        while len(parts) < count:
            subject = f"{self._replaced_subject}.{first}.{len(parts) + 1}"
            try:
                message = await self._from_replica(partial(self._read_last_message, subject, direct=direct))
            except errors.NotFoundError:
                return None
            headers = _headers(message)
            number, count = int(headers[_LAST]), int(headers[_PART].partition("/")[2])
            parts.append(message.data or b"")
        if number > first:
            self._firsts[number] = first
        return CommitBytes(number, b"".join(parts))

    def append(self, expected: int, packed: bytes, before: bytes | None = None) -> int:
        """Append a commit, if the last message is ``expected`` and has the subject of the link ``before``.

        The subject of a commit that was replaced is gone.
        """
        try:
            return self._result(self._append(expected, packed, before), _CALL_SECONDS)
        except errors.APIError as error:
            if error.err_code in _WRONG_SEQUENCE:
                raise AppendConflict from error
            if isinstance(error, _PASSING):
                raise ConnectionLost(" ".join(str(error).split())) from error
            self._raise(error)
        except (NatsError, TimeoutError, OSError, CancelledError) as error:
            if self._is_closed:
                raise Closed(f"{self.name} is closed; open it again") from error
            raise ConnectionLost(" ".join(str(error).split()) or type(error).__name__) from error

    async def _append(self, expected: int, packed: bytes, before: bytes | None) -> int:
        chunks, subject = self._chunks(packed), self._commit_subject(link_of(packed))
        parts = [
            _CommitPart(subject, chunk, {_PART: f"{place}/{len(chunks)}"} if len(chunks) > 1 else {})
            for place, chunk in enumerate(chunks, 1)
        ]
        headers = {"Nats-Expected-Last-Sequence": str(expected)}
        if before:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(expected)
            headers["Nats-Expected-Last-Subject-Sequence-Subject"] = self._commit_subject(before)
        number = await self._publish(parts, headers)
        self._leaderships[self._stream].note(number)
        return number

    def _commit_subject(self, link: bytes) -> str:
        return f"{self._subject}.{link[-_SUBJECT_BYTES:].hex() or 0}"

    async def _publish(self, parts: "Sequence[_CommitPart]", expected: dict[str, str]) -> int:
        """Publish all parts of a commit or none, as one batch, and return the sequence of the last part."""
        headers = [part.headers for part in parts]
        if len(parts) > 1:
            batch = self._client.new_inbox().rpartition(".")[2]  # Unique, and not too long for a batch's name.
            for place, each in enumerate(headers, 1):
                each |= {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(place)}
            headers[-1]["Nats-Batch-Commit"] = "1"
        headers[0] |= expected
        for part in parts[:-1]:
            await self._client.publish(part.subject, part.chunk, headers=part.headers)
        subject, chunk, _ = parts[-1]
        return (await self._jetstream.publish(subject, chunk, headers=headers[-1])).seq

    def _chunks(self, packed: bytes) -> list[bytes]:
        size = self._client.max_payload - _HEADERS_BYTES
        chunks = [packed[begin : begin + size] for begin in range(0, len(packed) or 1, size)]
        if len(chunks) > _PARTS_MAX:
            raise InvalidInput(
                f"a commit of {len(packed)} bytes is more than {_PARTS_MAX} messages of {self.name}, whose max_payload "
                f"is {self._client.max_payload}; write less at a time, or raise it"
            )
        return chunks

    def replace(self, commits: Sequence[Replacement]) -> bool:
        """Put the new bytes into the second stream, and erase the messages with the old ones."""
        replaced = [self._call(partial(self._replace, commit)) for commit in commits]
        return all(replaced)

    async def _replace(self, commit: Replacement) -> bool:
        await self._last(self._replaced)  # A former leader would not know everything that is to be erased.
        first = await self._first(commit.number)
        own, chunks = range(first, commit.number + 1), self._chunks(commit.after)
        if found := await self._replacement_messages(first):
            await self._erase(self._stream, own)  # The machine that replaced it may have been cut off before this.
        else:
            try:
                found = [(0, (await self._jetstream.get_msg(self._stream, sequence)).data or b"") for sequence in own]
            except errors.NotFoundError:
                return False  # Replaced since it was read.
        if b"".join(data for _, data in found) != commit.before:
            return False
        parts = [
            _CommitPart(
                f"{self._replaced_subject}.{first}.{place}",
                chunk,
                {_PART: f"{place}/{len(chunks)}", _LAST: str(commit.number)},
            )
            for place, chunk in enumerate(chunks, 1)
        ]
        try:
            await self._publish(parts, {"Nats-Expected-Last-Subject-Sequence": str(found[0][0])})
        except errors.APIError as error:
            if error.err_code in _WRONG_SEQUENCE:
                return False
            raise
        before = [sequence for sequence, _ in found if sequence]
        for stream, sequences in ((self._stream, own), (self._replaced, before)):
            await self._erase(stream, sequences)
        return True

    async def _first(self, number: int) -> int:
        """Return the sequence of a commit's first message; for one replaced earlier, it is known from reading it."""
        if number not in self._firsts:
            with suppress(errors.NotFoundError):
                message = await self._jetstream.get_msg(self._stream, number)
                return number + 1 - int(_headers(message).get(_PART, "1/1").partition("/")[2])
        return self._firsts.get(number, number)

    async def _replacement_messages(self, first: int) -> list[tuple[int, bytes]]:
        """Return the messages that now replace a commit, with their sequences; empty if it was not replaced."""
        found, count = list[tuple[int, bytes]](), 1
        with suppress(errors.NotFoundError):
            while len(found) < count:
                subject = f"{self._replaced_subject}.{first}.{len(found) + 1}"
                message = await self._jetstream.get_last_msg(self._replaced, subject)
                count = int(_headers(message)[_PART].partition("/")[2])
                found.append((message.seq or 0, message.data or b""))
        return found

    async def _erase(self, stream: str, sequences: Iterable[int]) -> None:
        """Erase messages together with their bytes, and skip those that are already gone."""
        for sequence in sequences:
            with suppress(errors.NotFoundError, errors.BadRequestError):
                await self._jetstream.delete_msg(stream, sequence)

    def sweep(self) -> None:
        """Erase superseded replacements that remain because a machine was cut off.

        Messages are erased in place, and the servers' own logs drop their copies in time.
        """
        self._call(self._sweep)

    async def _sweep(self) -> None:
        info = await self._jetstream.stream_info(self._replaced, subjects_filter=f"{self._replaced_subject}.>")
        for subject, count in (info.state.subjects or {}).items():
            *_, first, place = subject.split(".")
            is_left = int(place) > 1 and int(place) > len(await self._replacement_messages(int(first)))
            sequence = 0
            for _ in range(count if is_left else count - 1):
                message = await self._jetstream.get_msg(self._replaced, sequence + 1, subject=subject, next=True)
                sequence = message.seq or 0
                await self._erase(self._replaced, [sequence])

    # Turns.

    def queue(self) -> None:
        """Wait a moment, different for each machine: the servers do not support turns."""
        time.sleep(time.perf_counter_ns() % _APART_NS / 1e9)

    def leave(self) -> None:
        """Do nothing: there is no turn to give back."""

    def wait(self, seconds: float) -> int | None:
        """Return the sequence of the last message that the server announces within ``seconds``."""
        return self._call(partial(self._wait, seconds), seconds + _CALL_SECONDS)

    async def _wait(self, seconds: float) -> int | None:
        if self._consumer is None:
            self._consumer = await self._jetstream.subscribe(
                f"{self._subject}.*",
                stream=self._stream,
                ordered_consumer=True,
                deliver_policy=api.DeliverPolicy.NEW,
                headers_only=True,
            )
            return None  # It does not announce earlier commits.
        last = None
        with suppress(TimeoutError, NatsTimeout):
            last = await self._consumer.next_msg(timeout=seconds)
            while True:
                last = await self._consumer.next_msg(timeout=0)
        return None if last is None else int(last.metadata.sequence.stream)

    def size_bytes(self) -> int:
        """Return the size of the stream in each of its replicas, in bytes."""

        async def size() -> int:
            return (await self._jetstream.stream_info(self._stream)).state.bytes

        return self._call(size)

    def checks(self) -> list[Check]:
        """Check the server, the replicas of the stream, and its messages."""
        return [MISSING_LOG] if self._is_missing else self._call(self._checks)

    async def _checks(self) -> list[Check]:
        info = await self._jetstream.stream_info(self._stream)
        version = self._client.connected_server_version
        found = [Check("server", "ok", f"nats-server {version.major}.{version.minor}.{version.patch}")]
        count = info.config.num_replicas or 1
        peers = (info.cluster.replicas if info.cluster else None) or []
        behind = [f"{peer.name} ({peer.lag or 0:,} behind)" for peer in peers if peer.offline or not peer.current]
        if behind:
            step = "find out why: until it catches up, one more failure stops all writes"
            found.append(Check("replicas", "warn", f"not current: {', '.join(behind)}", step))
        elif count == 1:
            step = "run three servers and open it with ?replicas=3; with one, the log is lost with its disk"
            found.append(Check("replicas", "warn", "there is only one", step))
        else:
            found.append(Check("replicas", "ok", f"{count} are current"))
        # For the stream as a whole. If one replica has silently lost messages, the chain reveals that when it is read.
        state, replaced = info.state, (await self._jetstream.stream_info(self._replaced)).state
        missing = state.last_seq - state.messages
        if state.lost or (missing and not replaced.messages):
            step = "make another replica the leader (`nats stream cluster step-down`), and wipe the previous leader"
            found.append(Check("commits", "bad", f"{missing:,} of {state.last_seq:,} messages are missing", step))
        else:
            erased = f", {missing:,} of them erased" if missing else ""
            found.append(Check("commits", "ok", f"all {state.last_seq:,} messages are there{erased}"))
        return found

    def close(self) -> None:
        """Close the connection and end its thread."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        """Close the client, and cancel every task that waits for an answer."""
        if self._client is not None:
            with suppress(Exception):
                await asyncio.wait_for(self._client.close(), _SECONDS)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def stream_of(address: str) -> str:
    """Return the name of the stream that holds the commits of the log at an address."""
    return _stream_name(_LogAddress.of(address).log)


def _stream_name(log: str) -> str:
    return f"REFOLD_{log}"


def _headers(message: object) -> dict[str, str]:
    return cast("dict[str, str]", getattr(message, "headers", None) or {})


class _LogAddress(NamedTuple):
    """An address, split into its parts."""

    servers: list[str]
    log: str
    name: str
    replicas: int
    credentials: dict[str, Any]
    """The client's option for them."""

    @classmethod
    def of(cls, address: str) -> "_LogAddress":
        parts = split_address(address)
        log = unquote(parts.path.strip("/")) or "default"
        if not _NAME_CHARS.issuperset(log):
            raise InvalidInput(f"the name of a log is {log!r}; give letters, digits, '-' and '_' behind the host")
        user, _, hosts = parts.netloc.rpartition("@")
        options = parse_qs(parts.query)
        unknown = options.keys() - {"replicas", "creds"}
        if unknown:
            raise InvalidInput(f"the address of a log has the option {min(unknown)!r}; replicas and creds are known")
        replicas = options.get("replicas", [""])[0] or str(_REPLICAS if "," in hosts else 1)
        if replicas not in ("1", "3", "5"):
            raise InvalidInput(f"replicas is {replicas!r}; give 1, 3 or 5")
        servers = [
            f"{parts.scheme}://{user}@{host}" if user else f"{parts.scheme}://{host}" for host in hosts.split(",")
        ]
        credentials = {"user_credentials": options["creds"][0]} if "creds" in options else {}
        return cls(servers, log, hide_password(address), int(replicas), credentials)
