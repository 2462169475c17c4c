"""Searches of messages: what left the window, as of any seq, in forks and batches, and never what was erased."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from refold import Hits, InvalidInput, Memory, Snapshot
from refold.index.messages import MessageIndex, search
from tests.support.bounds import lowered
from tests.support.memories import refused, remembering

SMALL = 30
"""Tokens of a window that soon is too small."""


def texts(hits: Hits) -> list[Any]:
    return [hit.entry.content for hit in hits]


def filled(memory: Memory, name: str = "chat", **options: Any) -> Any:
    """A conversation whose first messages have left the window."""
    chat = memory.conversation(name, window_tokens=SMALL, **options)
    chat.append("user", "The staging database listens on port 5433.", tokens=10)
    chat.append("assistant", "Noted: staging is on 5433.", tokens=10)
    for number in range(20):
        chat.append("user", f"Something else, number {number}.", tokens=10)
    return chat


def test_what_has_left_the_window_is_found() -> None:
    with remembering() as memory:
        chat = filled(memory)
        assert all("5433" not in str(message.content) for message in chat.window())
        head = memory.head
        assert texts(chat.search("which port has the staging database?")) == [
            "The staging database listens on port 5433.",
            "Noted: staging is on 5433.",
        ]
        assert memory.head == head, "a search is a read"
        assert texts(chat.search("STAGING databases", top_k=1)) == ["The staging database listens on port 5433."]
        assert texts(chat.search("zeppelin")) == []
        assert texts(chat.search("what is the of")) == [], "common words alone find nothing"
        chat.clear_window()
        assert len(chat.search("staging")) == 2


def test_hits_are_messages_with_their_signals() -> None:
    with remembering() as memory:
        chat = filled(memory)
        hits = chat.search("staging port", explain=True)
        assert hits[0].entry == next(m for m in (message for message in _every(chat)) if "port" in str(m.content))
        assert (hits.ranking, hits.exact, hits.query) == ("messages", True, "staging port")
        assert hits[0].parts["coverage"] * 1.0 == pytest.approx(hits[0].score)
        assert hits[0].parts["stage"] + hits[0].parts["port"] == pytest.approx(1.0)
        assert "port" not in hits[1].parts
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def _every(chat: Any) -> list[Any]:
    steps = [step.after.window(last=1) for step in chat.replay()]
    return [message for window in steps for message in window]


def test_a_role_a_name_a_call_and_blocks_are_searched_too() -> None:
    with remembering() as memory:
        chat = memory.conversation("chat")
        chat.append("user", "Which tide is it?", name="Grace")
        call = {"id": "c1", "function": {"name": "look_up", "arguments": '{"harbour": "Whitby"}'}}
        chat.append("assistant", None, tool_calls=[call])
        chat.append("tool", [{"type": "text", "text": "High tide at noon."}], tool_call_id="c1")
        assert [hit.entry.role for hit in chat.search("Whitby")] == ["assistant"]
        assert [hit.entry.role for hit in chat.search("grace")] == ["user"]
        assert [hit.entry.role for hit in chat.search("tide", roles=["tool", "assistant"])] == ["tool"]
        assert [hit.entry.role for hit in chat.search("tide", roles="user")] == ["user"]
        assert len(chat.search("tide", roles=[])) == 0


def test_it_answers_as_of_any_seq_and_never_changes_its_answer() -> None:
    with remembering() as memory:
        chat = memory.conversation("chat", window_tokens=SMALL)
        answers = {}
        for number in range(12):
            seq = chat.append("user", f"The code word of day {number} is raven{number % 3}.", tokens=9).seq
            answers[seq] = chat.search("raven1 raven2 code")
        for seq, hits in answers.items():
            assert chat.at(seq).search("raven1 raven2 code") == hits
            assert memory.at(seq).search_messages("raven1 raven2 code") == hits
        assert len(chat.at(0).search("raven1")) == 0


def test_all_conversations_are_searched_at_once() -> None:
    with remembering() as memory:
        filled(memory, "a")
        memory.conversation("b").append("user", "My port of call is Whitby.")
        memory.board(session="b").append_message({"role": "user", "content": "port of a board"})
        memory.project().add("The port of a memory")
        hits = memory.search_messages("port")
        assert [hit.entry.stamp.stream for hit in hits] == ["conversation/b", "conversation/a"]
        assert [hit.entry.stamp.stream for hit in memory.search_messages("port", roles=["assistant"])] == []


def test_a_fork_has_what_its_parent_had_and_a_restored_one_what_it_went_on_from() -> None:
    with remembering() as memory:
        chat = filled(memory)
        fork = chat.fork("fork")
        chat.append("user", "The parent says staging once more.")
        fork.append("user", "The fork asks for staging.")
        assert texts(fork.search("staging"))[0] == "The fork asks for staging."
        assert len(fork.search("staging")) == len(chat.search("staging")) == 3
        deeper = fork.fork("deeper")
        assert texts(deeper.search("staging")) == texts(fork.search("staging"))
        other = memory.conversation("other")
        other.append("user", "Nothing of that.")
        other.restore(fork.snapshot())
        assert len(other.search("staging")) == 3
        assert len(other.at(memory.head - 1).search("staging")) == 0
        assert len(memory.search_messages("staging")) == 4, "each is found once"


def test_a_memory_that_was_restored_is_searched_whatever_came_back_beside_its_conversations() -> None:
    with remembering() as memory:
        memory.profile().set("theme", "dark")
        memory.conversation("chat").append("user", "the port is 5432")
        memory.snapshot("before")
        memory.profile().set("theme", "light")
        memory.restore("before")
        assert [hit.entry.content for hit in memory.search_messages("which port")] == ["the port is 5432"]


def test_a_memory_fork_goes_on_by_itself() -> None:
    with remembering() as memory:
        filled(memory)
        branch = memory.fork("branch")
        branch.conversation("chat").append("user", "Staging in the branch.")
        memory.conversation("chat").append("user", "Staging in the main line.")
        assert "Staging in the branch." in texts(branch.conversation("chat").search("staging branch"))
        assert "Staging in the main line." not in texts(branch.search_messages("staging main line"))
        assert len(branch.search_messages("staging")) == len(memory.search_messages("staging")) == 3


def test_a_state_of_another_store_is_searched() -> None:
    with remembering() as other:
        rendered = filled(other).snapshot().to_bytes()
    with remembering() as memory:
        chat = memory.conversation("chat")
        chat.restore(Snapshot.from_bytes(rendered))
        (hit,) = chat.search("number 19", top_k=1)
        assert hit.entry in chat.window()
        assert texts(chat.search("staging")) == [], "a snapshot hands over its window"


def test_an_erased_message_is_not_found_and_no_index_keeps_its_words() -> None:
    with remembering() as memory:
        chat = filled(memory)
        fork = chat.fork("fork")
        first = chat.search("database", top_k=1)[0].entry
        assert memory.search_messages("database")
        memory.erase([first])
        for found in (chat, fork, chat.at(first.seq), memory.conversation("chat")):
            assert texts(found.search("database")) == []
        assert texts(memory.search_messages("database")) == []
        assert texts(chat.search("staging")) == ["Noted: staging is on 5433."]


def test_what_another_handle_erased_is_not_found(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        seq = filled(memory).search("database")[0].entry.seq
    with Memory(tmp_path / "store") as memory:
        memory.erase([seq])
    with Memory(tmp_path / "store") as memory:
        assert len(memory.conversation("chat").search("database")) == 0


def test_a_batch_finds_what_it_added_and_nobody_else_does() -> None:
    with remembering() as memory:
        chat = filled(memory)
        found: list[Hits] = []
        with memory.batch():
            added = chat.append("user", "Staging, said in a batch.")
            hits = chat.search("staging batch")
            assert hits[0].entry == added
            assert [hits[0].entry.seq, added.seq] == [None, None]
            thread = threading.Thread(target=lambda: found.append(chat.search("batch")))
            thread.start()
            thread.join()
            assert texts(memory.search_messages("batch")) == ["Staging, said in a batch."]
        assert len(found[0]) == 0
        assert hits[0].entry.seq == added.seq == memory.head
        assert chat.search("staging batch")[0].entry == added


def test_it_is_awaited_on_an_event_loop() -> None:
    async def work(memory: Memory) -> list[Hits]:
        aio = memory.aio
        return [await aio.conversation("chat").search("staging"), await aio.search_messages("staging")]

    with remembering() as memory:
        chat = filled(memory)
        assert asyncio.run(work(memory)) == [chat.search("staging"), memory.search_messages("staging")]


def test_an_index_that_was_dropped_is_filled_again() -> None:
    with lowered(MESSAGES_BYTES_MAX=1), remembering() as memory:
        chats = [filled(memory, name) for name in "abc"]
        for _ in range(2):
            assert [len(chat.search("staging")) for chat in chats] == [2, 2, 2]
            assert len(memory.search_messages("staging")) == 6


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"query": " "}, "query is empty; give some words"),
        ({"query": 5}, "query must be a str"),
        ({"query": "x", "top_k": 0}, "top_k"),
        ({"query": "x", "roles": ["robot"]}, "roles holds 'robot'; give some of system, developer, user"),
        ({"query": "x", "roles": 5}, "roles must be a list of str, not int"),
        ({"query": "x", "explain": 1}, "explain"),
    ],
)
def test_what_is_no_search_is_refused(options: dict[str, Any], says: str) -> None:
    with remembering() as memory:
        chat: Any = memory.conversation("chat")
        with refused(memory, InvalidInput, says):
            chat.search(**options)


def test_the_forms_of_an_irregular_word_are_one_word() -> None:
    with remembering() as memory:
        chat = memory.conversation("c")
        for text in ("We went to the lake.", "I wrote to Ann.", "Nobody was there."):
            chat.append("user", text)
        assert texts(chat.search("where did you go?")) == ["We went to the lake."]
        assert texts(chat.search("who writes and has written?")) == ["I wrote to Ann."]


def test_a_part_of_an_english_word_is_no_word() -> None:
    memory = Memory()
    chat = memory.conversation("a", project="home")
    chat.append("user", "We had dinner at the restaurant La Piazza.")
    chat.append("user", "My passport expires in May; support let the deadline pass.")
    assert not any(chat.search(query) for query in ("rest", "Which port does my laptop use?"))
    assert [hit.entry.content for hit in chat.search("restaurants")] == ["We had dinner at the restaurant La Piazza."]
    chat.append("user", "The warehouse sells kitchenware.")
    chat.append("user", "He sells all kinds of ware.")
    found = [hit.entry.content for hit in chat.search("kitchen")]
    assert found == ["The warehouse sells kitchenware."], "what is left of the word is one, too"
    chat.append("user", "Der Zahnarzttermin ist am Montag.")
    assert [len(chat.search(query)) for query in ("Wann ist der Termin?", "Zahnarzt", "arzt")] == [1, 1, 0]


def test_data_that_looks_like_a_word_is_no_compound() -> None:
    memory = Memory()
    chat = memory.conversation("a")
    chat.append("user", "Something about zebras.")
    begun = time.process_time()
    for letters in ("acgt" * 10_000, "\u00e4b" * 20_000):
        assert not chat.search(letters)
    assert time.process_time() - begun < 2


def test_a_word_finds_its_other_forms_and_scripts_without_spaces() -> None:
    index = MessageIndex()
    for row, text in enumerate(("Deploying on Fridays is forbidden.", "\u6771\u4eac\u90fd\u306b\u884c\u304f", "")):
        index.add(row + 1, 0, "conversation/c", 2, text)
    look = index.view(None)
    assert [match.seq for match in search([look], "deployed friday", None, 5)] == [1]
    assert [match.seq for match in search([look], "\u4eac\u90fd", None, 5)] == [2]
    index.add(4, 0, "conversation/c", 2, "deployed anew")
    assert [match.seq for match in search([look], "deployed", None, 5)] == [1], "a look is as of its time"
    assert [match.seq for match in search([index.view(None)], "deployed", None, 5)] == [4, 1]
    assert search([index.view(0)], "deployed", None, 5) == []
