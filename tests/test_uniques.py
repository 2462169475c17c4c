"""README's table of what only one log for everything gives: each row has a test of its name here, which does it."""

import re
from pathlib import Path

from refold import Memory
from refold.agent.lessons import parse_lessons

ROOT = Path(__file__).parent.parent
HEADING = "All of this follows from having one log"


def rows() -> list[str]:
    """The names in the first column of the table."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    return [match[1] for match in re.finditer(r"^\| ([a-z][^|]*?) \|", text, re.MULTILINE)][1:]


def test_each_row_of_the_table_has_a_test_of_its_name_and_each_test_a_row() -> None:
    tests = {name for name in globals() if name.startswith("test_") and not name.startswith("test_each_row")}
    assert {f"test_{name.replace(' ', '_')}" for name in rows()} == tests
    assert len(rows()) >= 9


def test_why(memory: Memory) -> None:
    chat = memory.conversation("c", window_tokens=20)
    lost = chat.append("user", "Order 5512.", tokens=15)
    pusher = chat.append("user", "Where is it?", tokens=15)
    (left,) = memory.why("5512").of("left")
    assert left.seq == pusher.seq
    assert "15 of 20" in left.text
    assert memory.why(lost).of("left") == (left,)


def test_blame(memory: Memory) -> None:
    chat = memory.conversation("c")
    asked = chat.append("user", "call me Ada")
    with memory.acting("tool:memory_set", cause=asked):
        memory.profile().set("name", "Ada")
    memory.profile().set("name", "Grace")
    assert [(each.value, each.actor, each.turn) for each in memory.blame("name")] == [
        ("Ada", "tool:memory_set", asked.seq),
        ("Grace", "host", 0),
    ]


def test_bisect(memory: Memory) -> None:
    for city in ("Oslo", "Paris", "Berlin", "Berlin 2"):
        memory.profile().set("city", city)
    found = memory.bisect(lambda then: str(then.profile().get("city")).startswith("Berlin"))
    assert found is not None
    assert found.stamp.seq == 3


def test_influence(memory: Memory) -> None:
    chat = memory.conversation("c")
    told = chat.append("user", "The port is 6543.")
    answer = chat.append("assistant", "I open 6543.")
    assert [(turn.answer, "6543" in turn.text) for turn in memory.influence(told).turns] == [(answer.seq, True)]


def test_unmerge(memory: Memory) -> None:
    project = memory.project("p")
    first = project.add("the port is open", vector=[1.0, 0.0])
    merged = project.upsert("the port is open at night", vector=[1.0, 0.01])
    assert merged.outcome == "merged"
    project.unmerge(merged)
    assert sorted(str(entry.content) for entry in project.list()) == ["the port is open", "the port is open at night"]
    kept = project.get(first.id)
    assert kept is not None
    assert kept.content == "the port is open"


def test_echo_guard() -> None:
    answer = {"memories": [{"content": "The deploy key is rotated on Mondays.", "category": "fact", "importance": 0.5}]}
    assert len(parse_lessons(answer).items) == 1
    shown = {"memory": "The deploy key is rotated on Mondays"}
    assert not parse_lessons(answer, echoes=shown).items


def test_one_cut(memory: Memory) -> None:
    memory.conversation("c").append("user", "the old port")
    memory.profile().set("port", "old")
    memory.project("p").add("the old port is 1")
    seq = memory.head
    memory.profile().set("port", "new")
    memory.project("p").clear()
    then = memory.at(seq)
    assert then.profile().get("port") == "old"
    assert [hit.entry.content for hit in then.project("p").search("old port")] == ["the old port is 1"]
    assert memory.fork("f", at=seq).state_hash() == memory.state_hash(at=seq)


def test_exact_reconstruction(memory: Memory) -> None:
    chat = memory.conversation("c")
    chat.append("user", "which port?")
    memory.project().add("the port is 6543")
    shown = memory.context(chat, query="which port")
    seq = memory.show(shown)
    memory.project().clear()
    rebuilt = memory.rebuild(seq)
    assert rebuilt.matches
    assert rebuilt.context.text == shown.text


def test_erasure_with_receipt(memory: Memory) -> None:
    chat = memory.conversation("c", window_tokens=100)
    secret = chat.append("user", "my card is 4111 1111 1111 1111", tokens=9)
    chat.append("assistant", "noted", tokens=1)
    chat.append("assistant", "anything else?", tokens=2)
    receipt = memory.erase([secret])
    assert (receipt.occurrences, receipt.turns, receipt.conversations) == (0, 2, 1)
    assert memory.verify().ok
