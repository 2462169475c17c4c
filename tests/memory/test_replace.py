"""``chat.replace``: a message gets another content in its place, and every way to read it agrees on which."""

import asyncio
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from refold import Conversation, InvalidInput, LimitExceeded, Memory, Message, NotFound, ReadOnly, RefoldError, Snapshot
from refold.importers import transcript
from refold.views.window import POLICIES
from tests.support.bounds import lowered

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@contextmanager
def refused(chat: Conversation, error: type[RefoldError], word: str) -> Iterator[None]:
    """What happens inside raises the error, whose message holds the word, and appends nothing."""
    version = chat.version
    with pytest.raises(error, match=re.escape(word)):
        yield
    assert chat.version == version


@pytest.fixture
def chat(memory: Memory) -> Conversation:
    chat = memory.conversation("chat", window_tokens=100)
    for text in ("the fox", "the hen", "the dog"):
        chat.append("user", text, tokens=10)
    return chat


def texts(messages: Iterable[Message]) -> list[Any]:
    return [message.content for message in messages]


def found(chat: Conversation, query: str) -> list[Any]:
    return [hit.entry.content for hit in chat.search(query)]


def test_it_keeps_id_seq_place_and_pin(chat: Conversation) -> None:
    old = chat.window()[1]
    chat.pin(old)
    new = chat.replace(old, "the owl", tokens=7, name="n", metadata={"m": [1]})
    assert chat.window()[1] == new
    assert (new.id, new.seq, new.role, new.pinned, new.time_ns) == (old.id, old.seq, "user", True, old.time_ns)
    assert (new.content, new.tokens, new.name, new.metadata) == ("the owl", 7, "n", {"m": [1]})
    assert texts(chat.window()) == ["the fox", "the owl", "the dog"]
    assert chat.token_count() == 27
    assert (chat.replace(new.seq, "the elk").name, chat.window()[1].metadata) == ("n", None)
    assert texts(chat.window()) == ["the fox", "the elk", "the dog"]
    assert chat.message(old.id) == chat.message(old.seq) == chat.window()[1]
    assert chat.unpin(old.id)


def test_it_keeps_the_name_of_who_said_it_unless_another_is_given(memory: Memory) -> None:
    room = memory.conversation("room", project="acme")
    said = room.append("user", "I drink tee.", name="ann")
    again = room.replace(said, "I drink tea.", request_id="r")
    assert (again.name, room.window()[0].name, room.messages()[0]["name"]) == ("ann", "ann", "ann")
    assert room.replace(said, "I drink tea.", request_id="r") == again
    assert room.replace(said, "I drink mate.", name="eva").name == "eva"
    assert room.replace(said, "I drink mate!").name == "eva"
    room.append("user", "What do I drink?", name="bob")
    other = memory.conversation("other", project="acme")
    other.append("user", "Who drinks mate?", name="bob")
    assert "- user eva: I drink mate!" in memory.context(other).text


def test_every_reading_agrees(memory: Memory, chat: Conversation) -> None:
    before = memory.head
    fork_before = chat.fork("before")
    chat.replace(chat.window()[1], "the owl", tokens=5)
    chat.replace(chat.window()[1], "the elk", tokens=5)
    fork_after, middle = chat.fork("after"), memory.head
    for each in (chat, fork_after, chat.at(memory.head)):
        assert texts(each.window()) == texts(each.history()) == ["the fox", "the elk", "the dog"]
        assert texts(each.history(limit=1, before=each.window()[2].seq)) == ["the elk"]
        assert (found(each, "elk"), found(each, "hen"), found(each, "owl")) == (["the elk"], [], [])
        assert [message["content"] for message in each.messages()] == ["the fox", "the elk", "the dog"]
    for each in (chat.at(before), fork_before):
        assert texts(each.window()) == texts(each.history()) == ["the fox", "the hen", "the dog"]
        assert (found(each, "hen"), found(each, "owl"), found(each, "elk")) == (["the hen"], [], [])
    assert found(chat.at(before + 2), "owl") == ["the owl"]
    fork_before.replace(fork_before.window()[1], "the cat")
    assert (found(fork_before, "cat"), found(fork_before, "hen")) == (["the cat"], [])
    assert texts(fork_before.history()) == texts(fork_before.window()) == ["the fox", "the cat", "the dog"]
    assert texts(chat.at(middle).history()) == texts(chat.history())
    assert texts(transcript(memory, "chat")) == ["the fox", "the elk", "the dog"]
    assert texts(transcript(memory, "before")) == ["the fox", "the cat", "the dog"]
    assert [hit.entry.content for hit in memory.search_messages("elk")] == ["the elk"]
    assert [hit.entry.stamp.stream for hit in memory.search_messages("cat")] == ["conversation/chat"]
    assert list(memory.search_messages("owl")) == []
    assert [hit.entry.content for hit in memory.at(before).search_messages("hen")] == ["the hen"]


def test_what_has_left_the_window_is_read_as_it_was_replaced(chat: Conversation) -> None:
    old, new = chat.window()[0], chat.replace(chat.window()[0], "the elk")
    chat.clear_window()
    assert chat.message(old.id) == chat.message(old.seq) == new
    assert texts(chat.history()) == ["the elk", "the hen", "the dog"]
    assert (found(chat, "elk"), found(chat, "fox")) == (["the elk"], [])
    with refused(chat, NotFound, "window()"):
        chat.replace(old, "again")
    chat.restore(chat.at(old.seq).snapshot())
    assert texts(chat.window()) == texts(chat.history())[:1] == ["the fox"]
    assert (found(chat, "elk"), found(chat, "fox")) == ([], ["the fox"])


def test_bytes_carry_the_new_content(memory: Memory, chat: Conversation) -> None:
    chat.replace(chat.window()[0], "the elk", tokens=5)
    rendered = chat.snapshot().to_bytes()
    assert b"the fox" not in rendered
    assert "the fox" not in chat.snapshot().to_json()
    other = memory.conversation("other", window_tokens=100)
    other.append("user", "something else")
    other.restore(Snapshot.from_bytes(rendered))
    assert texts(other.window()) == ["the elk", "the hen", "the dog"]


def test_a_message_of_an_imported_state_is_replaced_too(tmp_path: Path) -> None:
    donor = Memory().conversation("donor", window_tokens=100)
    for text in ("the fox", "the hen", "the dog"):
        donor.append("user", text, tokens=10)
    with Memory(tmp_path) as memory:
        chat = memory.conversation("chat", window_tokens=100)
        chat.restore(Snapshot.from_bytes(donor.snapshot().to_bytes()))
        chat.replace(chat.window()[1], "the elk", tokens=10)
        chat.append("user", "the cow", tokens=10)
        expected = ["the fox", "the elk", "the dog", "the cow"]
        assert texts(chat.window()) == texts(chat.history()) == expected
        assert (found(chat, "elk"), found(chat, "hen"), found(chat, "dog")) == (["the elk"], [], ["the dog"])
    with Memory(tmp_path) as memory:
        chat = memory.conversation("chat")
        assert texts(chat.window()) == texts(chat.history()) == expected
        assert memory.verify().ok
        memory.erase([chat.window()[1].seq])
        assert texts(chat.window()) == [None, None, None, "the cow"]


@pytest.mark.parametrize("eviction", POLICIES)
@pytest.mark.parametrize("checkpoint", [1, 3, 256])
def test_it_is_read_again_from_disk(tmp_path: Path, eviction: str, checkpoint: int) -> None:
    with lowered(CHECKPOINT_EVENTS=checkpoint):
        with Memory(tmp_path) as memory:
            chat = memory.conversation("chat", window_tokens=60, eviction=eviction)
            for step in range(60):
                chat.append("user", f"{step}", tokens=step % 7 * 4, pinned=step == 4)
                if step % 4 == 1 and chat.window():
                    chat.rate(chat.window()[-1], 0.5)
                if step % 3 == 2 and chat.window():
                    place = step % len(chat.window())
                    chat.replace(chat.window()[place], f"other {step}", tokens=step % 5 * 4)
                if step % 11 == 3:
                    calls = chat.append("assistant", None, tool_calls=[CALL], tokens=3)
                    chat.append("tool", "found", tool_call_id="c1", tokens=2)
                    if step % 2:
                        chat.replace(calls, "no call")
            kept, held, hashed = chat.window(), texts(chat.history()), memory.state_hash()
        with Memory(tmp_path) as memory:
            chat = memory.conversation("chat")
            assert chat.window() == kept
            assert texts(chat.history()) == held
            assert memory.state_hash() == memory.replay_hash() == hashed
            assert memory.verify().ok


def test_it_evicts_at_its_seq_if_it_grew(memory: Memory, chat: Conversation) -> None:
    chat.replace(chat.window()[2], "the dog, again", tokens=85)
    assert texts(chat.window()) == ["the hen", "the dog, again"]
    assert chat.token_count() == 95
    (step,) = chat.replay(after=memory.head - 1)
    assert texts(step.evicted) == ["the fox"]
    gone = memory.why("the fox")
    assert "85 tokens" in str(gone)
    grown = chat.replace(chat.window()[1], "longer than all", tokens=101)
    assert grown.content == "longer than all"
    assert chat.window() == []
    assert chat.history()[-1] == grown


def test_pinned_messages_must_fit(memory: Memory, chat: Conversation) -> None:
    first = chat.window()[0]
    chat.pin(first)
    head = memory.head
    with refused(chat, LimitExceeded, "set_window_tokens"):
        chat.replace(first, "too long", tokens=101)
    assert memory.head == head
    chat.replace(first, "long", tokens=90)
    assert texts(chat.window()) == ["long", "the dog"]


def test_answers_follow_the_calls(chat: Conversation) -> None:
    calls = chat.append("assistant", None, tool_calls=[CALL], tokens=5)
    answer = chat.append("tool", "found", tool_call_id="c1", tokens=5)
    new = chat.replace(answer, "found more", tokens=6)
    assert new.tool_call_id == "c1"
    assert chat.replace(answer, "found", tool_call_id="c1", tokens=6).tool_call_id == "c1"
    with refused(chat, InvalidInput, "append another"):
        chat.replace(answer, "found", tool_call_id="c2")
    with refused(chat, InvalidInput, "append another"):
        chat.replace(chat.window()[0], [{"type": "tool_result", "tool_use_id": "c1", "content": "x"}])
    with pytest.raises(InvalidInput, match="only an assistant"):
        chat.replace(chat.window()[0], None, tool_calls=[CALL])
    chat.replace(calls, None, tool_calls=[CALL, {**CALL, "id": "c2"}], tokens=5)
    chat.append("tool", "two", tool_call_id="c2", tokens=5)
    assert texts(chat.window())[3:] == [None, "found", "two"]
    chat.replace(calls, None, tool_calls=[{**CALL, "id": "c2"}], tokens=5)
    assert texts(chat.window())[3:] == [None, "two"]
    chat.replace(calls, "I looked.", tokens=5)
    assert texts(chat.window())[3:] == ["I looked."]
    assert chat.token_count() == 35


def test_a_repeated_request_answers_the_same(memory: Memory, chat: Conversation) -> None:
    old = chat.window()[0]
    new = chat.replace(old, "the elk", request_id="r")
    head = memory.head
    assert chat.replace(old, "the elk", request_id="r") == new
    chat.replace(old, "the cow")
    chat.clear_window()
    assert chat.replace(old, "the elk", request_id="r") == new
    with pytest.raises(InvalidInput, match="request"):
        chat.replace(old, "another", request_id="r")
    assert memory.head == head + 2


def test_a_batch_replaces_what_it_appended(memory: Memory, chat: Conversation) -> None:
    with memory.batch():
        said = chat.append("user", "the cow", tokens=10)
        new = chat.replace(said, "the elk", tokens=10)
        assert not new.seq
        assert new.content == "the elk"
        assert texts(chat.window())[3:] == texts(chat.history())[3:] == ["the elk"]
        assert (found(chat, "elk"), found(chat, "cow")) == (["the elk"], [])
        cited = chat.append("user", "as said", sources=[new], tokens=10)
    assert new.seq == said.seq
    assert cited.event.sources == (said.seq,)
    assert new == chat.window()[3]
    assert (found(chat, "elk"), found(chat, "cow")) == (["the elk"], [])


@pytest.mark.parametrize("derived", ["erase", "keep"])
def test_no_erasure_brings_the_old_text_back(tmp_path: Path, derived: str) -> None:
    with Memory(tmp_path) as memory:
        chat = memory.conversation("chat")
        old = chat.append("user", "the red fox runs away", tokens=10)
        chat.append("user", "another", tokens=10)
        new = chat.replace(old, "the old hen stays here", tokens=10)
        replacing = memory.head
        memory.erase([replacing], derived=derived)
        erased = chat.window()[0]
        assert (erased.content, erased.erased, erased.tokens, erased.id) == (None, True, 10, new.id)
        assert texts(chat.history()) == [None, "another"]
        assert found(chat, "fox") == found(chat, "hen") == []
        assert chat.at(old.seq).window()[0].content == "the red fox runs away"
        assert memory.verify().ok
        assert texts(chat.fork("fork").window()) == [None, "another"]
    assert b"old hen" not in (tmp_path / "data.mdb").read_bytes()
    with Memory(tmp_path) as memory:
        assert texts(memory.conversation("chat").window()) == [None, "another"]


@pytest.mark.parametrize(("derived", "left"), [("erase", None), ("keep", "the old hen stays here")])
def test_an_erasure_of_the_message_reaches_what_it_became(tmp_path: Path, derived: str, left: str | None) -> None:
    with Memory(tmp_path) as memory:
        chat = memory.conversation("chat")
        old = chat.append("user", "the red fox runs away", tokens=10)
        fork = chat.fork("fork")
        for each in (chat, fork):
            each.replace(old.id, "the old hen stays here", tokens=10)
        memory.erase([old.seq], derived=derived)
        for each in (chat, fork):
            assert texts(each.window()) == texts(each.history()) == [left]
            assert each.window()[0].erased is (left is None)
            assert found(each, "fox") == []
            assert found(each, "hen") == [text for text in [left] if text]
        assert memory.verify().ok
    assert b"red fox" not in (tmp_path / "data.mdb").read_bytes()
    assert (b"old hen" in (tmp_path / "data.mdb").read_bytes()) is (left is not None)


def test_why_tells_of_it(memory: Memory, chat: Conversation) -> None:
    old = chat.window()[0]
    new = chat.replace(old, "the elk")
    replacing = memory.head
    for x in (old, new, "the elk", replacing, old.seq):
        told = memory.why(x)
        assert told.present, x
        assert [(step.relation, step.seq) for step in told.steps][:2] == [("came", old.seq), ("changed", replacing)], x


def test_contexts_show_it(memory: Memory, chat: Conversation) -> None:
    chat.replace(chat.window()[0], "the elk")
    chat.clear_window()
    for number in range(3):
        chat.append("user", f"number {number}")
    shown = str(memory.context(chat, query="where is the elk"))
    assert "the elk" in shown
    assert "the fox" not in str(memory.context(chat, query="where is a fox"))


def test_an_export_loads_as_it_was(tmp_path: Path, memory: Memory, chat: Conversation) -> None:
    chat.replace(chat.window()[0], [{"type": "text", "text": "the elk"}], metadata={"m": 1})
    memory.export(tmp_path / "export")
    line = json.loads((tmp_path / "export").read_text().splitlines()[-2])
    assert line["event"]["content"] == [{"type": "text", "text": "the elk"}]
    with Memory() as other:
        other.load(tmp_path / "export")
        assert other.conversation("chat").window() == chat.window()
        assert other.state_hash() == memory.state_hash()


def test_a_scenario_replaces_what_it_holds(memory: Memory, chat: Conversation) -> None:
    chat.replace(chat.window()[2], "the elk", tokens=30)
    narrow = memory.what_if(window_tokens=30)
    assert texts(narrow.conversation("chat").window()) == ["the elk"]
    assert narrow.diff().windows


def test_what_is_no_message_of_the_window_is_refused(memory: Memory, chat: Conversation) -> None:
    head = memory.head
    for x in ("none", head + 9):
        with pytest.raises(NotFound):
            chat.replace(x, "text")
    with pytest.raises(ReadOnly):
        chat.at(head).replace(chat.window()[0], "text")
    brief = memory.conversation("brief", window_tokens=20, eviction="summary")
    for text in ("one", "two", "three"):
        brief.append("user", text, tokens=10)
    summary = brief.summarize(lambda *_: "so far")
    assert summary is not None
    with refused(chat, InvalidInput, "summarize()"):
        brief.replace(summary, "text")


def test_tasks_replace_too(memory: Memory) -> None:
    async def run() -> list[Any]:
        chat = memory.aio.conversation("chat")
        said = await chat.append("user", "one")
        await chat.replace(said, "two")
        return texts(chat.window())

    assert asyncio.run(run()) == ["two"]


def test_the_same_content_again_appends_nothing(chat: Conversation) -> None:
    new = chat.replace(chat.window()[0], "the owl", tokens=7, name="n", metadata={"m": [1]})
    version = chat.version
    assert chat.replace(new, "the owl", tokens=7, metadata={"m": [1]}) == new
    assert chat.version == version
    assert chat.replace(new, "the owl", tokens=7).metadata is None
    assert chat.version == version + 1
