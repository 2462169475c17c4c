"""What two memories disagreed about that were driven alike: small promises of verbs, each by an example."""

import threading

import pytest

from refold import InvalidInput, Memory


def test_recent_notes_end_today() -> None:
    journal = Memory().journal()
    journal.append("of today")
    journal.append("of a day to come", day="9000-01-01")
    assert [note.text for note in journal.recent(3)] == ["of today"]
    assert [note.text for note in journal.day("9000-01-01")] == ["of a day to come"]


def test_a_batch_that_sets_a_state_of_the_project_has_not_read_the_conversation() -> None:
    memory = Memory()
    chat = memory.conversation("c", project="p")
    chat.append("user", "first")
    with memory.batch():
        chat.state.set("project:language", "Python")
        beside = threading.Thread(target=lambda: memory.conversation("c").append("user", "beside"))
        beside.start()
        beside.join()
    assert chat.state["project:language"] == "Python"
    assert len(chat.window()) == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (0.0, -0.0),
        ([1, 0.0], [1, -0.0]),
        ({"x": 1, "y": 2}, {"y": 2, "x": 1}),
        ([{"x": {}, "y": 1}], [{"y": 1, "x": {}}]),
    ],
)
def test_states_with_different_hashes_have_a_difference(before: object, after: object) -> None:
    memory = Memory()
    state = memory.conversation("c").state
    state["value"] = before
    head = memory.head
    state["value"] = after
    assert memory.at(head).state_hash() != memory.state_hash()
    (change,) = memory.diff(head, memory.head)
    assert change.path[0] == "value"
    assert memory.diff(head, head) == []


def test_facts_in_another_order_are_a_difference() -> None:
    one, other = Memory(), Memory()
    for memory, keys in ((one, "ab"), (other, "ba")):
        for key in keys:
            memory.profile().set(key, "value")
    assert one.state_hash() != other.state_hash()
    memory = Memory()
    memory.conversation("c").scratchpad.set("b", "1")
    memory.conversation("c").scratchpad.set("a", "1")
    fork = memory.conversation("c").fork("d")
    assert memory.diff(memory.conversation("c"), fork) == []


def test_who_may_not_erase_beside_forks_is_told_what_to_do() -> None:
    memory = Memory()
    memory.project("p").add("a fact")
    memory.fork("one")
    with pytest.raises(InvalidInput, match=r"in the fork 'one' of the memory goes on from project/p; erase them too"):
        memory.project("p").erase()
    chat = memory.conversation("c")
    chat.append("user", "hello")
    for name in ("d", "e"):
        chat.fork(name).append("user", "more")
    with pytest.raises(InvalidInput, match=r"and 1 more go on from conversation/c; drop .*close\(drop=True\), or"):
        chat.erase()
    memory.project("p").erase(forks="erase")


def test_a_restore_of_the_whole_leaves_settings_as_they_are() -> None:
    memory = Memory()
    memory.profile().set("theme", "dark")
    before = memory.snapshot("before")
    memory.settings.set("memory_enabled", value=False)
    memory.profile().set("theme", "light")
    memory.restore("before")
    assert memory.profile().get("theme") == "dark"
    assert memory.settings.get("memory_enabled") is False
    assert memory.at(before.seq).settings.get("memory_enabled") is True
    assert memory.diff(before, memory) == []
    assert memory.fork("now").settings.get("memory_enabled") is False
    assert memory.fork("then", at=before.seq).settings.get("memory_enabled") is True


def test_a_side_that_is_none_is_named_as_it_is_called(memory: Memory) -> None:
    for arguments, name in ((("a", "b"), "a"), ((0, "b"), "b")):
        with pytest.raises(InvalidInput, match=f"{name} is '{arguments[-1] if name == 'b' else 'a'}'; give a seq, "):
            memory.diff(*arguments)
    with pytest.raises(InvalidInput, match="until must be a seq or an aware datetime"):
        list(memory.events(until="now"))  # type: ignore[arg-type]
