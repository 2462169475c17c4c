"""Tables: items under keys in order, values from the disk, ends, and what every key is expected to be."""

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from refold import EXISTS, NO_STREAM, InvalidInput, LimitExceeded, Memory, WrongVersion
from refold.memory import Table
from tests.support.bounds import START_NS, Clock
from tests.support.memories import assert_sound, refused
from tests.support.seams import engine_of

VALUES: list[Any] = [
    None,
    True,
    0,
    1.5,
    "text",
    b"",
    b"\x00\xff",
    [b"in a list", {"and": b"a dict"}],
    {"$bytes": "AA=="},
]
VALUES += [{"$dict": {"$bytes": 1}}, {"$bytes": b"x", "more": 1}]

parts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=3)
some_keys = st.one_of(parts, st.lists(parts, min_size=2, max_size=3).map(tuple))


def parts_of(key: str | tuple[str, ...]) -> tuple[str, ...]:
    return key if isinstance(key, tuple) else (key,)


@pytest.fixture
def table(memory: Memory) -> Table:
    return memory.table("jobs")


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_it_was_given(memory: Memory, table: Table, tmp_path: Path, value: Any) -> None:
    stamp = table.put("key", value)
    item = table.item("key")
    assert item is not None
    assert (item.value, item.seq, item.time_ns) == (value, stamp.seq, stamp.time_ns)
    assert repr(table.get("key")) == repr(value)
    memory.export(tmp_path / "export.jsonl")
    with Memory() as other:
        other.load(tmp_path / "export.jsonl")
        assert repr(other.table("jobs").get("key")) == repr(value)
        assert other.state_hash() == memory.state_hash()


def test_several_keys_are_read_at_once(memory: Memory, table: Table) -> None:
    for number in range(3):
        table.put(("a", str(number)), number)
    keys: list[Any] = [("a", "2"), "none", ("a", "0")]
    assert [(item.key, item.value) for item in table.get_many(keys)] == [(("a", "2"), 2), (("a", "0"), 0)]
    assert table.get_many([]) == []
    with memory.batch():
        table.put(("a", "2"), "new")
        assert [item.value for item in table.get_many(keys)] == ["new", 0]
    with pytest.raises(InvalidInput, match="NUL"):
        table.get_many(["a\0b"])


def test_the_seqs_of_several_keys_are_read_at_once(memory: Memory, table: Table) -> None:
    stamps = [table.put(("a", str(number)), number) for number in range(3)]
    keys: list[Any] = [("a", "2"), "none", ("a", "0"), ("a", "2")]
    assert table.seqs(keys) == [stamps[2].seq, 0, stamps[0].seq, stamps[2].seq]
    assert table.seqs([]) == []
    with memory.batch():
        table.put(("a", "2"), "new")
        assert [seq > 0 for seq in table.seqs(keys)] == [False, False, True, False]
        assert table.seqs(keys)[0] == table.scan(("a", "2"))[0].seq < 0
    table.delete(("a", "0"))
    table.put("none", 1, expires=timedelta(hours=1))
    table.put("ended", 1, expires=timedelta(microseconds=-1))
    assert [seq > 0 for seq in table.seqs([*keys, "ended"])] == [True, True, False, True, False]
    with pytest.raises(InvalidInput, match="NUL"):
        table.seqs(["a\0b"])


def test_a_batch_that_looks_seqs_up_reads_those_keys_alone(memory: Memory, table: Table) -> None:
    table.put("a", 1)
    with memory.batch():
        assert table.seqs(["a", "none"])[1] == 0
        table.put("c", 1)
        elsewhere(table, "b")

    def late() -> None:
        table.seqs(["a", "none"])
        table.put("d", 1)
        elsewhere(table, "none")

    with pytest.raises(WrongVersion):
        memory.transact(late, attempts=1)
    assert table.keys() == ["a", "b", "c", "none"]


def elsewhere(table: Table, key: str) -> None:
    """Put an item past the open batch."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(table.put, key, 2).result()


@pytest.mark.parametrize("key", [(), ("",), ("a", ""), ("a", "b\0"), ("a", 1), "", "a\0", 1, ["a"], ("a" * 4_097,)])
def test_what_is_no_key_is_refused(table: Table, key: Any) -> None:
    with pytest.raises((InvalidInput, LimitExceeded)):
        table.get(key)


def test_what_is_handed_out_is_a_copy(table: Table) -> None:
    table.put("key", {"list": [1]})
    table.get("key")["list"].append(2)
    assert table.get("key") == {"list": [1]}


@given(st.lists(some_keys, unique_by=parts_of, max_size=12), st.data())
def test_keys_are_in_the_order_of_their_parts_and_ranges_are_of_it(keys: list[Any], data: st.DataObject) -> None:
    table = Memory().table("t")
    for place, key in enumerate(keys):
        table.put(key, place)
    ordered = sorted(keys, key=parts_of)
    assert table.keys() == [item.key for item in table.scan()] == ordered
    after, before = data.draw(st.none() | some_keys), data.draw(st.none() | some_keys)
    prefix: Any = data.draw(st.just("") | st.just(()) | some_keys)

    def is_within(key: Any) -> bool:
        own = parts_of(key)
        begins = own[0].startswith(prefix) if isinstance(prefix, str) else own[: len(prefix)] == prefix
        above = after is None or own > parts_of(after)
        return begins and above and (before is None or own < parts_of(before))

    within = list(filter(is_within, ordered))
    limit = data.draw(st.none() | st.integers(0, 5))
    assert table.keys(prefix, after=after, before=before, limit=limit) == within[:limit]
    backwards = table.scan(prefix, after=after, before=before, reverse=True, limit=limit)
    assert [item.key for item in backwards] == within[::-1][:limit]
    assert [item.value for item in backwards] == [keys.index(item.key) for item in backwards]
    newest = table.scan(prefix, after=after, before=before, newest=True, limit=limit)
    assert newest == sorted(table.scan(prefix, after=after, before=before), key=lambda item: -item.seq)[:limit]
    after = before = None
    assert table.delete_prefix(prefix) == len(list(filter(is_within, ordered)))
    assert table.keys(prefix) == []


def test_an_item_gets_another_end_and_stays_what_it_is(
    memory: Memory, clock: Clock, reopen: Callable[[], Memory]
) -> None:
    table = memory.table("t")
    stamp = table.put("a", "value", expires=timedelta(hours=1))
    put = table.item("a")
    assert put is not None
    head = memory.head
    assert not table.set_expires("a", timedelta(hours=1, minutes=2), slack=timedelta(minutes=5))
    assert not table.set_expires("none", timedelta(hours=1))
    assert memory.head == head
    with pytest.raises(WrongVersion):
        table.set_expires("a", None, expected=stamp.seq + 1)
    assert table.set_expires("a", timedelta(hours=3), expected=stamp.seq)
    longer = table.item("a")
    assert longer == replace(put, expires_ns=put.expires_ns + 2 * 3_600 * 10**9)
    assert len(table.history("a")) == 1
    clock.advance(2 * 3_600 * 10**6)
    table = reopen().table("t")
    assert table.item("a") == longer
    assert table.set_expires("a", None)
    assert not table.set_expires("a", timedelta(hours=1), slack=timedelta())
    clock.advance(30 * 3_600 * 10**6)
    assert table.get("a") == "value"
    table.erase("a")
    assert table.keys() == []


@pytest.mark.parametrize("span", [timedelta.max, timedelta.min, timedelta(days=106_751), timedelta(days=-30_000)])
def test_an_end_that_no_log_holds_is_refused(memory: Memory, span: timedelta) -> None:
    table = memory.table("t")
    table.put("a", 1)
    with pytest.raises(InvalidInput, match="expires is"):
        table.put("b", 1, expires=span)
    with pytest.raises(InvalidInput, match="expires is"):
        table.set_expires("a", span)


def test_a_table_goes_on_from_another_or_from_before(memory: Memory) -> None:
    table, copy = memory.table("t"), memory.table("copy")
    for number in range(50):
        table.put(("a", str(number)), number)
    copy.put("own", 1)
    head = memory.head
    copy.restore(table)
    assert memory.head == head + 1
    assert copy.scan() == table.scan()
    copy.put(("a", "0"), "of the copy")
    assert table.get(("a", "0")) == 0
    copy.restore(memory.at(head).table("copy"))
    assert copy.keys() == ["own"]
    copy.restore(memory.at(head).table("copy"))
    copy.restore(memory.table("never used"))
    assert copy.keys() == []
    assert memory.head == head + 4
    with memory.batch():
        copy.restore(table)
        copy.delete(("a", "1"))
        assert copy.count() == 49
    fork = memory.fork("elsewhere")
    fork.table("t").put("of the fork", 1)
    table.restore(fork.table("t"))
    assert table.count() == 51
    table.erase("of the fork")
    assert fork.table("t").count() == 50
    with pytest.raises(WrongVersion):
        copy.restore(table, expected=0)


def test_only_a_table_of_this_store_is_gone_on_from(memory: Memory) -> None:
    for wrong in ("t", None, memory.profile()):
        with pytest.raises(InvalidInput, match="takes a Table"):
            memory.table("t").restore(wrong)  # type: ignore[arg-type]
    with Memory() as other, pytest.raises(InvalidInput, match="of another store"):
        memory.table("t").restore(other.table("t"))


def test_a_batch_that_read_an_item_is_run_again_where_its_end_was_moved(memory: Memory) -> None:
    table = memory.table("t")
    table.put("a", 1, expires=timedelta(hours=1))

    def late() -> None:
        table.put("seen", table.get("a"))
        with ThreadPoolExecutor(1) as pool:
            pool.submit(table.set_expires, "a", timedelta(hours=-1)).result()

    with pytest.raises(WrongVersion):
        memory.transact(late, attempts=1)
    assert table.keys() == []


def test_what_was_put_last_comes_first(memory: Memory) -> None:
    table = memory.table("t")
    for key in "abcd":
        table.put(key, key)
    before = memory.head
    table.put("b", "anew")
    assert table.keys(newest=True) == [item.key for item in table.scan(newest=True)] == ["b", "d", "c", "a"]
    assert memory.at(before).table("t").keys(newest=True) == ["d", "c", "b", "a"]
    with memory.batch():
        table.put("x", 1)
        table.put("a", "in the batch")
        assert [item.key for item in table.scan(newest=True, limit=3)] == ["a", "x", "b"]
    assert table.keys(newest=True) == ["a", "x", "b", "d", "c"]
    with pytest.raises(InvalidInput, match="give one of them"):
        table.keys(newest=True, reverse=True)


def test_a_state_holds_no_value(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        table = memory.table("large")
        with memory.batch():
            for number in range(64):
                table.put(("blob", f"{number:03}"), bytes(100_000))
        size = engine_of(memory).reader.log.files.size_bytes()
        memory.flush()
        assert engine_of(memory).reader.log.files.size_bytes() - size < 1_000_000, "a checkpoint holds none either"
    with Memory(tmp_path / "store") as memory:
        assert memory.table("large").get(("blob", "007")) == bytes(100_000)
        assert engine_of(memory).reader.streams.bytes < 1_000_000


def test_an_item_may_be_expected(table: Table) -> None:
    first = table.put("key", 1, expected=NO_STREAM)
    with pytest.raises(WrongVersion, match="item 'key' of table/jobs is at seq 1, not at 'no stream'") as raised:
        table.put("key", 2, expected=NO_STREAM)
    assert raised.value.actual == first.seq
    table.put("other", 2)
    second = table.put("key", 2, expected=first.seq)
    with pytest.raises(WrongVersion):
        table.delete("key", expected=first.seq)
    assert table.delete("key", expected=second.seq)
    with pytest.raises(WrongVersion):
        table.put("key", 3, expected=EXISTS)
    assert not table.delete("key")


@pytest.mark.parametrize("key", ["", (), ("a", ""), ("",), "a\0b", ("a", "b\0"), 7, ("a", 7), ["a"], None, b"a"])
def test_a_key_is_a_text_or_texts(table: Table, key: Any) -> None:
    for use in (table.get, table.item, table.delete, table.history, lambda key: table.put(key, 1)):
        with pytest.raises(InvalidInput):
            use(key)
    assert table.keys() == []


def test_bounds_are_refused_by_name(table: Table) -> None:
    with pytest.raises(LimitExceeded, match="KEY_BYTES_MAX"):
        table.put(("a" * 3_000, "b" * 3_000), 1)
    with pytest.raises(LimitExceeded, match="VALUE_BYTES_MAX"):
        table.put("key", bytes(17 * 1024**2))
    with pytest.raises(InvalidInput, match="not a JSON value"):
        table.put("key", {"set": {1}})
    with pytest.raises(InvalidInput, match="time zone"):
        table.put("key", 1, expires=datetime(2030, 1, 1))  # noqa: DTZ001 - as a user may
    with pytest.raises(InvalidInput, match="after 1970"):
        table.put("key", 1, expires=datetime(1960, 1, 1, tzinfo=UTC))


def test_what_has_ended_is_passed_over_as_of_each_moment(memory: Memory, table: Table, clock: Clock) -> None:
    table.put("kept", 1)
    put = table.put("ended", 2, expires=timedelta(seconds=10))
    table.put("dated", 3, expires=datetime.fromtimestamp(START_NS / 10**9, UTC) + timedelta(days=1))
    assert (table.keys(), table.count()) == (["dated", "ended", "kept"], 3)
    clock.advance(11 * 10**6)
    later = table.put("later", 4)
    assert (table.keys(), table.get("ended"), table.item("ended")) == (["dated", "kept", "later"], None, None)
    assert memory.at(put.seq).table("jobs").get("ended") == 2, "it had not ended then"
    assert memory.at(later.seq).table("jobs").get("ended") is None
    table.put("ended", 5, expected=NO_STREAM)
    assert table.get("ended") == 5, "put anew, it does not end"
    clock.advance(24 * 3_600 * 10**6)
    head = memory.head
    assert table.expire() == 1
    assert (memory.head, table.expire(), memory.head) == (head + 1, 0, head + 1)
    assert_sound(memory)


def test_a_batch_reads_its_own_items(memory: Memory, table: Table) -> None:
    table.put("a", b"old")
    with memory.batch():
        stamp = table.put("a", b"new")
        table.put("b", 1)
        assert [(item.key, item.value) for item in table.scan()] == [("a", b"new"), ("b", 1)]
        assert table.delete_prefix("") == 2
        table.put("b", 2)
        assert table.get("b") == 2
        assert stamp.seq < 0
    assert (stamp.seq, table.keys(), table.get("b")) == (2, ["b"], 2)
    assert [item.value for item in table.history("a")] == [b"old", b"new"]
    assert_sound(memory)


@pytest.mark.parametrize("erased", range(1, 7))
def test_what_was_erased_does_not_come_back(memory: Memory, erased: int) -> None:
    """Of every event of a table, that of a batch that names others of it among them."""
    table = memory.table("t")
    with memory.batch():
        table.put("a", "secret one")
        table.put("a", "secret two")
        table.put("b", "secret three")
        table.delete_prefix("")
        table.put("a", "secret four")
    table.put("a", "secret five")
    memory.erase([erased])
    assert [item.value for item in table.scan()] == ([] if erased == 6 else ["secret five"])
    assert_sound(memory)


def test_what_a_restore_brought_along_is_erased_where_it_was_put(memory: Memory) -> None:
    table = memory.table("t")
    table.put("a", 1)
    fork = memory.fork("elsewhere")
    fork.table("t").put("secret", "of the fork")
    memory.restore(fork.snapshot())
    assert table.keys() == ["a", "secret"]
    receipt = table.erase("secret")
    assert len(receipt.seqs) == 1
    assert table.keys() == fork.table("t").keys() == ["a"]
    assert receipt.occurrences == 0


def test_a_table_that_was_filled_by_a_restore_is_erased_whole(tmp_path: Path) -> None:
    """What it shows is another table's, so it shows nothing any more, and does not keep that one from being erased."""
    memory = Memory(tmp_path / "store")
    table, copy = memory.table("t"), memory.table("copy")
    table.put("a", "the secret of t")
    copy.restore(table)
    copy.put("b", "the secret of the copy")
    gone = copy.erase()
    (erased,) = gone.streams
    assert (copy.keys(), memory.table(erased.removeprefix("table/")).keys()) == ([], [])
    assert (table.get("a"), gone.occurrences) == ("the secret of t", 0)
    assert_sound(memory)
    assert table.erase().occurrences == 0
    assert_sound(memory)
    memory.close()
    for file in (tmp_path / "store").iterdir():
        assert b"the secret" not in file.read_bytes()
    with Memory(tmp_path / "store") as memory:
        assert_sound(memory)


def _delete(table: Table) -> None:
    table.delete("my secret")


def _delete_all(table: Table) -> None:
    table.delete_prefix("my")


def _end(table: Table) -> None:
    table.set_expires("my secret", timedelta(days=1))


def _restored(memory: Memory) -> Table:
    memory.table("copy").restore(memory.table("t"))
    return memory.table("copy")


def _forked(memory: Memory) -> Table:
    return memory.fork("elsewhere").table("t")


@pytest.mark.parametrize("change", [_delete, _delete_all, _end])
@pytest.mark.parametrize("other", [_restored, _forked])
def test_what_others_say_of_an_erased_item_is_erased_too(
    tmp_path: Path, other: Callable[[Memory], Table], change: Callable[[Table], None]
) -> None:
    memory = Memory(tmp_path / "store")
    table = memory.table("t")
    table.put("my secret", 1)
    table.put("yours", 2)
    copy = other(memory)
    change(copy)
    copy.put("my secret", "another one's")
    mine = copy.put("my own", 3)
    receipt = table.erase("my secret")
    assert (len(receipt.seqs), table.keys()) == (2, ["yours"])
    assert [item.value for item in copy.scan("my")] == [3, "another one's"]
    assert copy.item("my own") is not None
    assert copy.seqs(["my own"]) == [mine.seq]
    assert_sound(memory)
    copy.erase("my secret")
    memory.close()
    for file in (tmp_path / "store").iterdir():
        assert b"my secret" not in file.read_bytes()


def test_a_prefix_is_erased_from_its_whole_past(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "store")
    table = memory.table("threads")
    table.put(("ann", "1"), {"text": "the secret of ann"})
    table.put(("ann", "1"), b"the secret of ann, once more")
    table.put(("ann", "2"), 1)
    table.put(("bob", "1"), "bob")
    table.delete(("ann", "1"))
    memory.fork("branch").table("threads").put(("bob", "2"), 2)
    receipt = table.erase(("ann",))
    assert (receipt.occurrences, table.keys(), table.history(("ann", "1"))) == (0, [("bob", "1")], [])
    assert memory.fork("branch").table("threads").keys() == [("bob", "1"), ("bob", "2")]
    assert_sound(memory)
    memory.close()
    for file in (tmp_path / "store").iterdir():
        assert b"secret of ann" not in file.read_bytes()


def test_time_travel_moves_a_table(memory: Memory, table: Table) -> None:
    table.put("a", 1)
    before = memory.snapshot("before")
    table.put("a", {"now": [2]})
    table.put("b", 3)
    shown = sorted(map(str, memory.diff(before.seq, memory)))
    assert shown == ["table/jobs table.a: 1 -> {'now': [2]}", "table/jobs table.b: None -> 3"]
    memory.restore("before")
    assert [(item.key, item.value) for item in table.scan()] == [("a", 1)]
    assert memory.tables() == ["jobs"]
    assert [item.value for item in table.history("a")] == [1, {"now": [2]}]


def test_another_end_is_a_change(memory: Memory, table: Table) -> None:
    table.put("a", 1, expires=timedelta(hours=1))
    item, before = table.item("a"), memory.head
    assert item is not None
    table.set_expires("a", None)
    assert [str(change) for change in memory.diff(before, memory)] == [
        f"table/jobs expires.a: {item.expires_ns} -> None"
    ]


def test_the_history_of_what_another_branch_brought_is_known(memory: Memory) -> None:
    memory.table("t").put("a", 1)
    there = memory.fork("there")
    there.table("t").put("a", 2)
    memory.restore(there.snapshot())
    assert memory.table("t").get("a") == 2
    assert [item.value for item in memory.table("t").history("a")] == [1, 2]
    memory.table("t").put("a", 3)
    assert [item.value for item in memory.table("t").history("a")] == [1, 2, 3]


async def _use(memory: Memory) -> list[Any]:
    table = memory.aio.table("jobs")
    await table.put("a", b"1")
    await table.put(("a", "b"), 2)
    assert await table.get("a") == b"1"
    assert await table.delete("a")
    return [item.value for item in await table.scan()]


def test_an_event_loop_awaits_reads_and_writes(memory: Memory) -> None:
    import asyncio

    assert asyncio.run(_use(memory)) == [2]


def test_a_stamp_is_a_source(memory: Memory) -> None:
    table = memory.table("users")
    added = memory.add("Ann likes tea.", sources=[table.put("ann", {"likes": "tea"})])
    with memory.batch():
        stamp = table.put("bob", {"likes": "milk"})
        inside = memory.add("Bob likes milk.", sources=[stamp])
    ann, bob = table.seqs(["ann", "bob"])
    assert [each.event.sources for each in memory.project().events()] == [(ann,), (bob,)]
    memory.erase([bob])
    assert [entry.id for entry in memory.project().list()] == [added.id]
    assert inside.id != added.id


def test_an_item_is_a_source(memory: Memory) -> None:
    table = memory.table("users")
    table.put("ann", {"likes": "tea"})
    item = table.item("ann")
    table.put(("copy", "ann"), 1, sources=[item])
    with memory.batch():
        table.put("bob", {"likes": "milk"})
        table.put(("copy", "bob"), 2, sources=[table.item("bob")])
    assert table.count(("copy",)) == 2
    memory.erase([item, *table.get_many(["bob"])])
    assert table.keys() == []
    other = Memory()
    other.table("users").put("bob", 2)
    with refused(other, InvalidInput, "another memory"):
        other.table("users").put("ann", 1, sources=[item])


@pytest.mark.parametrize(
    ("prefixes", "left"),
    [
        (["a"], {"b", ("c",), ("c", "d")}),
        ([("a",), "a"], {"b", ("c",), ("c", "d")}),
        ([("c", "d"), "b"], {"a", ("a", "x"), "ab", ("c",)}),
        ([("c",), ("a",), ("a", "x")], {"ab", "b"}),
        (["ab", "", "b"], set()),
        ([], {"a", ("a", "x"), "ab", "b", ("c",), ("c", "d")}),
    ],
)
def test_items_under_several_prefixes_are_erased_at_once(prefixes: list[Any], left: set[Any]) -> None:
    memory = Memory()
    table = memory.table("t")
    for key in ("a", ("a", "x"), "ab", "b", ("c",), ("c", "d")):
        table.put(key, "value")
    head = memory.head
    table.erase(prefixes)
    assert set(table.keys()) == {key[0] if key == ("c",) else key for key in left}
    assert memory.head - head <= 1
    assert_sound(memory)


def test_a_stamp_of_a_batch_that_was_not_committed_is_no_source(memory: Memory) -> None:
    table = memory.table("users")
    with contextlib.suppress(ZeroDivisionError), memory.batch():
        stamp = table.put("ann", 1)
        raise ZeroDivisionError
    with refused(memory, InvalidInput, "not committed"):
        memory.add("Ann likes tea.", sources=[stamp])
    with memory.batch():
        table.put("ann", 2)
        with pytest.raises(InvalidInput, match="not committed"):
            memory.add("Ann likes tea.", sources=[stamp])
