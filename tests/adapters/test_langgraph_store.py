"""LangGraph's store in a memory: equal to LangGraph's own, and one with everything else of the memory."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, TypedDict

import pytest
from langgraph.config import get_store
from langgraph.graph import START, StateGraph
from langgraph.store.base import GetOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore

from refold import InvalidInput, Memory
from refold.adapters.langgraph_store import RefoldStore
from tests.support.bounds import Clock
from tests.support.memories import assert_sound, is_stored, refused

NAMESPACES = [("users",), ("users", "ann"), ("users", "ann", "notes"), ("users", "bob"), ("docs",), ("users2", "\x01a")]
KEYS = ["a", "b", "", "with.dot", "nul\0", "\x01", "\x01\x01", "\u00e9"]
VALUES: list[dict[str, Any]] = [
    {"n": 1, "tag": "x"},
    {"n": 2.5, "tag": "y", "deep": {"a": [1, {"b": None}]}},
    {"n": None},
]
VALUES += [{"text": "tea with milk", "n": 3}, {}]
FILTERS: list[dict[str, Any] | None] = [None, None, {"n": 1}, {"tag": {"$ne": "x"}}, {"deep": {"a": [1, {"b": None}]}}]
LETTERS = "aeimt"


def embed(texts: list[str]) -> list[list[float]]:
    return [[*(float(text.count(letter)) for letter in LETTERS), 1.0] for text in texts]


def index(**more: Any) -> Any:
    return {"dims": len(LETTERS) + 1, "embed": embed, **more}


@pytest.fixture
def store(memory: Memory) -> Iterator[RefoldStore]:
    store = RefoldStore(memory)
    yield store
    assert_sound(memory)


def shown(item: Any) -> Any:
    return item and (item.namespace, item.key, item.value)


@pytest.mark.parametrize("seed", range(6))
def test_random_steps_lead_where_langgraphs_own_store_leads(memory: Memory, seed: int) -> None:
    """400 steps for each seed: 2,400 in all."""
    draw = Random(seed)
    ours: Any = RefoldStore(memory)
    theirs: Any = InMemoryStore()
    for _ in range(400):
        namespace, key = draw.choice(NAMESPACES), draw.choice(KEYS)
        both = [ours, theirs]
        match draw.choice(("put", "put", "delete", "get", "search", "namespaces", "batch")):
            case "put":
                value = draw.choice(VALUES)
                for each in both:
                    each.put(namespace, key, value)
            case "delete":
                for each in both:
                    each.delete(namespace, key)
            case "get":
                mine, other = (each.get(namespace, key) for each in both)
                assert shown(mine) == shown(other)
            case "search":
                prefix = namespace[: draw.randrange(len(namespace) + 1)]
                wanted = draw.choice(FILTERS)
                first, second = (each.search(prefix, filter=wanted, limit=1_000) for each in both)
                assert sorted(map(repr, map(shown, first))) == sorted(map(repr, map(shown, second)))
                assert ours.search(prefix, filter=wanted, limit=2, offset=1) == first[1:3]
            case "namespaces":
                # Theirs keeps a namespace without items.
                theirs_left = {item.namespace for item in theirs.search((), limit=10_000)}
                options = {"prefix": namespace[:1], "suffix": draw.choice((None, ("*", "notes"), ("ann",)))}
                found, other = (each.list_namespaces(**options) for each in both)
                assert found == [each for each in other if each in theirs_left]
                depth = draw.choice((1, 2))
                assert ours.list_namespaces(max_depth=depth) == sorted({each[:depth] for each in theirs_left})
            case _:
                ops: Any = [PutOp(namespace, key, {"n": 7}), GetOp(namespace, key), PutOp(namespace, key, {"n": 8})]
                first, second = (each.batch(ops) for each in both)
                assert list(map(shown, first)) == list(map(shown, second))
    assert_sound(memory)


def test_times_are_of_the_first_and_the_last_writing(memory: Memory, clock: Clock) -> None:
    store = RefoldStore(memory)
    store.put(("n",), "a", {"v": 1})
    clock.advance(10**6)
    store.put(("n",), "a", {"v": 2})
    store.put(("n",), "b", {"v": 3})
    item = store.get(("n",), "a")
    assert item is not None
    assert item.updated_at - item.created_at == timedelta(seconds=1)
    assert [each.key for each in store.search(("n",))] == ["b", "a"], "the newest first"


@contextmanager
def both(memory: Memory, values: dict[str, Any]) -> Iterator[tuple[RefoldStore, SqliteStore]]:
    """Our store and that of SQLite, with the same items in one namespace."""
    with SqliteStore.from_conn_string(":memory:") as theirs:
        theirs.setup()
        ours = RefoldStore(memory)
        for key, value in values.items():
            ours.put(("n",), key, value)
            theirs.put(("n",), key, value)
        yield ours, theirs


@pytest.mark.parametrize("wanted", ["a.b", "a.b.c", "a.none", "n", "x.y", "a"])
def test_dots_in_a_filter_lead_into_a_value_as_in_sqlite(memory: Memory, wanted: str) -> None:
    values: dict[str, Any] = {
        "1": {"a": {"b": 1, "n": 1}},
        "2": {"a": {"b": {"c": 1}}},
        "3": {"a": 1, "n": 1},
        "4": {"a": [{"b": 1}]},
    }
    with both(memory, values) as (ours, theirs):
        found, other = (store.search(("n",), filter={wanted: 1}) for store in (ours, theirs))
        assert {each.key for each in found} == {each.key for each in other}
        assert bool(found) == (wanted in {"a.b", "a.b.c", "n", "a"})
    ours.put(("n",), "5", {"a.b": 2, "a": {"b": 1}})
    assert [each.key for each in ours.search(("n",), filter={"a.b": 2})] == ["5"], (
        "a field of the whole name comes first"
    )


def test_values_that_json_has_a_form_for_are_kept_in_it_as_in_sqlite(memory: Memory) -> None:
    moment = datetime(2026, 11, 28, 12, tzinfo=UTC)
    values: dict[str, Any] = {"1": {"at": moment, "pair": (1, 2)}, "2": {"at": moment + timedelta(days=1), "pair": []}}
    with both(memory, values) as (ours, theirs):
        assert [found.value["pair"] for found in ours.search(("n",))] == [[], [1, 2]]
        for wanted in ({"$gt": "2026-11-28T13"}, {"$lte": "2026-11-28T13"}):
            found, other = (store.search(("n",), filter={"at": wanted}) for store in (ours, theirs))
            assert [each.key for each in found] == [each.key for each in other]
            assert len(found) == 1
    with refused(memory, InvalidInput, "value"):
        ours.put(("n",), "3", {"a": object()})


def test_an_erasure_takes_what_was_embedded_of_an_item(memory: Memory) -> None:
    store = RefoldStore(memory, index=index(fields=["text"]))
    store.put(("u",), "k", {"text": "alpha beta", "number": "SECRET-4711"})
    store.put(("u",), "other", {"text": "alpha zulu"})
    memory.erase(text="SECRET-4711")
    project = memory.project("langgraph-store/u")
    assert [entry.content for entry in project.list()] == ["other 0: alpha zulu"]
    store.put(("u",), "k", {"text": "gamma delta"})
    assert [item.key for item in store.search(("u",), query="alpha beta")] == ["other", "k"]
    for key in ("k", "other"):
        store.put(("u",), key, {"text": "anew"}, index=False)
    assert project.count() == 0
    assert_sound(memory)


def test_a_memory_that_was_deleted_by_hand_is_in_no_ones_way(memory: Memory) -> None:
    store = RefoldStore(memory, index=index(fields=["text"]))
    store.put(("u",), "k", {"text": "alpha beta"})
    memory.project("langgraph-store/u").clear()
    store.put(("u",), "k", {"text": "gamma delta"})
    assert [item.value["text"] for item in store.search(("u",), query="gamma")] == ["gamma delta"]


def test_texts_are_found_by_meaning(memory: Memory) -> None:
    ours, theirs = RefoldStore(memory, index=index(fields=["text"])), InMemoryStore(index=index(fields=["text"]))
    texts = ["tea and milk", "time", "a mat", "aaaa", "mmm", "eel", "i", "it"]
    for store in (ours, theirs):
        for place, text in enumerate(texts):
            store.put(("docs", str(place % 2)), str(place), {"text": text, "n": place})
        store.put(("docs", "1"), "blind", {"text": "tea", "n": 9}, index=False)
        store.put(("docs", "0"), "0", {"text": "time and tea", "n": 0})
        store.delete(("docs", "1"), "7")
    for query in ("tea", "it is time", "mat"):
        for options in ({}, {"filter": {"n": {"$gt": 2}}}, {"limit": 3, "offset": 2}):
            found, other = (store.search(("docs",), query=query, **options) for store in (ours, theirs))
            scores, theirs_scores = ([each.score for each in hits if each.score is not None] for hits in (found, other))
            assert scores == pytest.approx(theirs_scores, abs=1e-6)
            if not options:
                assert {each.key for each in found} == {each.key for each in other}
    assert memory.project("langgraph-store/docs\x1f0").count() == 4
    assert_sound(memory)


def test_a_read_that_prolongs_changes_nothing_else(memory: Memory, clock: Clock) -> None:
    store = RefoldStore(memory)
    store.put(("n",), "a", {"v": 1}, ttl=10)
    store.put(("n",), "later", {"v": 2}, ttl=10)
    put = store.get(("n",), "a", refresh_ttl=False)
    clock.advance(5 * 60 * 10**6)
    assert put is not None
    read = [store.get(("n",), "a"), store.search(("n",))[1], store.get(("n",), "a")]
    assert [(each.created_at, each.updated_at) for each in read if each] == [(put.created_at, put.updated_at)] * 3
    head = memory.head
    store.get(("n",), "a")
    assert memory.head == head  # Prolonged a moment ago.


def test_a_read_leaves_an_end_that_no_time_to_live_set(memory: Memory) -> None:
    store = RefoldStore(memory)
    store.put(("n",), "a", {"v": 1})
    memory.table(store.prefix).set_expires(("n", "a"), timedelta(hours=1))
    head = memory.head
    assert store.get(("n",), "a") is not None
    assert len(store.search(("n",))) == 1
    assert memory.head == head


def test_a_read_gives_back_no_end_that_was_taken_away(memory: Memory, clock: Clock) -> None:
    store = RefoldStore(memory)
    store.put(("n",), "a", {"v": 1}, ttl=10)
    assert store.get(("n",), "a") is not None  # It is remembered, end and all.
    memory.table(store.prefix).set_expires(("n", "a"), None)
    head = memory.head
    clock.advance(5 * 60 * 10**6)
    assert store.get(("n",), "a") is not None
    assert len(store.search(("n",))) == 1
    assert memory.head == head


@pytest.mark.parametrize("value", [{"v": 2}, None])
def test_a_read_that_prolongs_takes_back_nothing_that_was_put_since(
    memory: Memory, clock: Clock, monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    store, other = RefoldStore(memory), RefoldStore(memory)
    store.put(("n",), "a", {"v": 1}, ttl=10)
    clock.advance(5 * 60 * 10**6)
    refresh = store._refresh

    def late(_: RefoldStore, items: Any) -> None:
        monkeypatch.undo()
        other.batch([PutOp(("n",), "a", value, ttl=10)])
        refresh(items)

    monkeypatch.setattr(RefoldStore, "_refresh", late)
    assert store.get(("n",), "a") is not None
    found = store.get(("n",), "a", refresh_ttl=False)
    assert (found and found.value) == value


def test_a_past_moment_is_read_without_prolonging_anything(memory: Memory, clock: Clock) -> None:
    store = RefoldStore(memory)
    store.batch([PutOp(("n",), name, {"v": name}, ttl=10) for name in "ab"])
    clock.advance(5 * 60 * 10**6)
    then = RefoldStore(memory.at(memory.head))
    assert [item.key for item in then.search(("n",))] == ["b", "a"]
    found = then.get(("n",), "a")
    assert found is not None
    assert found.value == {"v": "a"}


def test_what_has_ended_is_gone_and_reading_prolongs(memory: Memory, clock: Clock) -> None:
    store = RefoldStore(memory, index=index(), ttl={"default_ttl": 10, "refresh_on_read": True})
    store.put(("n",), "read", {"v": 1})
    store.put(("n",), "left", {"v": 2})
    store.put(("n",), "kept", {"v": 3}, ttl=None)
    clock.advance(9 * 60 * 10**6)
    assert store.get(("n",), "read") is not None
    clock.advance(5 * 60 * 10**6)
    assert {item.key for item in store.search(("n",), refresh_ttl=False)} == {"read", "kept"}
    assert store.get(("n",), "left") is None
    assert store.sweep_ttl() == 1
    assert memory.project("langgraph-store/n").count() == 2
    assert store.stop_ttl_sweeper()
    store.start_ttl_sweeper(1)
    store.start_ttl_sweeper(1)
    assert store.stop_ttl_sweeper(5)


def test_tasks_and_threads_write_at_once(memory: Memory) -> None:
    store = RefoldStore(memory)

    async def put(number: int) -> None:
        await store.aput(("n", str(number % 3)), str(number), {"v": number})
        await store.aput(("n",), "shared", {"v": number})

    async def all_of_them() -> list[Any]:
        await asyncio.gather(*map(put, range(32)))
        return list(await store.abatch([SearchOp(("n",), limit=100), GetOp(("n",), "shared")]))

    found, shared = asyncio.run(all_of_them())
    assert len(found) == 33
    assert shared.value["v"] in range(32)


def test_another_handle_and_a_later_process_see_it(tmp_path: Path) -> None:
    with RefoldStore.from_path(tmp_path / "store") as store:
        store.put(("long",) * 100, "k" * 900, {"v": [b"bytes", 1]})
    with RefoldStore.from_path(tmp_path / "store") as store:
        found = store.get(("long",) * 100, "k" * 900)
        assert found is not None
        assert found.value == {"v": [b"bytes", 1]}


class _State(TypedDict):
    said: str


def _remember(state: _State) -> _State:
    store = get_store()
    before = store.get(("users", "ann"), "last")
    store.put(("users", "ann"), "last", {"said": state["said"]})
    return {"said": f"before: {before.value['said'] if before else None}"}


def test_a_graph_remembers_and_the_memory_goes_back(memory: Memory, store: RefoldStore) -> None:
    graph: Any = StateGraph(_State).add_node("remember", _remember).add_edge(START, "remember").compile(store=store)
    assert graph.invoke({"said": "one"}) == {"said": "before: None"}
    memory.snapshot("then")
    assert graph.invoke({"said": "two"}) == {"said": "before: one"}
    memory.restore("then")
    assert graph.invoke({"said": "three"}) == {"said": "before: one"}
    assert "langgraph" in {stamp.actor for _, stamp in memory.events()}


def test_a_secret_is_erased_from_items_and_vectors(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        store = RefoldStore(memory, index=index())
        store.put(("n",), "a", {"text": "the secret is plum"})
        store.put(("n",), "a", {"text": "nothing"})
        assert memory.erase(text="secret is plum").occurrences == 0
        assert store.get(("n",), "a") is not None
    for file in (tmp_path / "store").iterdir():
        assert b"secret is plum" not in file.read_bytes()


def test_a_namespace_is_erased_from_the_files(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        store = RefoldStore(memory, index=index())
        for namespace, key, text in (
            (("users", "ann"), "home", "Elm Street 1"),
            (("users", "ann", "old"), "home", "Elm Street 2"),
            (("users", "ann"), "gone", "Elm Street 3"),
            (("users",), "ann", "Oak Street 4"),
            (("users", "anne"), "home", "Oak Street 5"),
        ):
            store.put(namespace, key, {"text": text})
        store.delete(("users", "ann"), "gone")
        asyncio.run(store.aerase(("users", "ann")))
        left = [item.value["text"] for item in store.search(("users",), limit=9)]
        assert sorted(left) == ["Oak Street 4", "Oak Street 5"]
        assert len(store.search(("users",), query="Street", limit=9)) == 2
        assert [name for name in memory.projects() if "ann" in name] == ["langgraph-store/users\x1fanne"]
        assert_sound(memory)
    assert [is_stored(tmp_path / "store", text) for text in ("Elm Street", "Oak Street")] == [False, True]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda store: store.search((), limit=-1), "limit is -1; it has to be at least 0"),
        (lambda store: store.list_namespaces(offset=-2), "offset is -2; it has to be at least 0"),
        (lambda store: store.put(("n",), "a", {"v": 1}, ttl=float("nan")), "ttl is nan minutes; give a smaller"),
        (lambda store: store.put(("n",), "a", {"v": 1}, ttl=1e300), "ttl is 1e+300 minutes; give a smaller"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_bound(
    memory: Memory, store: RefoldStore, call: Any, message: str
) -> None:
    with refused(memory, InvalidInput, message):
        call(store)
    assert store.search(()) == []


def test_an_embedder_that_gives_too_few_vectors_is_said_so(memory: Memory) -> None:
    store = RefoldStore(memory, index={"dims": 2, "embed": lambda texts: [[1.0, 0.0] for _ in texts[1:]]})
    with refused(memory, InvalidInput, "the embedder gave 0 vectors for 1 texts; it has to give one for each"):
        store.put(("n",), "a", {"text": "tea"})
    assert store.get(("n",), "a") is None
