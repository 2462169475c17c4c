"""A result of another memory is refused wherever a result stands for its seq, which is of something else here."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from refold import InvalidInput, Memory, Snapshot
from tests.support.memories import Clock, assert_sound, refused


def fill(memory: Memory, word: str) -> dict[str, Any]:
    """Write the same events to every memory, with other words; return a result of each kind."""
    chat, project = memory.conversation("chat", window_tokens=30, eviction="summary"), memory.project("p")
    said = [chat.append("user", f"{word} {number}", tokens=10) for number in range(5)]
    summary = chat.summarize(lambda *_: f"all of {word}")
    entry = project.add(f"the {word} fact", vector=[1.0, 0.0])
    merged = project.upsert(f"the {word} fact, again", vector=[1.0, 0.0])
    assert merged.outcome == "merged", merged
    memory.profile().set("name", word)
    memory.table("t").put("one", word)
    return {
        "message": said[2],
        "summary": summary,
        "recorded": memory.event(said[2].seq),
        "stamp": memory.event(said[2].seq).stamp,
        "step": list(chat.replay())[3],
        "plain event": memory.event(memory.head - 1),
        "memory": entry,
        "merged": merged.entry,
        "hit": project.search(word, vector=[1.0, 0.0], floor=0.0)[0],
        "upserted": merged,
        "episode": project.record_episode("success", task=f"ask {word}"),
        "skill": memory.skills.library.learn("notes", f"Write to {word}.", "Write.\n"),
        "item": memory.table("t").item("one"),
    }


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Memory, dict[str, Any], dict[str, Any]]]:
    """A memory, a result of each kind of another one, and its own."""
    with Memory(clock_ns=Clock()) as other, Memory(tmp_path / "s", clock_ns=Clock(5)) as memory:
        foreign, own = fill(other, "alice"), fill(memory, "bob")
        assert [each.seq for each in map(bare, own.values())] == [each.seq for each in map(bare, foreign.values())]
        yield memory, foreign, own
        assert_sound(memory)


def bare(result: Any) -> Any:
    """What has the seq of a result."""
    return getattr(getattr(result, "entry", result), "stamp", getattr(result, "entry", result))


def _act(memory: Memory, result: Any) -> None:
    with memory.acting("tool", cause=result):
        memory.profile().set("acted", "yes")


SEQS = ("message", "summary", "recorded", "stamp", "step", "plain event", "memory", "merged")
"""The results that stand for a seq in sources and erasures."""

VERBS: dict[str, tuple[tuple[str, ...], Callable[[Memory, Any], Any]]] = {
    "sources": (SEQS, lambda memory, result: memory.profile().set("k", "v", sources=[1, result])),
    "source": (SEQS, lambda memory, result: memory.project("p").add("a fact", vector=[0.0, 1.0], source=result)),
    "cause": (SEQS, _act),
    "without": (SEQS, lambda memory, result: memory.what_if(without=[result])),
    "cite": (SEQS, lambda memory, result: memory.tools.context(memory.conversation("chat")).cite([result])),
    "why": (
        (*SEQS, "hit", "upserted", "episode", "skill", "item"),
        lambda memory, result: memory.why(result),
    ),
    "influence": ((*SEQS, "hit", "upserted", "episode", "skill", "item"), lambda memory, it: memory.influence(it)),
    "unmerge": (("upserted", "merged"), lambda memory, result: memory.project("p").unmerge(result)),
    "erase": (SEQS, lambda memory, result: memory.erase([result])),
}


@pytest.mark.parametrize(("verb", "kind"), [(verb, kind) for verb, (kinds, _) in VERBS.items() for kind in kinds])
def test_is_refused_and_one_of_this_memory_is_not(
    pair: tuple[Memory, dict[str, Any], dict[str, Any]], verb: str, kind: str
) -> None:
    memory, foreign, own = pair
    call = VERBS[verb][1]
    with refused(memory, InvalidInput, "another memory", str(bare(foreign[kind]).seq)):
        call(memory, foreign[kind])
    call(memory, own[kind])


def test_the_error_names_both() -> None:
    with Memory() as other, Memory() as memory:
        foreign = other.conversation("a").append("user", "said elsewhere")
        memory.conversation("b").append("user", "said here")
        with pytest.raises(InvalidInput, match=r"said elsewhere.*seq 2 of this one is message_appended in conver.*/b"):
            memory.erase([foreign])
        beyond = other.conversation("a").append("user", "said behind the end")
        with pytest.raises(InvalidInput, match=r"said behind the end.*another memory: this one ends at seq 2"):
            memory.erase([beyond])


def test_results_of_forks_branches_the_past_and_another_handle_are_of_this_memory(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with Memory(path) as memory:
        chat, project = memory.conversation("chat"), memory.project("p")
        said = chat.append("user", "hello")
        chat.replace(said, "hello there")
        entry = project.add("a fact", vector=[1.0, 0.0])
        changed = project.update(entry.id, content="another fact", vector=[1.0, 0.0])
        merged = project.upsert("another fact, again", vector=[1.0, 0.0])
        parted = project.unmerge(merged)
        branch = memory.fork("branch")
        imported = memory.conversation("imported")
        with Memory() as other:
            other.conversation("chat").append("user", "of a state")
            imported.restore(Snapshot.from_bytes(other.conversation("chat").snapshot().to_bytes()))
        with memory.batch():
            in_batch = chat.append("user", "in a batch")
            in_batch_entry = project.add("in a batch", vector=[0.0, 1.0], sources=[in_batch])
            chat.scratchpad.note("cites what the batch wrote", sources=[in_batch, in_batch_entry, said])
        results = [
            *chat.window(),
            *chat.at(said.seq).window(),
            *chat.fork("fork").window(),
            chat.fork("other fork").append("user", "in a fork"),
            *imported.window(),
            branch.conversation("chat").append("user", "in a branch"),
            *(entry, changed, merged.entry, *parted, in_batch, in_batch_entry),
            *branch.project("p").list(),
            *memory.events(),
            *branch.events(),
        ]
        memory.refresh()
        memory.conversation("chat-2").append("user", "goodbye")
        memory.conversation("chat-2").erase()
        with Memory(path, readonly=True) as reader:
            results += [*reader.conversation("chat").window(), *reader.events()]
        for result in results:
            memory.profile().set("k", str(result), sources=[result])
            branch.profile().set("k", str(result), sources=[result])
        assert memory.erase([said]).seqs == (said.seq,)
        for result in results:
            memory.profile().set("again", str(result), sources=[result])
        assert_sound(memory)
    with Memory(path) as memory:
        for result in results:
            memory.profile().set("reopened", str(result), sources=[result])
