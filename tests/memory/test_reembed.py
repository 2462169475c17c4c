"""Another embedder for a memory that is there: nothing of it is seen before all of it is, and nothing is lost."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from refold import EmbeddingMismatch, InvalidInput, Memory, NotFound, ReadOnly
from refold.embedders import HashedEmbedder
from refold.entry import EmbedderSwitched, VectorRenewed
from refold.index.index import FillRequest, Indexes
from refold.limits import REEMBEDDED_PAGE_COUNT
from refold.results import Reembedded
from tests.conftest import Held
from tests.support.memories import elsewhere


class Letters:
    """An embedder of few numbers: how often each letter of a list is in a text."""

    def __init__(self, letters: str = "abcdefgh", name: str = "letters") -> None:
        self.letters, self.id, self.dim = letters, name, len(letters) + 1
        self.asked: list[str] = []
        self.fails_at: int | None = None

    def embed(self, texts: list[str]) -> list[list[float]]:
        if self.fails_at is not None and len(self.asked) >= self.fails_at:
            raise ConnectionError(self.fails_at)
        self.asked += texts
        return [[*(float(text.count(letter)) for letter in self.letters), 0.5] for text in texts]


WORDS = ("cab", "feed", "bead", "ace", "hag", "fab", "dad", "beg")


def fill(memory: Memory, count: int = 24) -> None:
    """Memories in two projects, an episode in one of them."""
    with memory.batch():
        for number in range(count):
            memory.project("p" if number % 3 else "q").add(f"{WORDS[number % 8]} number {number}", importance=0.5)
        memory.project("p").record_episode("success", task="a cab fare", outcome="dad paid")


def told(memory: Memory, query: str = "cab", name: str = "p") -> list[tuple[str, float]]:
    return [(hit.entry.content, hit.score) for hit in memory.project(name).search(query, now=0)]


def told_anew(memory: Memory, embedder: Any, query: str = "cab") -> list[tuple[str, float]]:
    """What a memory finds that was written with an embedder from the start."""
    with Memory(embedder=embedder) as other:
        for entry in memory.project("p").list():
            other.project("p").add(entry.content, importance=entry.importance, keywords=entry.keywords)
        return told(other, query)


def test_it_finds_what_a_memory_finds_that_was_written_with_the_embedder(held: Held) -> None:
    memory = held.memory
    fill(memory)
    before = told(memory)
    head = memory.head
    done = memory.reembed(Letters())
    assert done == Reembedded("letters", 9, projects=2, vectors=25)
    assert told(memory) == told_anew(memory, Letters()) != before
    assert memory.project("p").search_episodes("cab")[0].parts["cosine"] > 0
    assert memory.project("p").add("a new one").seq == memory.head
    kinds = [type(recorded.event) for recorded in memory.events(after=head)]
    assert kinds[:-1] == [VectorRenewed] * 25 + [EmbedderSwitched] * 2
    assert told(memory.at(head)) == before


def test_nothing_is_seen_of_it_before_all_of_it_is_there(memory: Memory) -> None:
    fill(memory, 2 * REEMBEDDED_PAGE_COUNT)
    before, seen, done = told(memory), list[bool](), list[tuple[int, int]]()

    def progress(made: int, whole: int) -> None:
        done.append((made, whole))
        seen.append(told(memory) == before and memory.state_hash() == memory.replay_hash())

    memory.reembed(Letters(), progress=progress)
    assert seen == [True] * len(done)
    assert [made for made, _ in done] == sorted({made for made, _ in done})
    assert done[-1] == (2 * REEMBEDDED_PAGE_COUNT + 1,) * 2


def test_it_goes_on_where_it_was_stopped(held: Held) -> None:
    fill(held.memory, 3 * REEMBEDDED_PAGE_COUNT)
    before = told(held.memory)
    broken = Letters()
    broken.fails_at = REEMBEDDED_PAGE_COUNT
    with pytest.raises(ConnectionError):
        held.memory.reembed(broken)
    assert told(held.memory) == before
    waiting = held.memory.state_hash()
    memory = held.reopen()
    assert memory.state_hash() == waiting == memory.replay_hash()
    assert told(memory) == before
    whole = Letters()
    done = memory.reembed(whole)
    assert not {*broken.asked} & {*whole.asked}
    assert len(broken.asked) + len(whole.asked) == 3 * REEMBEDDED_PAGE_COUNT + 1
    assert done.vectors == len(whole.asked)
    assert told(memory) == told_anew(memory, Letters())


def test_one_that_was_begun_with_another_embedder_begins_anew(memory: Memory) -> None:
    fill(memory, 600)
    broken = Letters("xyz", "other")
    broken.fails_at = 1
    with pytest.raises(ConnectionError):
        memory.reembed(broken)
    assert memory.reembed(Letters()).vectors == 601
    assert told(memory) == told_anew(memory, Letters())


def test_what_changes_meanwhile_is_embedded_as_it_is_then(memory: Memory) -> None:
    fill(memory)
    project = memory.project("p")
    first, second, third, *_ = project.list()
    calls: list[int] = []

    def progress(made: int, _: int) -> None:
        if not calls:
            project.update(first, content="hag hag hag")
            project.delete(second)
            project.upsert("a cab, again", threshold=0.99)
            project.update(third, importance=0.9)
        calls.append(made)

    letters = Letters()
    memory.reembed(letters, progress=progress)
    assert {"hag hag hag", "a cab, again"} <= {*letters.asked}
    assert len(letters.asked) == len({*letters.asked}) == 27
    assert told(memory) == told_anew(memory, Letters())
    assert told(memory, "hag") == told_anew(memory, Letters(), "hag")


def test_a_merge_of_before_is_taken_apart_with_vectors_of_today(memory: Memory) -> None:
    project = memory.project("p")
    kept = project.add("a bad cab")
    merged = project.upsert("a bad cab ahead", threshold=0.5)
    other = project.upsert("a bad bag", threshold=0.3)
    assert [merged.outcome, other.outcome] == ["merged", "merged"]
    memory.reembed(Letters())
    back = project.unmerge(other)
    assert [entry.content for entry in back] == ["a bad cab ahead", "a bad bag"]
    assert back == [project.get(entry.id) for entry in back]
    back = project.unmerge(merged, request_id="once")
    assert [entry.id for entry in project.unmerge(merged, request_id="once")] == [kept.id, back[1].id]
    assert [entry.content for entry in project.list()] == ["a bad cab", "a bad bag", "a bad cab ahead"]
    assert sorted(told(memory)) == sorted(told_anew(memory, Letters()))
    with pytest.raises(InvalidInput):
        project.unmerge(merged)


def test_a_merge_of_before_needs_the_embedder_of_today(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.project("p").add("a bad cab")
        merged = memory.project("p").upsert("a bad cab ahead", threshold=0.5)
        memory.reembed(Letters())
    with Memory(tmp_path / "store") as memory:
        head = memory.head
        with pytest.raises(EmbeddingMismatch, match="letters"):
            memory.project("p").unmerge(merged)
        assert memory.head == head


def test_a_merge_whose_memory_is_gone_is_not_embedded(memory: Memory) -> None:
    project = memory.project("p")
    kept = project.add("a bad cab")
    merged = project.upsert("a bad cab ahead", threshold=0.5)
    letters = Letters()
    memory.reembed(letters)
    project.delete(kept)
    asked = list(letters.asked)
    with pytest.raises(NotFound, match="not there any more"):
        project.unmerge(merged)
    assert letters.asked == asked


def test_merging_goes_on_with_the_new_embedder(memory: Memory) -> None:
    project = memory.project("p")
    project.add("cab cab")
    project.add("cabcab, he said", importance=0.9)
    memory.reembed(Letters())
    assert project.upsert("bac bac").outcome == "merged"
    assert project.compact(0.8).merged == 1
    assert [entry.content for entry in project.list()] == ["cabcab, he said | cab cab | bac bac"]


def test_vectors_that_were_given_are_made_anew_too(memory: Memory) -> None:
    project = memory.project("p")
    project.add("cab", vector=[1.0, 0.0])
    project.add("bead", vector=[0.0, 1.0])
    assert memory.reembed(Letters()).vectors == 2
    assert told(memory) == told_anew(memory, Letters())
    with pytest.raises(EmbeddingMismatch):
        project.search("", vector=[1.0, 0.0])


def test_where_nothing_is_to_be_done_nothing_is_written(memory: Memory) -> None:
    assert memory.reembed(Letters()) == Reembedded("letters", 9)
    fill(memory)
    head = memory.head
    letters = Letters()
    assert memory.reembed(letters) == Reembedded("letters", 9)
    assert (memory.head, letters.asked) == (head, [])
    assert memory.reembed() == Reembedded("letters", 9)
    assert memory.reembed(HashedEmbedder()).vectors == 25
    assert told(memory) == told_anew(memory, None)


def test_what_cannot_be_embedded_anew_says_why(memory: Memory, tmp_path: Path) -> None:
    fill(memory)
    head = memory.head
    with pytest.raises(ReadOnly):
        memory.at(head).reembed(Letters())
    with pytest.raises(InvalidInput, match="batch"), memory.batch():
        memory.reembed(Letters())
    with pytest.raises(InvalidInput, match="embedder"):
        memory.reembed("letters")  # type: ignore[arg-type]
    assert memory.head == head
    with Memory(tmp_path / "kept") as kept:
        fill(kept)
    with Memory(tmp_path / "kept", readonly=True) as kept, pytest.raises(ReadOnly):
        kept.reembed(Letters())


def test_an_earlier_seq_is_searched_with_the_embedder_of_then(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        fill(memory)
        head, before = memory.head, told(memory)
        memory.reembed(Letters())
    with Memory(tmp_path / "store", embedder=Letters()) as memory:
        assert told(memory) == told_anew(memory, Letters())
        with pytest.raises(EmbeddingMismatch, match="refold-hash-1"):
            told(memory.at(head))
    with Memory(tmp_path / "store") as memory:
        assert told(memory.at(head)) == before
        with pytest.raises(EmbeddingMismatch, match="letters"):
            memory.project("p").add("one more")


def test_forks_keep_their_own_embedder(held: Held) -> None:
    memory = held.memory
    fill(memory)
    before = told(memory)
    early = memory.fork("early")
    memory.reembed(Letters())
    after = told(memory)
    assert told(early) == before
    late = memory.fork("late")
    assert told(late) == after != before
    late.reembed(Letters("ab", "few"))
    assert told(late) not in (before, after)
    assert (told(memory), told(memory.fork("early"))) == (after, before)
    early.reembed(Letters())
    assert told(early) == after
    assert told(late.fork("later")) == told(late)
    memory.project("p").add("cab of the main line")
    early.project("p").add("cab of the fork")


def test_a_restore_brings_the_vectors_of_then_back(memory: Memory) -> None:
    fill(memory)
    before = told(memory)
    whole = memory.snapshot("before")
    memory.reembed(Letters())
    after = told(memory)
    memory.restore(whole)
    with pytest.raises(EmbeddingMismatch):
        told(memory)
    assert memory.reembed(Letters()).vectors == 25
    assert told(memory) == after != before


def test_erasing_a_text_erases_the_vectors_that_were_made_of_it(tmp_path: Path) -> None:
    letters = Letters("abcdefghijklmnop")
    path = tmp_path / "store"
    with Memory(path) as memory:
        project = memory.project("p")
        secret = project.add("cab fab hag bead")
        given = project.add("feed me, please", vector=HashedEmbedder().embed(["feed"])[0])
        changed = project.update(given, vector=HashedEmbedder().embed(["more"])[0])
        project.add("nobody minds")
        memory.reembed(letters)
        packed = vectors_of(memory)
        assert len(packed) == 3
        receipt = memory.erase([secret.seq, given.seq])
        assert set(receipt.derived) >= {recorded.stamp.seq for recorded in renewed(memory)[:2]}
        assert changed.id not in [entry.id for entry in project.list()]
        assert memory.state_hash() == memory.replay_hash()
        assert memory.verify().ok
    content = b"".join(file.read_bytes() for file in path.rglob("*") if file.is_file())
    assert [vector in content for vector in packed] == [False, False, True]


def renewed(memory: Memory) -> list[Any]:
    return [recorded for recorded in memory.events() if isinstance(recorded.event, VectorRenewed)]


def vectors_of(memory: Memory) -> list[bytes]:
    return [recorded.event.vector for recorded in renewed(memory)]


def test_a_text_that_is_erased_while_it_is_embedded_gets_no_vector(memory: Memory) -> None:
    kept, gone = memory.add("a cab"), memory.add("a dead bee")
    letters = Letters()
    embed = letters.embed

    def erased_first(texts: list[str]) -> list[list[float]]:
        letters.embed = embed  # type: ignore[method-assign]
        elsewhere(lambda: memory.erase([gone]))
        return embed(texts)

    letters.embed = erased_first  # type: ignore[method-assign]
    assert memory.reembed(letters).vectors == 1
    events = [event for event, _ in memory.events() if isinstance(event, VectorRenewed)]
    assert [event.id for event in events] == [kept.id]


def test_a_memory_whose_vector_was_erased_is_found_by_its_words_and_gets_another(held: Held) -> None:
    memory = held.memory
    fill(memory)
    memory.reembed(Letters())
    whole = told(memory, "cab number")
    gone = {recorded.event.id: recorded.stamp.seq for recorded in renewed(memory)}
    entry = memory.project("p").search("cab number", now=0)[0].entry
    episode = memory.project("p").search_episodes("fare")[0].entry
    memory.erase([gone[entry.id], gone[episode.id]])
    found = memory.project("p").search("cab number", now=0, top_k=30, ranking="seed")
    (hit,) = [hit for hit in found if hit.entry.id == entry.id]
    assert (hit.parts["cosine"], hit.parts["keywords"] > 0) == (0.0, True)
    assert memory.project("p").search_episodes("fare")[0].parts["cosine"] == 0.0
    assert memory.project("p").upsert("cab number and so on", threshold=0.999).outcome == "inserted"
    memory.project("p").delete(memory.project("p").list()[-1])
    memory = held.reopen()
    assert memory.reembed(Letters()).vectors == 2
    assert told(memory, "cab number") == whole


def test_a_merge_that_was_erased_leaves_the_memory_without_a_vector(memory: Memory) -> None:
    project = memory.project("p")
    project.add("a bad cab")
    merged = project.upsert("a bad cab ahead", threshold=0.5)
    memory.reembed(Letters())
    memory.erase([merged.seq])
    (entry,) = project.list()
    assert (entry.content, entry.vector_seq) == ("a bad cab", 0)
    assert memory.reembed().vectors == 1
    assert told(memory) == told_anew(memory, Letters())


def test_it_goes_out_and_in_with_an_export(memory: Memory, tmp_path: Path) -> None:
    fill(memory, 600)
    broken = Letters()
    broken.fails_at = 300
    with pytest.raises(ConnectionError):
        memory.reembed(broken)
    memory.export(tmp_path / "export.jsonl")
    with Memory() as other:
        other.profile().set("k", "v")
        other.load(tmp_path / "export.jsonl", rename={"project/p": "project/r"})
        assert other.reembed(Letters()).vectors < 601
        assert told(other, name="r") == told_anew_of(memory)
        assert other.state_hash() == other.replay_hash()


def told_anew_of(memory: Memory) -> list[tuple[str, float]]:
    return told_anew(memory, Letters())


def test_rows_that_are_filled_while_the_embedder_changes_are_those_of_their_state(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(memory)
    fill_rows, waiting = Indexes.fill, [Letters()]

    def fill_late(self: Indexes, request: FillRequest) -> None:
        if waiting:
            memory.reembed(waiting.pop())
        fill_rows(self, request)

    monkeypatch.setattr(Indexes, "fill", fill_late)
    assert told(memory, "bead") == told_anew(memory, Letters(), "bead")


def test_others_read_and_write_meanwhile(memory: Memory) -> None:
    fill(memory, 200)
    errors, is_over = list[BaseException](), threading.Event()

    def work(number: int) -> None:
        try:
            turn = 0
            while not is_over.is_set() or turn < 5:
                turn += 1
                project = memory.project("p")
                project.upsert(f"cab of thread {number}, turn {turn}", threshold=0.9999)
                project.search("cab", now=0)
                project.search_episodes("cab")
        except BaseException as error:  # noqa: BLE001 - it is raised below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(3):
            memory.reembed(Letters("abcdefgh"[number:], f"letters {number}"))
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert errors == []
    last = Letters("abcdefgh"[2:], "letters 2")
    assert memory.reembed(last).vectors == 0
    assert sorted(told(memory, "bead")) == sorted(told_anew(memory, last, "bead"))


def test_it_can_be_awaited() -> None:
    async def work() -> None:
        async with Memory().aio as memory:
            await memory.project("p").add("cab")
            assert (await memory.reembed(Letters())).vectors == 1
            assert len(await memory.project("p").search("cab")) == 1
            with pytest.raises(NotFound):
                await memory.project("p").delete("nobody")

    asyncio.run(work())


def test_an_earlier_seq_is_searched_with_a_vector_of_then(tmp_path: Path) -> None:
    (vector,) = HashedEmbedder().embed(["cab"])
    with Memory(tmp_path / "store") as memory:
        fill(memory)
        head, before = memory.head, [hit.entry.id for hit in memory.project("p").search("cab", now=0)]
    with Memory(tmp_path / "store", embedder=Letters()) as memory:
        live = memory.project("p").search("cab", vector=vector, now=0, floor=0)
        memory.reembed()
        past = memory.at(head).project("p")
        assert [hit.entry.id for hit in past.search("cab", vector=vector, now=0, floor=0)][: len(before)] == before
        assert live.hits == past.search("cab", vector=vector, now=0, floor=0).hits
        assert past.search_episodes("cab", vector=vector, floor=0)
        for stale in (past.search, memory.project("p").search):
            with pytest.raises(EmbeddingMismatch, match="3 numbers"):
                stale("cab", vector=[1.0, 2.0, 3.0])
