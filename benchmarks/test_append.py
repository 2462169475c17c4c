"""Appends and their floors; with tiny sizes, whether each of them does the whole job."""

from pathlib import Path

import pytest
import workloads
from peers.loader import load
from rounds import Job, Measure
from rows import append


@pytest.mark.parametrize("name", [append.REFOLD, append.PUT_ONE])
def test_one_durable_append(name: str, measure: Measure, tmp_path: Path) -> None:
    with append.one_writer(tmp_path) as jobs:
        measure(jobs.jobs()[name])
        if name == append.REFOLD:
            assert len(jobs.chat.window()) == jobs.memory.head - 1
        else:
            text = workloads.texts()[0].content
            (record,) = workloads.records(workloads.texts()[:1])
            assert next(iter(jobs.floor.values())) == record
            assert record.startswith(text.encode())
            assert len(record) == workloads.record_bytes(len(text)) > len(text)


@pytest.mark.parametrize(
    ("text_bytes", "record_bytes"), [(4, 164), (31, 191), (32, 193), (100, 261), (255, 416), (256, 418), (320, 482)]
)
def test_records_of_the_floor_have_the_size_of_the_first_format(text_bytes: int, record_bytes: int) -> None:
    """What a store of its last commit held for messages of these texts; no format of now moves it."""
    assert workloads.record_bytes(text_bytes) == record_bytes
    (record,) = workloads.records([workloads.Text("a" * text_bytes, text_bytes // workloads.BYTES_PER_TOKEN)])
    assert record == b"a" * text_bytes + bytes(record_bytes - text_bytes)


@pytest.mark.parametrize("name", [append.REFOLD, append.PUT, append.PUT_MULTI, append.SQLITE])
@pytest.mark.parametrize("conversations", [1, 100])
def test_batched_append(
    name: str, conversations: int, measure: Measure, sizes: workloads.Sizes, tmp_path: Path
) -> None:
    with append.batches(tmp_path, conversations, sizes.batch_events) as jobs:
        before = jobs.memory.head
        measure((jobs.jobs() | jobs.other_jobs())[name])
        floor = {append.PUT: jobs.put, append.PUT_MULTI: jobs.put_multi, append.SQLITE: jobs.sqlite}.get(name)
        if floor is None:
            assert (jobs.memory.head - before) % sizes.batch_events == 0
            assert jobs.memory.head > before
            assert jobs.memory.verify().ok
        else:
            assert list(floor.values())[-sizes.batch_events :] == jobs.records


@pytest.mark.parametrize("conversations", [1, 100])
def test_batched_append_of_eventsourcing(
    conversations: int, measure: Measure, sizes: workloads.Sizes, tmp_path: Path
) -> None:
    peer, reason = load("eventsourcing_log", "eventsourcing")
    if peer is None:
        pytest.skip(reason)
    said = workloads.texts()[: sizes.batch_events]
    with peer.opened(tmp_path, conversations, workloads.WINDOW_TOKENS) as log:
        measure(Job(lambda: log.append(said)))
        again = log.replayed()
        assert sum(chat.version for chat in again) >= conversations + sizes.batch_events
        assert [list(chat.messages) for chat in again] == [list(chat.messages) for chat in log.chats]
