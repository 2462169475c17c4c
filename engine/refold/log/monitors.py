"""Compares each JetStream server's report on its own copy of a log; clients learn only about the leader's copy.

A replica that has silently lost messages reports itself as current, so it is found by comparing `/jsz` and `/varz` of
each server's monitoring port.
"""

import time
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.request import urlopen

import msgspec

from refold.errors import InvalidInput
from refold.log.commits import Check

_SECONDS: Final = 5.0
_TRIES: Final = 10
_PAUSE_SECONDS: Final = 0.2
"""The pause before replicas are asked again: while writes are on their way, they differ for a moment."""


class Replica(NamedTuple):
    """A server's copy of a stream: its last sequence, the number of messages missing up to it, whether it leads."""

    server: str
    last: int
    missing: int
    leads: bool
    syncs: bool
    """Whether each message is on disk before it is acknowledged."""


def look(monitor: str, stream: str) -> Replica | None:
    """Return the copy of a stream that the server with this monitoring address has, ``None`` if it has none."""
    server = str(_fetch(monitor, "varz")["server_name"])
    found = _fetch(monitor, "jsz?accounts=1&streams=1")
    for account in found.get("account_details", ()):
        for each in account.get("stream_detail", ()):
            if each["name"] == stream:
                state, cluster = each["state"], each.get("cluster")
                leader = cluster.get("leader") if cluster else server
                missing = state["last_seq"] - state["messages"]
                is_synced = bool(found["config"].get("sync_always"))
                return Replica(server, state["last_seq"], missing, leader == server, is_synced)
    return None


def _fetch(monitor: str, what: str) -> dict[str, Any]:
    if not monitor.startswith(("http://", "https://")):
        raise InvalidInput(
            f"a monitor is {monitor!r}; give the address of a server's monitoring port: http://host:8222"
        )
    with urlopen(f"{monitor.rstrip('/')}/{what}", timeout=_SECONDS) as answer:  # noqa: S310 - its scheme is checked above
        return msgspec.json.decode(answer.read(), type=dict[str, Any])


def compare(monitors: Sequence[str], stream: str, *, copies: int = 1) -> list[Check]:
    """Ask each server for its replica of a stream, and compare them; ``copies`` is the expected minimum of replicas."""
    away, found = _replicas(monitors, stream)
    for _ in range(_TRIES):
        if all((each.last, each.missing) == (found[0].last, found[0].missing) for each in found):
            break
        time.sleep(_PAUSE_SECONDS)
        away, found = _replicas(monitors, stream)
    return away + _check_replicas(found, copies)


def _replicas(monitors: Sequence[str], stream: str) -> tuple[list[Check], list[Replica]]:
    """Return a failed check for each monitor that does not answer, and the replicas of the others."""
    away, found = list[Check](), list[Replica]()
    for monitor in monitors:
        try:
            replica = look(monitor, stream)
        except (OSError, HTTPException, LookupError, msgspec.DecodeError) as error:
            step = "check that the server runs, and that `http` in its configuration names this port"
            away.append(Check("monitor", "bad", f"{monitor} does not answer: {error}", step))
        else:
            if replica is not None:
                found.append(replica)
    return away, found


def _check_replicas(found: Sequence[Replica], copies: int) -> list[Check]:
    if not found:
        step = "name the monitors of the servers that hold it; `nats stream info` lists them"
        return [Check("copies", "bad", "none of these servers has a copy of the log", step)]
    head, least = max(each.last for each in found), min(each.missing for each in found)
    checks = list[Check]()
    if len(found) < copies:
        step = "find out why; a server that has just started needs a moment to get its copy back"
        checks.append(Check("copies", "warn", f"{len(found)} of {copies} servers have a copy of the log", step))
    for each in found:
        if each.missing > least:
            step = (
                f"stop {each.server}, remove its copy from its store_dir and start it again: it fetches everything "
                f"from the others; do not let it lead until then"
            )
            lost = f"{each.server} has lost {each.missing - least:,} messages that the others have"
            checks.append(Check("copies", "bad", lost, step))
        elif each.last < head:
            step = "find out why: until it catches up, one more failure stops all writes"
            checks.append(Check("copies", "warn", f"{each.server} is {head - each.last:,} messages behind", step))
        if not each.syncs:
            step = (
                "set `sync_interval: always` under `jetstream` in its configuration: else a power cut can lose writes"
            )
            checks.append(
                Check("durability", "warn", f"{each.server} acknowledges writes before they are on disk", step)
            )
    return checks or [Check("copies", "ok", f"{len(found)} servers have the same {head - least:,} messages")]
