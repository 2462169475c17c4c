"""Scenarios: the same fold of the same log under other policies; what is other, and what was needed that had left."""

import asyncio
import datetime as dates
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from refold import InvalidInput, Memory, ReadOnly
from refold.views.window import POLICIES
from tests.support.worlds import Known

DAY_NS = 86_400 * 10**9


def say(chat: Any, *words: str, tokens: int = 10) -> list[Any]:
    return [chat.append("user", word, tokens=tokens) for word in words]


def texts(chat: Any) -> list[Any]:
    return [message.content for message in chat.window()]


def world() -> Memory:
    memory = Memory()
    Known(memory)
    return memory


class TestTheLogItself:
    """A scenario that changes nothing, or says what the log says, is the log."""

    def test_its_hash_is_that_of_the_log_at_every_seq(self) -> None:
        memory = world()
        for seq in range(memory.head + 1):
            scenario = memory.what_if(until=seq)
            assert scenario.state_hash() == scenario.memory.state_hash() == memory.state_hash(seq)
            assert not scenario.diff()

    @pytest.mark.parametrize("eviction", POLICIES)
    def test_it_is_so_for_every_policy(self, eviction: str) -> None:
        """What was written under a policy is what a scenario of it makes of the same log under another one."""

        def fill(policy: str | None) -> Memory:
            memory = Memory(clock_ns=lambda: DAY_NS, random_bytes=Random(7).randbytes)
            chat = memory.conversation("chat", window_tokens=40, eviction=policy)
            for turn in range(30):
                message = chat.append("user", f"turn {turn}", tokens=2 + turn % 7)
                if turn % 3 == 0:
                    chat.rate(message, (turn % 9 + 1) / 10)
                if turn % 5 == 0:
                    chat.recall(f"turn {turn // 2}", top_k=1)
            chat.fork("fork").append("user", "in the fork", tokens=5)
            return memory

        assert fill("fifo").what_if(eviction=eviction).state_hash() == fill(eviction).state_hash()

    def test_a_fork_of_a_memory_has_scenarios_of_its_own(self) -> None:
        memory = world()
        fork = memory.fork("fork")
        assert fork.what_if().state_hash() == fork.state_hash() != memory.state_hash()
        assert fork.what_if().memory.state_hash() == fork.state_hash()

    def test_after_a_restore_too(self) -> None:
        memory = world()
        memory.restore("whole")
        memory.conversation("c").restore("part")
        assert memory.what_if().state_hash() == memory.state_hash()


@given(
    some.lists(some.tuples(some.integers(0, 2), some.integers(1, 30)), min_size=1, max_size=40),
    some.integers(20, 80),
    some.sampled_from(sorted(POLICIES)),
)
@settings(deadline=None, max_examples=40)
def test_what_would_be_is_what_a_memory_of_that_policy_has(
    said: list[tuple[int, int]], budget: int, eviction: str
) -> None:
    own, other = Memory(), Memory()
    for number, tokens in said:
        own.conversation(f"c{number}", window_tokens=50).append("user", f"{tokens}", tokens=tokens)
        other.conversation(f"c{number}", window_tokens=budget, eviction=eviction).append(
            "user", f"{tokens}", tokens=tokens
        )
    scenario = own.what_if(window_tokens=budget, eviction=eviction)
    for name in own.conversations():
        then = scenario.conversation(name)
        assert texts(then) == texts(other.conversation(name))
        assert (then.eviction, then.window_tokens) == (eviction, budget)
    assert scenario.state_hash() == scenario.memory.state_hash()


class TestWindows:
    def test_another_budget(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat", window_tokens=20)
        apple, pear, plum = say(chat, "apple", "pear", "plum")
        larger, smaller = memory.what_if(window_tokens=30), memory.what_if(window_tokens=10)
        assert (texts(larger.conversation("chat")), texts(chat)) == (["apple", "pear", "plum"], ["pear", "plum"])
        (difference,) = larger.diff().windows
        assert (difference.conversation, difference.added, difference.missing) == ("chat", (apple.seq,), ())
        assert difference.since == plum.seq
        (difference,) = smaller.diff().windows
        assert (difference.added, difference.missing, difference.since) == ((), (pear.seq,), pear.seq)

    def test_a_later_budget_is_another_one_too(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat", window_tokens=100)
        say(chat, "apple", "pear", "plum")
        chat.set_window_tokens(10)
        assert len(memory.what_if(window_tokens=30).conversation("chat").window()) == 3

    @pytest.mark.parametrize("eviction", ["fifo", "least-recalled", "least-important", "fifo-recall"])
    @pytest.mark.parametrize("budget", [30, 45, 60, 500])
    def test_a_budget_below_the_system_prompt(self, budget: int, eviction: str) -> None:
        """A prompt that does not fit is not pinned, in a scenario as in a conversation."""

        def fill(tokens: int) -> Memory:
            memory = Memory(clock_ns=lambda: DAY_NS, random_bytes=Random(7).randbytes)
            chat = memory.conversation("chat", window_tokens=tokens, eviction=eviction)
            for words in (40, 15):
                chat.append("system", "You are a clerk.", tokens=words)
            say(chat, "one", "two", "three")
            chat.fork("fork").append("user", "in the fork", tokens=10)
            return memory

        scenario, real = fill(500).what_if(window_tokens=budget), fill(budget)
        for name in ("chat", "fork"):
            there, wanted = scenario.conversation(name), real.conversation(name)
            assert [(each.seq, each.pinned) for each in there.window()] == [
                (each.seq, each.pinned) for each in wanted.window()
            ]
            assert there.token_count() == wanted.token_count() <= budget
        assert scenario.state_hash() == scenario.memory.state_hash()
        assert scenario.state_hash() == real.state_hash()

    def test_a_group_whose_pin_does_not_fit(self) -> None:
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        memory = Memory()
        chat = memory.conversation("chat", window_tokens=500)
        chat.append("assistant", None, tool_calls=[call], pinned=True, tokens=20)
        say(chat, "one")
        chat.append("tool", "found", tool_call_id="c1", tokens=30)
        say(chat, "two")
        assert texts(memory.what_if(window_tokens=40).conversation("chat")) == ["one", "two"]
        assert texts(memory.what_if(window_tokens=60).conversation("chat")) == [None, "found", "two"]

    def test_an_event_left_out(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat")
        apple, pear = say(chat, "apple", "pear")
        chat.clear_window()
        assert texts(memory.what_if(without=[memory.head]).conversation("chat")) == ["apple", "pear"]
        assert texts(memory.what_if(without=[memory.head, apple]).conversation("chat")) == ["pear"]
        for wrong in ([1], "1", [0], [99], 3):
            with pytest.raises(InvalidInput):
                memory.what_if(without=wrong)  # type: ignore[arg-type]
        assert pear.seq == 3


class TestMemories:
    def test_windows_of_as_many_tokens_differ_since_an_event_of_their_own(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat", window_tokens=30)
        _, _, _, fourth, *_ = say(chat, *[f"message {number}" for number in range(6)], tokens=8)
        say(memory.conversation("other"), "x", "y", "z")
        (difference,) = memory.what_if(without=[fourth.seq]).diff().windows
        assert difference.since == fourth.seq

    def test_a_merge_that_did_not_happen(self) -> None:
        memory = Memory()
        project = memory.project("p")
        first = project.add("The api listens on port 83.")
        merge = project.upsert("The api listens on port 83 and more.", threshold=0.5)
        assert merge.outcome == "merged"
        scenario = memory.what_if(dedupe=0.999)
        then = scenario.project("p")
        assert sorted(entry.content for entry in then.list()) == [
            "The api listens on port 83 and more.",
            "The api listens on port 83.",
        ]
        assert {hit.entry.content for hit in then.search("port 83")} == {entry.content for entry in then.list()}
        assert scenario.diff().memories
        project.unmerge(merge)
        assert memory.what_if(dedupe=0.999).project("p").count() == project.count() == 2
        assert first.id in {entry.id for entry in then.list()}

    def test_a_threshold_under_that_of_all_merges_is_refused(self) -> None:
        memory = Memory()
        project = memory.project("p")
        project.add("The api listens on port 83.")
        with pytest.raises(InvalidInput, match=r"dedupe is 0\.5, .* each of the 0 merges"):
            memory.what_if(dedupe=0.5)
        assert not memory.what_if(dedupe=0.95).diff(), "a higher one would have merged nothing either"
        merge = project.upsert("The api listens on port 83 and more.", threshold=0.5)
        assert merge.cosine is not None
        with pytest.raises(InvalidInput, match="take merges apart"):
            memory.what_if(dedupe=min(merge.cosine, 0.85) - 0.01)
        assert memory.what_if(dedupe=merge.cosine).project("p").count() == 2

    def test_a_recall_by_a_vector_that_was_given_is_not_asked_anew(self) -> None:
        memory = Memory()
        project = memory.project("p")
        project.add("red", vector=[1.0, 0.0])
        project.recall("red", vector=[1.0, 0.0])
        assert memory.what_if(ranking="seed").diff().recalls == ()

    def test_another_ranking_is_that_of_searches_and_recalls(self) -> None:
        memory = Memory()
        project = memory.project("p")
        for number in range(12):
            project.add(f"the {number} port of the api is open {'again ' * number}", importance=number / 12)
        hits = project.recall("which port is open again", top_k=3)
        scenario = memory.what_if(ranking="seed")
        then = scenario.project("p").search("which port is open again", top_k=3)
        expected = project.search("which port is open again", top_k=3, ranking="seed")
        assert then.ranking == "seed" != hits.ranking
        assert [hit.entry.id for hit in then] == [hit.entry.id for hit in expected]
        (difference,) = scenario.diff().recalls
        assert difference.before == tuple(hit.entry.id for hit in hits)
        assert difference.after != difference.before
        assert scenario.state_hash() == memory.state_hash()


def openai_call(arguments: str) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def anthropic_call(arguments: dict[str, Any]) -> dict[str, Any]:
    use = {"type": "tool_use", "id": "c", "name": "weather", "input": arguments}
    return {"role": "assistant", "content": [use]}


class TestRegret:
    def test_a_recall_a_memory_and_a_call_need_what_has_left(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat", window_tokens=30)
        call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
        made = chat.append("assistant", None, tool_calls=[call], tokens=5)
        chat.append("tool", "4 degrees", tool_call_id="c1", tokens=5)
        apple = chat.append("user", "apple", tokens=10)
        memory.project("p").add("An apple was named.", source=apple)
        say(chat, "pear", "plum", "fig")
        chat.recall("apple")
        first = memory.head
        again = chat.append("assistant", None, tool_calls=[{**call, "id": "c2"}], tokens=5)
        memory.project("p").recall("which apple was named", conversation=chat)
        reasons = [(each.seq, each.needed_seq, each.reason) for each in memory.what_if().regret()]
        assert reasons == [
            (apple.seq, first, "recalled"),
            (made.seq, again.seq, "called again"),
            (apple.seq, memory.head, "a memory of it was recalled"),
        ]
        assert memory.what_if(window_tokens=100).regret() == ()

    @pytest.mark.parametrize(
        "calls",
        [
            [openai_call('{"city": "Oslo", "day": 1}'), openai_call('{"day":1,"city":"Oslo"}')],
            [anthropic_call({"city": "Oslo", "day": 1}), anthropic_call({"day": 1, "city": "Oslo"})],
            [openai_call('{"city": "Oslo", "day": 1}'), anthropic_call({"city": "Oslo", "day": 1})],
        ],
        ids=["openai", "anthropic", "both"],
    )
    def test_a_call_is_the_same_in_every_form(self, calls: list[dict[str, Any]]) -> None:
        memory = Memory()
        chat = memory.conversation("chat", window_tokens=60)
        seqs: list[int] = []
        for call in (*calls, anthropic_call({"city": "Bergen"})):
            seqs.append(chat.append(**call, tokens=10).seq)
            chat.append("tool", "cold", tool_call_id="c", tokens=10)
            say(chat, "apple", "pear", "plum", "fig", "date")
        regrets = [(each.seq, each.needed_seq, each.reason) for each in memory.what_if().regret()]
        assert regrets == [(seqs[0], seqs[1], "called again")]

    def test_what_was_removed_or_cleared_on_purpose_is_no_regret(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat", window_tokens=30)
        apple, pear, plum = say(chat, "apple", "pear", "plum")
        chat.remove(apple)
        fork = chat.fork("fork")
        held = chat.snapshot("held")
        say(chat, "fig", "date")  # The pear is evicted.
        chat.recall("apple pear", top_k=2)
        assert [each.seq for each in memory.what_if().regret()] == [pear.seq]
        assert memory.what_if(window_tokens=100).regret() == ()
        fork.recall("apple", top_k=1)
        chat.clear_window()
        chat.recall("plum", top_k=1)
        assert [each.seq for each in memory.what_if().regret()] == [pear.seq]
        chat.restore(held)
        say(chat, "kiwi", "lime", "lemon")
        chat.recall("plum", top_k=1)
        assert [each.seq for each in memory.what_if().regret()] == [pear.seq, plum.seq]
        made = [memory.what_if(window_tokens=25), memory.what_if(eviction="least-recalled")]
        for scenario, alone in zip(memory.sweep(made), made, strict=True):
            assert scenario.regret() == alone.regret()

    def test_a_sweep_in_several_passes_is_that_in_one(self, tmp_path: Path) -> None:
        """The RAM bound is so low that each pass takes but some of the conversations."""

        def fill(memory: Memory) -> None:
            chats = [memory.conversation(f"c{number}", window_tokens=40) for number in range(7)]
            for turn in range(210):
                chat = chats[turn * turn % 7]
                message = chat.append("user", f"turn {turn} " + "word " * 2_000, tokens=5 + turn % 9)
                if turn % 11 == 0:
                    memory.project("p").add(f"fact {turn}", source=message, vector=[1.0, turn / 10])
                if turn % 7 == 0:
                    chat.recall(f"turn {max(turn - 60, 0)}", top_k=3)
                if turn % 30 == 29:
                    memory.project("p").recall("fact", vector=[1.0, 0.0], top_k=2, conversation=chat)
                if turn % 50 == 49:
                    chats.append(chat.fork(f"fork-{turn}"))
                    chats[-1].append("user", "on another way", tokens=30)
                    chats[turn % 5].restore(chats[(turn + 1) % 5].at(turn // 2).snapshot())

        policies: list[dict[str, Any]] = [{"window_tokens": tokens} for tokens in (15, 40, 90)]
        policies += [
            {"eviction": "least-recalled"},
            {"eviction": "summary", "window_tokens": 60},
            {"without": (20,)},
            {},
        ]
        with Memory(tmp_path / "s") as memory:
            fill(memory)
            once = memory.sweep([memory.what_if(**each) for each in policies])
            expected = [(each.diff(), each.regret(), each.state_hash()) for each in once]
            expected_hash = memory.state_hash()
        with Memory(tmp_path / "s", memory_bytes=2**20) as memory:
            assert memory.stats().store_bytes > 2**20, "the sweep takes several passes"
            swept = memory.sweep([memory.what_if(**each) for each in policies])
            found = [(each.diff(), each.regret(), each.state_hash()) for each in swept]
        assert found == expected
        assert found[-1][-1] == expected_hash
        assert any(regret for _, regret, _ in found)
        assert found[0][0]
        assert found[2][0]

    def test_a_sweep_is_what_each_scenario_says_alone(self) -> None:
        memory = Memory()
        for turn in range(60):
            chat = memory.conversation(f"c{turn % 3}", window_tokens=50)
            chat.append("user", f"turn {turn}", tokens=5 + turn % 9)
            if turn % 7 == 0:
                chat.recall(f"turn {turn % 5}", top_k=2)
        made: list[dict[str, Any]] = [
            {"window_tokens": budget, "eviction": eviction} for budget in (20, 80) for eviction in ("fifo", "summary")
        ]
        made += [{"without": (5,)}, {}]
        swept = memory.sweep([memory.what_if(**each) for each in made])
        for scenario, each in zip(swept, made, strict=True):
            alone = memory.what_if(**each)
            assert (scenario.diff(), scenario.regret()) == (alone.diff(), alone.regret())
            assert scenario.state_hash() == alone.state_hash() == alone.memory.state_hash()
            for difference in scenario.diff().windows:
                name, since = difference.conversation, difference.since
                for seq in (since - 1, since):
                    count, other = (each.at(seq).conversation(name).token_count() for each in (memory, alone.memory))
                    assert (count == other) == (seq < since)
        elsewhere = Memory()
        of_others = [[elsewhere.what_if(), elsewhere.what_if(window_tokens=9)], [memory.fork("fork").what_if()]]
        for scenarios in ([memory.what_if(), elsewhere.what_if()], *of_others):
            with pytest.raises(InvalidInput, match="of another memory; sweep it with the memory whose what_if made it"):
                memory.sweep(scenarios)
        assert len(memory.at(memory.head).sweep([memory.what_if()])) == 1
        with pytest.raises(InvalidInput):
            memory.sweep([1])  # type: ignore[list-item]
        assert memory.sweep([]) == []


class TestItIsReadOnly:
    def test_nothing_is_written(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "s") as memory:
            chat = memory.conversation("chat", window_tokens=20)
            say(chat, "apple", "pear", "plum")
        before = {file.name: file.read_bytes() for file in (tmp_path / "s").iterdir() if file.name == "data.mdb"}
        with Memory(tmp_path / "s", readonly=True) as memory:
            scenario = memory.what_if(window_tokens=10)
            assert texts(scenario.conversation("chat")) == ["plum"]
            scenario.diff(), scenario.regret()
            with pytest.raises(ReadOnly):
                scenario.conversation("chat").append("user", "fig")
            with pytest.raises(ReadOnly):
                scenario.memory.profile().set("theme", "dark")
        assert {
            file.name: file.read_bytes() for file in (tmp_path / "s").iterdir() if file.name == "data.mdb"
        } == before

    def test_it_stays_at_its_seq_and_forgets_what_is_erased(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat", window_tokens=20)
        apple = say(chat, "apple", "pear", "plum")[0]
        scenario = memory.what_if(window_tokens=30)
        assert texts(scenario.conversation("chat")) == ["apple", "pear", "plum"]
        say(chat, "fig")
        assert texts(scenario.conversation("chat")) == ["apple", "pear", "plum"]
        memory.erase([apple])
        assert texts(scenario.conversation("chat")) == [None, "pear", "plum"]

    def test_its_states_keep_to_the_memorys_bound(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "s") as memory:
            for number in range(300):
                say(memory.conversation(f"c{number}", window_tokens=2_000), *["word " * 400] * 4, tokens=400)
            expected = memory.state_hash()
        with Memory(tmp_path / "s", memory_bytes=2**20) as memory:
            scenario = memory.what_if()
            assert scenario.memory.state_hash() == expected
            core = scenario.memory._core
            assert core.engine.reader.streams.bytes < 2**20
            assert scenario.state_hash() == expected

    def test_wrong_values(self) -> None:
        memory = Memory()
        wrong: list[dict[str, Any]] = [
            {"window_tokens": 0},
            {"eviction": "lifo"},
            {"ranking": "none"},
            {"dedupe": 2},
            {"until": 1},
        ]
        for each in wrong:
            with pytest.raises(InvalidInput):
                memory.what_if(**each)


class TestWhenItOccurred:
    """The second clock: the state of what had happened by then, whenever it was recorded."""

    def test_imported_messages_are_seen_as_of_their_day(self) -> None:
        memory = Memory()
        days = [dates.datetime(2024, 3, day, tzinfo=dates.UTC) for day in (1, 2, 3)]
        for day in reversed(days):  # Recorded in another order than they happened.
            memory.conversation("chat").append("user", f"day {day.day}", occurred=day)
            memory.project("p").add(f"fact of day {day.day}", occurred=day)
        memory.conversation("later").append("user", "now")
        then = memory.at(occurred=days[1])
        assert texts(then.conversation("chat")) == ["day 2", "day 1"]
        assert [entry.content for entry in then.project("p").list()] == ["fact of day 2", "fact of day 1"]
        assert [hit.entry.content for hit in then.project("p").search("fact of day 3", top_k=1)] != ["fact of day 3"]
        assert then.conversations() == ["chat"]
        before = memory.at(occurred=days[0] - dates.timedelta(1))
        assert (before.conversations(), before.state_hash()) == ([], Memory().state_hash())
        everything = memory.at(occurred=dates.datetime(2200, 1, 1, tzinfo=dates.UTC))
        assert everything.state_hash() == memory.state_hash()

    def test_both_clocks_at_once(self) -> None:
        memory = Memory()
        first = memory.conversation("chat").append("user", "one", occurred=DAY_NS)
        memory.conversation("chat").append("user", "two", occurred=DAY_NS)
        assert texts(memory.at(first.seq, occurred=DAY_NS).conversation("chat")) == ["one"]
        assert texts(memory.at(occurred=DAY_NS).at(first.seq).conversation("chat")) == ["one"]
        with pytest.raises(InvalidInput):
            memory.at()
        with pytest.raises(InvalidInput):
            memory.at(occurred=dates.datetime(2024, 1, 1))  # noqa: DTZ001 - that is what is wrong

    def test_it_is_the_day_that_is_looked_at(self) -> None:
        memory = Memory()
        day = dates.datetime(2024, 3, 1, 12, tzinfo=dates.UTC)
        memory.journal().append("Chose LMDB.", occurred=day)
        memory.conversation("chat").append("user", "What did I decide?", occurred=day)
        then = memory.at(occurred=day)
        assert [note.text for note in then.journal().recent()] == ["Chose LMDB."]
        context = then.context(then.conversation("chat"))
        assert (context.recipe.day, "Chose LMDB." in context.text) == ("2024-03-01", True)


def test_tasks_have_scenarios_too() -> None:
    async def ask(memory: Any) -> Any:
        await memory.conversation("chat", window_tokens=5).append("user", "hello", tokens=4)
        scenario = await memory.what_if(window_tokens=2)
        await memory.sweep([scenario])
        return len(scenario.diff().windows), len(memory.at(occurred=0).plain.conversations())

    assert asyncio.run(ask(Memory().aio)) == (1, 0)
