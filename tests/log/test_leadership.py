"""Answers of a leader are believed where it cannot have been replaced since."""

import signal
import threading
import time
from contextlib import closing, suppress
from math import inf
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeout
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError, ServiceUnavailableError

from refold import StoreUnreachable
from refold.cli.cluster import NatsServers
from refold.log import jetstream
from refold.log.commits import MISSING_LOG, AppendConflict, CommitLog, ConnectionLost
from refold.log.jetstream import JetStreamCommits
from refold.log.leadership import LEASE_SECONDS, PAUSE_SECONDS, SET_BACK_SECONDS, Cluster, Leadership, Peer
from tests.support.commits import opened
from tests.support.nats_servers import nats_servers

NEAR = 1_000_000


def led(leader: str = "a", since: str = "1", near: int = 2, of: int = 2) -> Cluster:
    others = [name for name in "abcde" if name != leader][:of]
    return Cluster(leader, since, tuple(Peer(name, NEAR if place < near else 0) for place, name in enumerate(others)))


def test_a_leader_is_asked_twice_and_then_believed_as_long_as_it_is_asked() -> None:
    leadership = Leadership()
    assert leadership.retry_seconds(led(), 0, 10.0, 10.01) == pytest.approx(PAUSE_SECONDS + 0.01)
    assert leadership.retry_seconds(led(), 0, 10.1, 10.11) == pytest.approx(PAUSE_SECONDS - 0.09)
    assert not leadership.retry_seconds(led(), 0, 10.3, 10.31)
    assert not leadership.retry_seconds(led(), 0, 10.3 + LEASE_SECONDS, 12)
    assert leadership.retry_seconds(led(), 0, 10.4 + 2 * LEASE_SECONDS, 14) > 0


@pytest.mark.parametrize(
    "other",
    [
        led("b"),
        led(since="2"),
        led(near=0),
        Cluster("", "", led().replicas),
        Cluster("b", "1", led("a").replicas),
        Cluster("a", "1"),
    ],
    ids=["another leader", "the same again", "out of touch", "no leader", "one that follows", "one that left"],
)
def test_who_may_not_lead_any_more_is_asked_again(other: Cluster) -> None:
    leadership = Leadership()
    leadership.retry_seconds(led(), 0, 10.0, 10.0)
    assert not leadership.retry_seconds(led(), 0, 10.3, 10.3)
    assert leadership.retry_seconds(other, 0, 10.4, 10.4) > 0
    assert leadership.retry_seconds(led(), 0, 10.5, 10.5) > 0


def test_one_that_lacks_what_was_seen_is_asked_again_before_it_is_believed() -> None:
    leadership = Leadership()
    leadership.retry_seconds(led(), 7, 10.0, 10.0)
    assert not leadership.retry_seconds(led(), 8, 10.3, 10.3)
    leadership.note(9)
    leadership.note(6)
    assert leadership.retry_seconds(led(), 8, 10.4, 10.4) > 0
    assert not leadership.retry_seconds(led(), 9, 10.5, 10.5)
    since = 10.5
    for asked_at in (since + 0.1, since + 1, since + SET_BACK_SECONDS):
        assert leadership.retry_seconds(led(), 5, asked_at, asked_at) > 0
    assert leadership.retry_seconds(led("b"), 5, 13, 13) > 0
    assert leadership.retry_seconds(led("b"), 5, 13.5, 13.5) > 0, "another leader has its own time to catch up"
    for asked_at in (14.3, 15):
        assert (leadership.retry_seconds(led("b"), 5, asked_at, asked_at) > 0) == (asked_at < 13 + SET_BACK_SECONDS)
    assert not leadership.retry_seconds(led("b"), 5, 15.1, 15.1)


def test_a_follower_that_is_ahead_of_its_leader_shows_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    with nats_servers(3) as servers, closing(_opened(servers.address("ahead"))) as commits:
        assert isinstance(commits, JetStreamCommits)
        numbers = [commits.append(before, b"some") for before in (0, 1, 2)]
        assert numbers == [1, 2, 3]
        decode, late = jetstream._INFO.decode, [3]

        def decode_late(data: bytes) -> Any:
            info = decode(data)
            if late:
                return msgspec.structs.replace(info, state=msgspec.structs.replace(info.state, last_seq=late.pop() - 1))
            return info

        monkeypatch.setattr(jetstream, "_INFO", SimpleNamespace(decode=decode_late))
        assert commits.head() == 3
        assert not late
        late.append(3)
        assert commits.read(3) == []
        assert not late


def test_a_server_that_does_not_know_a_new_log_is_not_believed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is cut off answers for the others for some 10 s, and knows no log that they made meanwhile."""
    with nats_servers(3) as servers, closing(_opened(servers.address("new"))) as commits:
        assert isinstance(commits, JetStreamCommits)
        commits.append(0, b"first")
        stream_info, unknown = JetStreamContext.stream_info, 4

        async def unknown_at_first(self: JetStreamContext, name: str, *given: Any) -> Any:
            nonlocal unknown
            unknown -= 1
            if unknown >= 0:
                raise NotFoundError
            return await stream_info(self, name, *given)

        monkeypatch.setattr(JetStreamContext, "stream_info", unknown_at_first)
        with closing(JetStreamCommits(servers.address("new"), readonly=True)) as reader:
            assert [commit.packed for commit in reader.read(0)] == [b"first"]
        with closing(JetStreamCommits(servers.address("none"), readonly=True)) as reader:
            assert reader.read(0) == []
            assert reader.checks() == [MISSING_LOG]

        async def unreachable(*_: Any) -> bool:
            raise TimeoutError

        monkeypatch.setattr(JetStreamCommits, "_is_known_to", unreachable)
        with pytest.raises(StoreUnreachable, match="too few servers answer"):
            JetStreamCommits(servers.address("none"), readonly=True)


def test_a_log_that_was_seen_is_not_lost_where_a_server_does_not_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with nats_servers(3) as servers, closing(_opened(servers.address("known"))) as commits:
        assert commits.append(0, b"first") == 1
        decode, unknown = jetstream._INFO.decode, 1.0
        error = {"code": 404, "err_code": 10_059, "description": "stream not found"}

        def unknown_at_first(data: bytes) -> Any:
            nonlocal unknown
            unknown -= 1
            return msgspec.structs.replace(decode(data), error=error) if unknown >= 0 else decode(data)

        monkeypatch.setattr(jetstream, "_INFO", SimpleNamespace(decode=unknown_at_first))
        assert commits.read(1) == []
        assert unknown < 0
        unknown = 1.0
        with closing(opened(servers.address("known"))) as another:
            assert another.read(1) == [], "nor where the log has just been opened"
        assert unknown < 0
        unknown = inf
        with pytest.raises(StoreUnreachable, match="do not know REFOLD_known, which was there"):
            commits.head()


def test_a_client_leaves_a_server_that_cannot_serve_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is cut off from the others answers that it has no leader, as long as its clients ask it."""
    with nats_servers(3) as servers, closing(_opened(servers.address("log"))) as commits:
        assert isinstance(commits, JetStreamCommits)
        assert commits.append(commits.head(), b"first") == 1
        while commits._client.connected_url.port != (cut_off := int(servers.address("").split(",")[0].split(":")[-1])):
            commits._change_server()
            _wait_for_connection(commits)
        request, stream_info = Client.request, JetStreamContext.stream_info

        def check(client: Client) -> None:
            if client.connected_url is not None and client.connected_url.port == cut_off:
                raise ServiceUnavailableError(description="JetStream system temporarily unavailable")

        async def request_there(self: Client, *given: Any, **named: Any) -> Any:
            check(self)
            return await request(self, *given, **named)

        async def info_there(self: JetStreamContext, *given: Any) -> Any:
            check(self._nc)
            return await stream_info(self, *given)

        monkeypatch.setattr(Client, "request", request_there)
        monkeypatch.setattr(JetStreamContext, "stream_info", info_there)
        with pytest.raises(StoreUnreachable, match="temporarily unavailable"):
            commits.head()
        _wait_for_connection(commits)
        assert commits.head() == 1
        for _ in range(3):  # At whichever server they begin.
            with closing(opened(servers.address("log"))) as another:
                assert another.head() == 1


def test_a_replica_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers pass some reads on to a replica that is cut off, until they notice."""
    with nats_servers(3) as servers, closing(_opened(servers.address("log"))) as commits:
        assert isinstance(commits, JetStreamCommits)
        assert commits.append(0, b"first") == 1
        asked = list[float]()

        def late(method: Any) -> Any:
            async def answer(self: JetStreamCommits, *given: Any, **named: Any) -> Any:
                asked.append(given[-1])
                if len(asked) % 3:
                    raise NatsTimeout
                return await method(self, *given, **named)

            return answer

        for name in ("_messages_within", "_read_last_message"):
            monkeypatch.setattr(JetStreamCommits, name, late(getattr(JetStreamCommits, name)))
        assert [commit.packed for commit in commits.read(0)] == [b"first"]
        assert commits.read(1) == []
        assert asked == [*jetstream._REPLICA_SECONDS[:3]] * 3
        assert sum(jetstream._REPLICA_SECONDS) == pytest.approx(jetstream._SECONDS)
        monkeypatch.setattr(jetstream, "_REPLICA_SECONDS", (0.1, 0.1))
        asked.clear()
        with pytest.raises(StoreUnreachable, match="timeout"):
            commits.read(0)


def _wait_for_connection(commits: JetStreamCommits) -> None:
    until = time.monotonic() + 60
    while not commits._client.is_connected:
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize(("of", "majority"), [(2, 1), (4, 2)])
def test_a_majority_is_in_touch(of: int, majority: int) -> None:
    assert [led(near=near, of=of).is_led() for near in range(of + 1)] == [near >= majority for near in range(of + 1)]


@pytest.mark.slow
@pytest.mark.timeout(600)
# The client leaves a connection to a server that stands still to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_leader_that_was_replaced_while_it_stood_still_is_not_believed() -> None:
    with nats_servers(3) as servers:
        address = servers.address("still")
        with closing(_opened(address)) as commits:
            commits.append(0, b"first")
        for place in range(servers.count):
            assert not _late_answers(servers, address, place)


def _late_answers(servers: NatsServers, address: str, place: int) -> list[int]:
    """Stop a server for longer than a leader is missed, and return the answers that lack what was acknowledged."""
    host = urlsplit(address).netloc.split(",")[place]
    with closing(_opened(f"nats://{host}/still?replicas=3")) as behind, closing(_opened(address)) as commits:
        behind.head()
        servers.signal(place, signal.SIGSTOP)
        acknowledged, since = 0, time.monotonic()
        # On a busy machine the others take longer to elect a leader that takes something in.
        while (waited := time.monotonic() - since) < 12 or (not acknowledged and waited < 90):
            with suppress(ConnectionLost, AppendConflict, StoreUnreachable):
                acknowledged = commits.append(commits.head(), b"more")
        answers = list[int]()
        asking = threading.Thread(target=lambda: answers.extend(_heads(behind)))
        asking.start()
        servers.signal(place, signal.SIGCONT)
        asking.join()
    assert acknowledged
    assert answers
    return [head for head in answers if head < acknowledged]


def _heads(commits: CommitLog) -> list[int]:
    found, since = list[int](), time.monotonic()
    while (waited := time.monotonic() - since) < 2 or (not found and waited < 60):
        with suppress(StoreUnreachable):
            found.append(commits.head())
    return found


def _opened(address: str) -> CommitLog:
    """Return the commits at an address, as soon as the servers have chosen who leads."""
    until = time.monotonic() + 60
    while True:
        try:
            return opened(address)
        except StoreUnreachable:
            assert time.monotonic() < until
