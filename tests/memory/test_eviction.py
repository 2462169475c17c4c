"""Policies that can be chosen: recorded with the conversation, fed by verbs of their own, computed by the fold."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold import InvalidInput, LimitExceeded, Memory, NotFound, ReadOnly
from refold.message import WITHHELD_KEY
from refold.views.window import POLICIES, MessagesRecalled
from tests.support.memories import assert_sound, remembering


def texts(chat: Any) -> list[Any]:
    return [message.content for message in chat.window()]


def say(chat: Any, *words: str, tokens: int = 10) -> list[Any]:
    return [chat.append("user", word, tokens=tokens) for word in words]


@pytest.mark.parametrize("eviction", POLICIES)
def test_a_policy_is_recorded_and_no_other_is_taken_afterwards(tmp_path: Path, eviction: str) -> None:
    with Memory(tmp_path / "s") as memory:
        chat = memory.conversation("chat", eviction=eviction)
        assert chat.eviction == eviction
        say(chat, "one")
        assert next(iter(chat.events())).event.policy == POLICIES[eviction]  # type: ignore[attr-defined]
    with Memory(tmp_path / "s") as memory:
        assert memory.conversation("chat").eviction == eviction
        memory.conversation("chat", eviction=eviction)
        for other in POLICIES.keys() - {eviction}:
            with pytest.raises(InvalidInput, match=f"was opened with eviction='{eviction}', not '{other}'"):
                memory.conversation("chat", eviction=other)
        fork = memory.conversation("chat").fork("fork")
        assert fork.eviction == eviction


@pytest.mark.parametrize("given", ["lifo", "", None.__class__, 1])
def test_only_released_policies_are_taken(given: Any) -> None:
    with pytest.raises(InvalidInput):
        Memory().conversation("chat", eviction=given)


@pytest.mark.parametrize("eviction", POLICIES)
def test_every_policy_survives_reopening_travelling_and_replay(tmp_path: Path, eviction: str) -> None:
    """States come from rows and tails here, and from a fold of all events: they are the same at every seq."""
    hashes = dict[int, str]()
    with Memory(tmp_path / "s") as memory:
        chat = memory.conversation("chat", window_tokens=60, eviction=eviction)
        for turn in range(330):
            message = chat.append("user", f"turn {turn % 7}", tokens=3 + turn % 5)
            if turn % 4 == 0:
                chat.rate(message, turn % 11 / 10)
            if turn % 6 == 0:
                chat.recall(f"turn {turn % 3}", top_k=2)
            if turn % 9 == 0 and eviction == "summary":
                chat.summarize(lambda previous, messages: f"{len(previous)} and {len(messages)}")
            if turn % 50 == 0:
                hashes[memory.head] = memory.state_hash()
        assert chat.token_count() <= 60
    with Memory(tmp_path / "s") as memory:
        assert memory.state_hash() == memory.replay_hash()
        assert {seq: memory.state_hash(seq) for seq in hashes} == hashes
        assert memory.verify().ok
        memory.export(tmp_path / "e.jsonl")
        with Memory() as other:
            other.load(tmp_path / "e.jsonl")
            assert other.state_hash() == memory.state_hash()


def test_what_was_recalled_stays_longer() -> None:
    chat = Memory().conversation("chat", window_tokens=30, eviction="least-recalled")
    say(chat, "apple", "pear", "plum")
    assert [hit.entry.content for hit in chat.recall("apple")] == ["apple"]
    say(chat, "fig", "date")
    assert texts(chat) == ["apple", "fig", "date"]
    recalls = [recorded.event.ids for recorded in chat.events() if isinstance(recorded.event, MessagesRecalled)]
    assert recalls == [(chat.window()[0].id,)]


def test_a_recall_is_recorded_whatever_it_finds_and_answered_once() -> None:
    memory = Memory()
    chat = memory.conversation("chat")
    say(chat, "apple", "pear")
    first = chat.recall("apple", request_id="one")
    head = memory.head
    assert [hit.entry.id for hit in chat.recall("apple", request_id="one")] == [hit.entry.id for hit in first]
    assert memory.head == head
    assert list(chat.recall("nothing of this")) == []
    assert memory.head == head + 1
    with pytest.raises(ReadOnly):
        chat.at(2).recall("apple")


def test_what_was_rated_stays_longer_and_the_newest_leaves_last() -> None:
    chat = Memory().conversation("chat", window_tokens=30, eviction="least-important")
    apple, pear, plum = say(chat, "apple", "pear", "plum")
    assert chat.rate(pear, 1.0)
    assert not chat.rate(pear.id, 1.0)
    assert chat.rate(plum.seq, 1.0)
    say(chat, "fig", "date")
    assert texts(chat) == ["pear", "plum", "date"]
    with pytest.raises(NotFound, match="not in the window"):
        chat.rate(apple, 0.5)
    wrong: list[Any] = [-0.1, 1.1, "high", True]
    for importance in wrong:
        with pytest.raises(InvalidInput):
            chat.rate(plum, importance)


@pytest.mark.parametrize("eviction", [each for each in POLICIES if each != "least-important"])
def test_a_rating_that_the_policy_does_not_use_is_kept_once(tmp_path: Path, eviction: str) -> None:
    with remembering(tmp_path / "store") as memory:
        chat = memory.conversation("chat", eviction=eviction)
        apple, pear = say(chat, "apple", "pear")
        assert not chat.rate(apple, 0)
        assert chat.rate(apple, 0.5)
        assert chat.rate(pear, 0.7)
        assert chat.rate(pear, 0.0)
        head = memory.head
        for again in (chat, memory.fork("fork").conversation("chat")):
            assert not again.rate(apple, 0.5)
            assert not again.rate(pear, 0)
        assert memory.head == head + 1  # The fork.
        assert any("ratings" in str(change) for change in memory.diff(3, head))
    with Memory(tmp_path / "store") as memory:
        assert not memory.conversation("chat").rate(apple.id, 0.5)
        chat = memory.conversation("chat")
        assert chat.rate(apple.id, 0.6)
        chat.clear_window()
        say(chat, *"abc")
        assert_sound(memory)


def test_half_of_the_budget_is_left_to_what_is_recalled() -> None:
    chat = Memory().conversation("chat", window_tokens=45, eviction="fifo-recall")
    say(chat, "apple", "pear", "plum")
    assert (texts(chat), chat.window_tokens) == (["pear", "plum"], 45)


def test_what_is_unpinned_leaves_at_once_where_it_exceeds_its_part_of_the_budget() -> None:
    memory = Memory()
    chat = memory.conversation("chat", window_tokens=45, eviction="fifo-recall")
    kept = chat.append("user", "kept", tokens=30, pinned=True)
    assert texts(chat) == ["kept"]
    assert chat.unpin(kept)
    assert texts(chat) == []
    assert memory.state_hash() == memory.replay_hash()


class TestSummaries:
    def test_a_text_takes_the_place_of_what_has_left(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat", window_tokens=30, eviction="summary")
        chat.append("system", "Be brief.", tokens=5)
        say(chat, "apple", "pear", "plum")
        seen: list[tuple[str, list[Any]]] = []

        def shorten(previous: str, messages: list[Any]) -> str:
            seen.append((previous, [message.content for message in messages]))
            return f"s{len(seen)}"

        assert chat.summarize(shorten).content == "s1"  # type: ignore[union-attr]
        assert texts(chat) == ["Be brief.", "s1", "pear", "plum"]
        assert chat.summarize(shorten) is None
        say(chat, "fig", "date")
        assert chat.summarize(shorten) is not None
        assert texts(chat) == ["Be brief.", "s2", "fig", "date"]
        assert seen == [("", ["apple"]), ("s1", ["pear", "plum"])]
        assert memory.state_hash() == memory.replay_hash()

    def test_a_message_that_does_not_fit_is_in_the_next_summary(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat", window_tokens=30, eviction="summary")
        say(chat, "apple", "pear")
        chat.append("user", "a very large melon", tokens=40)
        seen: list[list[Any]] = []

        def shorten(_: str, messages: list[Any]) -> str:
            seen.append([message.content for message in messages])
            return "so far"

        assert chat.summarize(shorten) is not None
        say(chat, "plum", "fig", "date", "lime")
        chat.append("user", "another large melon", tokens=40)
        assert chat.summarize(shorten) is not None
        assert seen == [["apple", "pear", "a very large melon"], ["plum", "fig", "date", "lime", "another large melon"]]
        assert memory.state_hash() == memory.replay_hash()

    def test_what_was_taken_out_behind_an_earlier_message_is_in_a_later_summary(self) -> None:
        chat = Memory().conversation("chat", window_tokens=30, eviction="summary")
        say(chat, "apple", "pear")
        chat.pop()
        seen: list[list[Any]] = []

        def shorten(_: str, messages: list[Any]) -> str:
            seen.append([message.content for message in messages])
            return "so far"

        assert chat.summarize(shorten) is None
        say(chat, "plum", "fig", "date")
        assert chat.summarize(shorten) is not None
        assert seen == [["apple", "pear"]]

    def test_a_function_is_called_once_for_a_request(self) -> None:
        chat = Memory().conversation("chat", window_tokens=20, eviction="summary")
        say(chat, "apple", "pear", "plum")
        first = chat.summarize(lambda *_: "once", request_id="one")
        again = chat.summarize(lambda *_: pytest.fail("called again"), request_id="one")
        assert first == again

    def test_an_erased_summary_keeps_its_place_and_its_tokens(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat", window_tokens=20, eviction="summary")
        say(chat, "apple", "pear", "plum")
        summary = chat.summarize(lambda *_: "an apple")
        before = chat.token_count()
        memory.erase([summary])
        assert (texts(chat), chat.token_count()) == ([None, "plum"], before)

    def test_what_goes_wrong_appends_nothing(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat", window_tokens=20, eviction="summary")
        say(chat, "apple", "pear", "plum")
        head = memory.head
        with pytest.raises(ZeroDivisionError):
            chat.summarize(lambda *_: str(1 // 0))
        with pytest.raises(InvalidInput):
            chat.summarize("text")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            chat.summarize(lambda *_: 5)  # type: ignore[arg-type]
        with pytest.raises(LimitExceeded, match="let it be shorter"):
            chat.summarize(lambda *_: "word " * 100)
        with pytest.raises(ReadOnly):
            chat.at(1).summarize(lambda *_: "text")
        with memory.batch(), pytest.raises(InvalidInput, match="batch"):
            chat.summarize(lambda *_: "text")
        with pytest.raises(InvalidInput, match="summaries are of conversations with eviction='summary'"):
            memory.conversation("other").summarize(lambda *_: "text")
        assert memory.head == head

    def test_what_was_cleared_is_not_told_of(self) -> None:
        chat = Memory().conversation("chat", window_tokens=20, eviction="summary")
        say(chat, "apple", "pear", "plum")
        chat.clear_window()
        assert chat.summarize(lambda *_: "text") is None

    def test_what_is_not_to_be_remembered_is_not_told_of_and_neither_is_its_answer(self) -> None:
        chat = Memory().conversation("chat", window_tokens=30, eviction="summary")
        given = list[Any]()

        def shorten(_: str, messages: list[Any]) -> str:
            given.extend(message.content for message in messages)
            return "s"

        say(chat, "apple")
        chat.append("user", "the party is at seven", tokens=10, metadata={WITHHELD_KEY: True})
        say(chat, "pear", "plum", "fig")
        assert chat.summarize(shorten) is not None
        chat.append("user", "the cake is in the cellar", tokens=30, metadata={WITHHELD_KEY: True})
        chat.append("user", "lemon", tokens=30)
        assert chat.summarize(shorten) is not None
        chat.append("user", "the gift is a kite", tokens=30, metadata={WITHHELD_KEY: True})
        chat.append("assistant", "A kite, lovely!", tokens=30)
        chat.append("user", "lime", tokens=30)
        assert chat.summarize(shorten) is not None
        assert given == ["apple", "pear", "plum", "fig", "lemon", "lime"]

    def test_an_answer_is_not_told_of_if_the_summary_before_left_out_what_it_answers(self) -> None:
        chat = Memory().conversation("chat", window_tokens=30, eviction="summary")
        say(chat, "apple")
        chat.append("user", "the gift is a kite", tokens=10, metadata={WITHHELD_KEY: True})
        chat.append("assistant", "A kite, lovely!", tokens=20)
        assert chat.summarize(lambda *_: "an apple") is not None
        say(chat, "pear", tokens=15)
        assert chat.summarize(lambda *_: pytest.fail("nothing to tell of")) is None
        say(chat, "plum", tokens=15)
        summary = chat.summarize(
            lambda previous, messages: previous + ", ".join(str(each.content) for each in messages)
        )
        assert summary is not None
        assert "kite" not in str(summary.content)

    def test_what_was_retracted_is_not_told_of(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat", window_tokens=20, eviction="summary")
        code, *_ = say(chat, "My code is 4411.", "plum")
        entry = memory.project("p").add("My code is 4411.", sources=[code])
        memory.project("p").delete(entry.id)
        say(chat, "pear", "fig")
        assert chat.summarize(lambda _, messages: ", ".join(str(each.content) for each in messages)).content == "plum"  # type: ignore[union-attr]

    def test_another_writer_may_be_first(self) -> None:
        chat = Memory().conversation("chat", window_tokens=20, eviction="summary")
        say(chat, "apple", "pear", "plum")

        def slow(*_: Any) -> str:
            chat.summarize(lambda *_: "first")
            return "second"

        assert chat.summarize(slow) is None
        assert texts(chat) == ["first", "plum"]


PHRASE = "the safe opens with Zanzibarquark"


def joined(previous: str, messages: list[Any]) -> str:
    return " ".join([previous, *(str(message.content) for message in messages)])


def summarized(memory: Memory) -> tuple[Any, Any]:
    """A conversation whose summary holds a secret, and the message that said it."""
    chat: Any = memory.conversation("chat", window_tokens=30, eviction="summary")
    (secret,) = say(chat, PHRASE)
    say(chat, "one", "two", "three")
    assert PHRASE in chat.summarize(joined).content
    return chat, secret


def _restored(memory: Memory, chat: Any) -> Any:
    other = memory.conversation("other", window_tokens=30, eviction="summary")
    say(other, "something else")
    other.restore(chat.snapshot())
    return other


WHERE: dict[str, Callable[[Memory, Any], Any]] = {
    "here": lambda _, chat: chat,
    "forked": lambda _, chat: chat.fork("other"),
    "forked before the summary": lambda memory, chat: chat.fork("other", at=memory.head - 1),
    "restored": _restored,
    "of a branch": lambda memory, _: memory.fork("branch").conversation("chat"),
}


@pytest.mark.parametrize("derived", ["erase", "keep"])
@pytest.mark.parametrize("where", WHERE)
def test_what_was_made_of_an_erased_message_goes_from_each_summary(tmp_path: Path, where: str, derived: str) -> None:
    """The first summary, the one that builds on it, and the memory that was made of it."""
    with remembering(tmp_path / "s") as memory:
        chat, secret = summarized(memory)
        other = WHERE[where](memory, chat)
        say(other, "four", "five")
        summary = other.summarize(joined)
        assert PHRASE in summary.content
        memory.project("p").add(f"It was said that {PHRASE}", sources=[summary])
        receipt = memory.erase([secret], derived=derived)
        shown = [each.content for each in (*chat.window(), *other.window()) if each.role == "system"]
        facts = memory.project("p").list()
        if derived == "keep":
            assert (receipt.derived, len(facts), receipt.occurrences > 0) == ((), 1, True)
            assert all(PHRASE in text for text in shown)
            receipt = memory.erase([secret])
            shown = [each.content for each in (*chat.window(), *other.window()) if each.role == "system"]
            facts = memory.project("p").list()
        assert (shown, facts, receipt.occurrences) == ([None, None], [], 0)
        assert len(receipt.derived) == 3
        assert summary.seq in receipt.derived


def test_a_summary_stays_that_no_erased_message_is_part_of() -> None:
    memory = Memory()
    chat: Any = memory.conversation("chat", window_tokens=60, eviction="summary")
    prompt = chat.append("system", "Be brief.", tokens=5)
    pinned = chat.append("user", "a pin", tokens=5, pinned=True)
    said = say(chat, "one", "two", "three", "four", "five", "six")
    first = chat.summarize(joined)
    assert first.content == " one"
    chat.scratchpad.note("a note")
    noted = memory.head
    chat.clear_window()
    later = say(chat, "seven", "eight", "nine", *(str(number) for number in range(10, 15)))
    second = chat.summarize(joined)
    assert "seven" in second.content
    assert memory.erase([prompt, pinned, *said[1:], noted, later[-1]]).derived == ()
    assert [memory.event(each.seq).stamp.erased for each in (first, second)] == [False, False]
    assert memory.erase([said[0]]).derived == (first.seq,)
    assert memory.erase([later[0]]).derived == (second.seq,)


def test_the_summaries_from_the_one_of_a_message_on_go_with_it() -> None:
    memory = Memory()
    chat: Any = memory.conversation("chat", window_tokens=30, eviction="summary")
    summaries, parts = [], list[list[Any]]()

    def noting(_: str, messages: list[Any]) -> str:
        parts.append(messages)
        return "so far"

    for turn in range(4):
        say(chat, *(f"{turn} {number}" for number in range(4)))
        summaries.append(chat.summarize(noting).seq)
    assert memory.erase([chat.window()[-1]]).derived == ()
    assert memory.erase([parts[3][0]]).derived == tuple(summaries[3:])
    assert memory.erase([parts[1][-1]]).derived == tuple(summaries[1:3])
    assert memory.erase([parts[0][0]]).derived == tuple(summaries[:1])


def test_a_summary_goes_with_the_content_that_replaced_a_message() -> None:
    memory = Memory()
    chat: Any = memory.conversation("chat", window_tokens=30, eviction="summary")
    (message,) = say(chat, "harmless")
    chat.replace(message, PHRASE, tokens=10)
    replacement = memory.head
    say(chat, "one", "two", "three")
    summary = chat.summarize(joined)
    assert PHRASE in summary.content
    receipt = memory.erase([replacement])
    assert (receipt.derived, receipt.occurrences) == ((summary.seq,), 0)


def test_a_summary_names_the_one_that_it_builds_on() -> None:
    memory = Memory()
    chat, _ = summarized(memory)
    first = next(each for each in chat.window() if each.role == "system")
    fact = memory.project("p").add("a fact")
    say(chat, "four", "five")
    second = chat.summarize(joined, sources=[fact])
    assert memory.event(second.seq).event.sources == (fact.seq, first.seq)
    assert [step.seq for step in memory.why(second).steps if step.relation == "source"][:2] == [fact.seq, first.seq]
    chat.remove(second)
    say(chat, "six", "seven")
    assert memory.event(chat.summarize(joined).seq).event.sources == ()


def test_no_summary_is_recorded_of_what_came_back_meanwhile() -> None:
    chat = Memory().conversation("chat", window_tokens=20, eviction="summary")
    say(chat, "apple", "pear")
    before = chat.snapshot()
    say(chat, "plum")

    def slow(_: str, messages: list[Any]) -> str:
        assert [message.content for message in messages] == ["apple"]
        chat.restore(before)
        return "apple"

    assert chat.summarize(slow) is None
    assert texts(chat) == ["apple", "pear"]


def test_tasks_recall_rate_and_summarize() -> None:
    async def talk(memory: Any) -> tuple[Any, ...]:
        chat: Any = memory.conversation("chat", window_tokens=20, eviction="summary")
        for word in ("apple", "pear", "plum"):
            message = await chat.append("user", word, tokens=10)
        hits = await chat.recall("apple")
        return len(hits), await chat.rate(message, 0.5), (await chat.summarize(lambda *_: "s")).content, chat.eviction

    assert asyncio.run(talk(Memory().aio)) == (1, True, "s", "summary")
