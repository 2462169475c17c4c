"""Messages that are embedded: found by their meaning, in the background, once, and gone with what is erased."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold import Hits, InvalidInput, Memory, Snapshot, recover
from refold.embedders import HashedEmbedder
from refold.limits import EMBEDDED_CHARS_MAX
from refold.log.protocol import write
from refold.memory.message_indexes import MessageIndexes
from tests.support.bounds import lowered
from tests.support.memories import assert_sound, refused, remembering

TOPICS = (("car", "automobile", "motor"), ("tea", "camellia", "cup"), ("port", "harbour", "quay"))


class Topics:
    """An embedder that knows which words mean the same, and what it was asked on which threads."""

    id = "topics"
    dim = len(TOPICS) + 1

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.threads: set[int] = set()

    def embed(self, texts: list[str]) -> list[list[float]]:
        self.asked += texts
        self.threads.add(threading.get_ident())
        return [[*(float(any(word in text.lower() for word in topic)) for topic in TOPICS), 0.01] for text in texts]


class Fails(Topics):
    """An embedder that fails as long as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = True

    def embed(self, texts: list[str]) -> list[list[float]]:
        if self.is_down:
            raise OSError("the endpoint is down")
        return super().embed(texts)


def texts(hits: Hits) -> list[Any]:
    return [hit.entry.content for hit in hits]


def until(is_so: Callable[[], bool]) -> None:
    """Waits for what another thread does."""
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.005)


def settled(searched: Any) -> None:
    """Waits until nothing that a search looks at lacks a vector."""
    until(lambda: not searched("zeppelin").pending)


def filled(memory: Memory, name: str = "chat", **options: Any) -> Any:
    chat = memory.conversation(name, **{"embed": True} | options)
    chat.append("user", "My automobile is red.")
    chat.append("assistant", "I like a cup of tea.")
    chat.append("user", "Nothing else.")
    return chat


def test_a_message_is_found_by_its_meaning_once_it_is_embedded() -> None:
    with remembering(embedder=Topics()) as memory:
        chat = filled(memory)
        head = memory.head
        settled(chat.search)
        hits = chat.search("Which car?", top_k=1)
        assert texts(hits) == ["My automobile is red."]
        assert (hits.pending, hits.exact) == (0, True)
        assert hits[0].parts["coverage"] == 0.0
        assert hits[0].parts["cosine"] == pytest.approx(1.0, abs=0.001)
        assert texts(memory.search_messages("Which car?", top_k=1)) == texts(hits)
        assert memory.head == head, "no event tells of a vector"


def test_before_that_it_is_found_by_its_words_and_the_hits_say_how_many_were() -> None:
    embedder = Fails()
    with remembering(embedder=embedder) as memory:
        chat = filled(memory)
        hits = chat.search("automobile tea")
        assert sorted(texts(hits)) == ["I like a cup of tea.", "My automobile is red."]
        assert hits.pending == 3
        assert memory.search_messages("automobile").pending == 3
        assert "cosine" not in hits[0].parts


def test_what_was_not_asked_for_is_not_embedded() -> None:
    embedder = Topics()
    with remembering(embedder=embedder) as memory:
        filled(memory, "embedded")
        plain = filled(memory, "plain", embed=None)
        settled(memory.search_messages)
        assert (texts(plain.search("car")), plain.search("car").pending) == ([], 0)
        found = memory.search_messages("car")
        assert {hit.entry.stamp.stream for hit in found} == {"conversation/embedded"}
        assert embedder.asked.count("My automobile is red.") == 1


def test_the_option_stays_with_the_conversation(tmp_path: Path) -> None:
    with remembering(tmp_path / "store", embedder=Topics()) as memory:
        chat = filled(memory)
        assert chat.embed
        assert chat.fork("fork").embed, "forks inherit it"
        assert memory.fork("branch").conversation("chat").embed
        assert not filled(memory, "plain", embed=None).embed
        assert not filled(memory, "off", embed=False).embed
        hashed = memory.state_hash()
        for name, embed in (("chat", False), ("plain", True)):
            with refused(memory, InvalidInput, f"opened with embed={not embed}, not {embed}", "set_embed"):
                memory.conversation(name, embed=embed)
        with refused(memory, InvalidInput, "embed must be True or False, not int"):
            memory.conversation("new", embed=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with Memory(tmp_path / "store") as memory:
        assert memory.state_hash() == hashed
        assert memory.conversation("chat").embed
        assert memory.conversation("chat", embed=True).embed


def test_it_can_be_turned_off_and_on_again() -> None:
    embedder = Topics()
    with remembering(embedder=embedder) as memory:
        chat = filled(memory, embed=None)
        chat.set_embed(True)
        settled(chat.search)
        assert texts(chat.search("car", top_k=1)) == ["My automobile is red."], (
            "the messages of before are embedded too"
        )
        head = memory.head
        chat.set_embed(True)
        assert memory.head == head
        chat.set_embed(False)
        chat.append("user", "Another motor.")
        assert (texts(chat.search("car")), chat.search("car").pending) == ([], 0)
        assert texts(chat.at(head).search("car", top_k=1)) == ["My automobile is red."], "then it was on"
        chat.set_embed(True)
        settled(chat.search)
        assert texts(chat.search("car", top_k=2)) == ["Another motor.", "My automobile is red."]
        assert embedder.asked.count("My automobile is red.") == 1, "what was embedded once is used again"


def test_a_search_as_of_a_seq_sees_nothing_later() -> None:
    with remembering(embedder=Topics()) as memory:
        chat = filled(memory)
        seq = memory.head
        chat.append("user", "Another motor.")
        settled(chat.search)
        assert texts(chat.search("car", top_k=2)) == ["Another motor.", "My automobile is red."]
        assert texts(chat.at(seq).search("car", top_k=1)) == ["My automobile is red."]
        assert texts(memory.at(seq).search_messages("car", top_k=1)) == ["My automobile is red."]


def test_forks_and_restored_conversations_share_the_vectors_of_what_they_went_on_from() -> None:
    embedder = Topics()
    with remembering(embedder=embedder) as memory:
        chat = filled(memory)
        settled(chat.search)
        fork = chat.fork("fork")
        fork.append("user", "A motor in the fork.")
        settled(fork.search)
        assert texts(fork.search("car", top_k=2)) == ["A motor in the fork.", "My automobile is red."]
        branch = memory.fork("branch")
        branch.conversation("chat").append("user", "A motor in the branch.")
        settled(branch.conversation("chat").search)
        assert texts(branch.search_messages("car", top_k=1)) == ["A motor in the branch."]
        assert "A motor in the branch." not in texts(memory.search_messages("car"))
        other = memory.conversation("other")
        other.append("user", "Nothing.")
        other.restore(chat.snapshot())
        settled(other.search)
        assert texts(other.search("car", top_k=1)) == ["My automobile is red."]
        assert embedder.asked.count("My automobile is red.") == 1


def test_a_memory_that_was_restored_is_searched_whatever_else_it_holds() -> None:
    with remembering(embedder=Topics()) as memory:
        chat = filled(memory)
        memory.project().add("My motor.")
        before = memory.snapshot()
        memory.project().add("Another motor.")
        chat.set_embed(False)
        memory.restore(before)
        settled(memory.search_messages)
        assert texts(memory.search_messages("car", top_k=1)) == ["My automobile is red."]


def test_the_messages_of_a_state_of_another_store_are_embedded() -> None:
    with remembering() as other:
        rendered = filled(other, embed=None).snapshot().to_bytes()
    with remembering(embedder=Topics()) as memory:
        chat = memory.conversation("chat", embed=True)
        chat.restore(Snapshot.from_bytes(rendered))
        settled(chat.search)
        assert texts(chat.search("car", top_k=1)) == ["My automobile is red."]


def test_nothing_is_embedded_on_the_thread_that_writes_and_no_append_waits() -> None:
    go = threading.Event()

    class Waits(Topics):
        def embed(self, texts: list[str]) -> list[list[float]]:
            if texts != ["tea"]:
                assert go.wait(30)
            return super().embed(texts)

    embedder = Waits()
    with remembering(embedder=embedder) as memory:
        chat = filled(memory)
        with memory.batch():
            chat.append("user", "In a batch.")
        assert chat.search("batch").pending == 4, "nothing is embedded yet, and nobody has waited"
        go.set()
        settled(chat.search)
        assert embedder.threads.isdisjoint({threading.get_ident()} if "zeppelin" not in embedder.asked else set())


def test_no_verb_embeds_on_an_event_loop() -> None:
    embedder = Topics()

    async def work() -> int:
        async with Memory(embedder=embedder).aio as memory:
            chat = memory.conversation("chat", embed=True)
            assert chat.embed
            await chat.append("user", "My automobile is red.")
            await chat.set_embed(False)
            await chat.set_embed(True)
            await asyncio.to_thread(settled, chat.plain.search)
            assert texts(await chat.search("car", top_k=1)) == ["My automobile is red."]
            assert texts(await memory.search_messages("motor", top_k=1)) == ["My automobile is red."]
            async with memory.batch():
                await chat.append("user", "Another motor.")
                hits = await chat.search("which car?")
                assert set(texts(hits)) >= {"My automobile is red."}
                assert hits.pending == 1
            return threading.get_ident()

    assert asyncio.run(work()) not in embedder.threads
    assert embedder.threads


def test_nothing_is_embedded_twice_by_those_who_open_the_store_later(tmp_path: Path) -> None:
    with remembering(tmp_path / "store", embedder=Topics()) as memory:
        settled(filled(memory).search)
    with Memory(tmp_path / "store", embedder=HashedEmbedder()) as memory:
        settled(memory.conversation("chat").search)
    for readonly in (False, True):
        again = Topics()
        with Memory(tmp_path / "store", embedder=again, readonly=readonly) as memory:
            for found in (memory.conversation("chat").search("car"), memory.search_messages("car")):
                assert (texts(found)[:1], found.pending) == (["My automobile is red."], 0)
        assert again.asked == ["car"]


def test_a_store_that_is_opened_goes_on_to_embed_without_the_option(tmp_path: Path) -> None:
    with Memory(tmp_path / "store", embedder=Topics()) as memory:
        settled(filled(memory).search)
    embedder = Topics()
    with Memory(tmp_path / "store", embedder=embedder) as memory:
        memory.conversation("chat").append("user", "Another motor.")
        until(lambda: "Another motor." in embedder.asked)


def test_one_that_is_read_only_embeds_no_message(tmp_path: Path) -> None:
    with Memory(tmp_path / "store", embedder=Fails()) as memory:
        filled(memory)
    embedder = Topics()
    with Memory(tmp_path / "store", embedder=embedder, readonly=True) as memory:
        assert memory.conversation("chat").search("tea").pending == 3
        time.sleep(0.3)
        assert memory.conversation("chat").search("tea").pending == 3
    assert embedder.asked == []


def test_reembedding_the_memory_drops_the_vectors_of_other_embedders(tmp_path: Path) -> None:
    with Memory(tmp_path / "store", embedder=Topics()) as memory:
        chat = filled(memory)
        settled(chat.search)
        memory.reembed(HashedEmbedder())
        settled(chat.search)
        assert texts(chat.search("car")) == []
        assert texts(chat.search("automobiles", top_k=1)) == ["My automobile is red."]
        assert memory.verify().ok
    embedder = Topics()
    with Memory(tmp_path / "store", embedder=embedder) as memory:
        assert memory.conversation("chat").search("car").pending == 3


def test_an_embedder_that_fails_is_told_of_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    embedder = Fails()
    with lowered(EMBED_PAUSE_SECONDS_MIN=0.01, EMBED_PAUSE_SECONDS_MAX=0.02), remembering(embedder=embedder) as memory:
        with caplog.at_level(logging.ERROR, "refold"):
            chat = filled(memory)
            until(lambda: bool(caplog.records))
            chat.append("user", "Another motor.")
            time.sleep(0.2)
            assert texts(chat.search("motor")) == ["Another motor."]
            (record,) = caplog.records
        assert "they are found by words until it works" in record.getMessage()
        embedder.is_down = False
        settled(chat.search)
        embedder.is_down = True
        hits = chat.search("a car and tea")
        assert (texts(hits), hits.pending) == (["I like a cup of tea."], 4), "the query has no vector now"


@pytest.mark.parametrize("kind", ["message", "conversation", "after reopening"])
def test_erasing_reaches_the_vectors_in_every_byte_of_every_file(tmp_path: Path, kind: str) -> None:
    path, embedder = tmp_path / "store", HashedEmbedder()
    said = "The combination of the safe is four, eight, fifteen."
    with Memory(path, embedder=embedder) as memory:
        chat = memory.conversation("chat", embed=True)
        message = chat.append("user", said)
        chat.append("user", "Something else.")
        settled(chat.search)
        vectors = {value[8:] for _, value in memory._core.engine.reader.log.rows("vectors", b"", 100)}
        assert len(vectors) == 2
        memory.flush()
        assert any(vector in file.read_bytes() for file in path.iterdir() for vector in vectors)
        if kind == "after reopening":
            memory.close()
            memory = Memory(path, embedder=embedder)  # noqa: PLW2901 - the same store
        chat = memory.conversation("chat")
        receipt = chat.erase() if kind == "conversation" else memory.erase([message.seq])
        assert receipt.occurrences == 0
        left = {vector for vector in vectors for file in path.iterdir() if vector in file.read_bytes()}
        assert len(left) == (0 if kind == "conversation" else 1)
        assert said not in texts(memory.search_messages("combination of the safe"))
        assert_sound(memory)
        memory.close()
        assert all(vector in left for vector in vectors for file in path.iterdir() if vector in file.read_bytes())


def test_a_message_that_is_erased_while_it_is_embedded_leaves_no_vector() -> None:
    asked, go = threading.Event(), threading.Event()

    class Waits(Topics):
        def embed(self, texts: list[str]) -> list[list[float]]:
            asked.set()
            assert go.wait(30)
            return super().embed(texts)

    with remembering(embedder=Waits()) as memory:
        chat = memory.conversation("chat", embed=True)
        message = chat.append("user", "My automobile is red.")
        chat.append("user", "Another motor.")
        assert asked.wait(30)
        memory.erase([message])
        go.set()
        settled(chat.search)
        assert texts(chat.search("car")) == ["Another motor."]
        assert len(memory._core.engine.reader.log.rows("vectors", b"", 100)) == 1


def test_a_damaged_vector_is_found_by_verify_and_made_anew() -> None:
    with Memory(embedder=Topics()) as memory:
        chat = filled(memory)
        settled(chat.search)
        log = memory._core.engine.reader.log
        (first, value), *_, (last, other) = log.rows("vectors", b"", 100)
        write(log, (), [("vectors", first, value[:-1] + b"\x55"), ("vectors", b"\xff" + last[1:], other)])
        assert [finding.check for finding in memory.verify().findings] == ["vectors", "vectors"]
        assert memory.verify().fault == "cache"
        memory._core.part(MessageIndexes).clear()
        settled(chat.search)
        assert texts(chat.search("car", top_k=1)) == ["My automobile is red."]
        assert [finding.check for finding in memory.verify().findings] == ["vectors"], "one is of no event"


def test_a_backup_and_what_is_recovered_from_it_have_the_vectors(tmp_path: Path) -> None:
    with Memory(tmp_path / "store", embedder=Topics()) as memory:
        chat = filled(memory)
        settled(chat.search)
        seq = memory.head - 1
        memory.backup(tmp_path / "backup")
    recover(tmp_path / "backup", tmp_path / "whole")
    recover(tmp_path / "store", tmp_path / "part", to=seq)
    for name, rows in (("backup", 3), ("whole", 3), ("part", 2)):
        embedder = Topics()
        with Memory(tmp_path / name, embedder=embedder) as memory:
            assert len(memory._core.engine.reader.log.rows("vectors", b"", 100)) == rows
            assert texts(memory.conversation("chat").search("car", top_k=1)) == ["My automobile is red."]
            assert memory.verify().ok
        assert embedder.asked == ["car"]


def test_an_export_has_no_vectors(tmp_path: Path) -> None:
    with Memory(embedder=Topics()) as memory:
        settled(filled(memory).search)
        memory.export(tmp_path / "export.jsonl")
        hashed = memory.state_hash()
    with Memory(embedder=Topics()) as memory:
        memory.load(tmp_path / "export.jsonl")
        assert memory.state_hash() == hashed
        chat = memory.conversation("chat")
        assert chat.search("tea").pending == 3
        settled(chat.search)


def test_a_long_message_is_embedded_by_its_beginning_and_an_empty_one_not_at_all() -> None:
    embedder = Topics()
    with remembering(embedder=embedder) as memory:
        chat = memory.conversation("chat", embed=True)
        chat.append("user", "automobile " + "and so on " * EMBEDDED_CHARS_MAX)
        chat.append("user", "  ")
        chat.append("assistant", None)
        settled(chat.search)
        assert max(map(len, embedder.asked)) == EMBEDDED_CHARS_MAX
        assert [hit.entry.content[:10] for hit in chat.search("car")] == ["automobile"]


def test_a_question_that_nothing_answers_finds_nothing_with_the_built_in_embedder() -> None:
    with remembering() as memory:
        chat = filled(memory)
        settled(chat.search)
        assert texts(chat.search("automobiles", top_k=1)) == ["My automobile is red."]
        assert texts(chat.search("Who won the election in France?")) == []


def test_a_thousand_messages_are_embedded_together_and_the_rest_in_pages() -> None:
    calls: list[int] = []

    class Counts(Topics):
        def embed(self, texts: list[str]) -> list[list[float]]:
            calls.append(len(texts))
            return super().embed(texts)

    with remembering(embedder=Counts()) as memory:
        chat = memory.conversation("chat", embed=True)
        with memory.batch():
            for number in range(1_000):
                chat.append("user", f"Motor {number}.", tokens=1)
        settled(chat.search)
        assert [count for count in calls if count > 1] == [256, 256, 256, 232]


def test_a_memory_is_closed_while_it_embeds(tmp_path: Path) -> None:
    class Slow(Topics):
        def embed(self, texts: list[str]) -> list[list[float]]:
            time.sleep(0.3)
            return super().embed(texts)

    with Memory(tmp_path / "store", embedder=Slow()) as memory:
        filled(memory)
        time.sleep(0.2)
    until(lambda: "refold-embedding" not in {thread.name for thread in threading.enumerate()})
    with Memory(tmp_path / "store") as memory:
        assert_sound(memory)
