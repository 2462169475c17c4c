"""Blame: every value of every kind of key, by whom and in which turn; and the writer of each line of a file."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from refold import InvalidInput, Memory, NotFound
from refold.engine.streams import records_of
from tests.support.steps import steps_of


def values(found: Any) -> list[Any]:
    return [("removed" if each.removed else each.value) for each in found]


class TestKeys:
    def test_every_value_with_its_writer_and_its_turn(self, memory: Memory) -> None:
        chat = memory.conversation("c")
        asked = chat.append("user", "set my port")
        with memory.acting("tool:memory_write", cause=asked):
            chat.scratchpad.set("port", "6543")
        chat.append("user", "another one")
        again = chat.append("user", "and again")
        chat.scratchpad.set("port", "6544")
        chat.scratchpad.delete("port")
        chat.scratchpad.set("port", "6545")
        found = chat.scratchpad.blame("port")
        assert values(found) == ["6543", "6544", "removed", "6545"]
        assert [(each.actor, each.cause, each.turn) for each in found[:2]] == [
            ("tool:memory_write", asked.seq, asked.seq),
            ("host", 0, again.seq),
        ]
        assert memory.blame("port", conversation="c") == found
        assert memory.blame("port", conversation=chat, of="scratchpad") == found
        assert chat.scratchpad.blame("never") == []

    def test_what_clears_and_what_restores_is_part_of_it(self, memory: Memory) -> None:
        chat = memory.conversation("c")
        chat.state["temp:step"] = 1
        held = chat.snapshot("held")
        chat.state["temp:step"] = 2
        chat.end_round()
        chat.restore(held)
        chat.state["temp:step"] = 3
        assert values(chat.state.blame("temp:step")) == [1, 2, "removed", 1, 3]
        chat.scratchpad.set("a", "1")
        chat.end()
        assert [each.kind for each in chat.scratchpad.blame("a")] == ["scratchpad_set", "conversation_ended"]

    def test_a_value_may_come_back_between_its_deletion_and_its_end(self, memory: Memory) -> None:
        chat = memory.conversation("c")
        chat.scratchpad.set("a", "1")
        held = chat.snapshot("held")
        chat.scratchpad.delete("a")
        chat.restore(held)
        chat.end()
        found = chat.scratchpad.blame("a")
        assert values(found) == ["1", "removed", "1", "removed"]
        assert [each.kind for each in found[2:]] == ["restored", "conversation_ended"]
        assert [step.relation for step in memory.why(2).steps] == ["came", "left", "returned", "left"]

    def test_a_fork_inherits_the_values_of_its_origin(self, memory: Memory) -> None:
        chat = memory.conversation("c")
        chat.scratchpad.set("a", "1")
        fork = chat.fork("d")
        chat.scratchpad.set("a", "not of the fork")
        fork.scratchpad.set("a", "2")
        assert values(fork.scratchpad.blame("a")) == ["1", "2"]

    def test_a_fork_inherits_what_a_restore_of_its_origin_brought_back(self, memory: Memory) -> None:
        chat = memory.conversation("a")
        chat.scratchpad.set("port", "1")
        first = memory.head
        chat.snapshot("held")
        turn = chat.append("user", "set 2").seq
        chat.scratchpad.set("port", "2")
        second = memory.head
        chat.restore("held")
        back = memory.head
        chat.append("user", "later")
        chat.scratchpad.clear()
        cleared = memory.head
        chat.restore("held")
        again = memory.head
        chat.append("user", "and later")
        fork = chat.fork("f")
        own = fork.fork("g")
        chat.scratchpad.set("port", "3")
        told = [(first, "1"), (second, "2"), (back, "1"), (cleared, None), (again, "1")]
        for each in (fork, own):
            revisions = each.scratchpad.blame("port")
            assert [(revision.seq, revision.value) for revision in revisions] == told
            assert (revisions[2].turn, revisions[2].kind, revisions[2].stream) == (turn, "restored", "conversation/a")
            assert memory.why("port", conversation=each.id).steps[-1].seq == again
        own.scratchpad.set("port", "4")
        assert [revision.seq for revision in own.scratchpad.blame("port")][-2:] == [again, memory.head]

    def test_profile_settings_state_of_a_project_and_board(self, memory: Memory) -> None:
        memory.profile().set("theme", "dark")
        memory.profile().delete("theme")
        memory.profile().set("theme", "light")
        assert values(memory.profile().blame("theme")) == values(memory.blame("theme")) == ["dark", "removed", "light"]
        memory.settings.set("memory_max_injected", 5)
        memory.settings.set("memory_max_injected", 6)
        assert values(memory.settings.blame("memory_max_injected")) == values(memory.blame("memory_max_injected"))
        assert values(memory.blame("memory_max_injected")) == [5, 6]
        chat = memory.conversation("c", project="p")
        chat.state["project:language"] = "Python"
        chat.state["project:language"] = "C"
        assert values(chat.state.blame("project:language")) == ["Python", "C"]
        board = memory.board(session="c")
        board.set_working_history("one")
        board.set_working_history("two")
        assert values(board.blame("working_history")) == ["one", "two"]
        assert values(memory.blame("working_history", conversation="c")) == ["one", "two"]

    def test_messages_that_were_put_on_a_board_are_what_its_part_got(self, memory: Memory) -> None:
        asked = memory.conversation("c").append("user", "put it on the board")
        board = memory.board(session="c")
        with memory.acting("tool:board", cause=asked):
            board.append_message({"id": "1", "content": "one"})
        board.set_working_history("beside them")
        board.append_message({"id": "2", "content": "two"})
        board.append_message({"id": "1", "content": "one, again"})
        found = board.blame("messages")
        assert [each.value["content"] for each in found] == ["one", "two", "one, again"]
        assert [(each.kind, each.actor, each.turn) for each in found[:2]] == [
            ("board_message_appended", "tool:board", asked.seq),
            ("board_message_appended", "host", 0),
        ]
        assert memory.blame("messages", conversation="c") == found
        board.set_messages([{"id": "3", "content": "three"}])
        memory.erase([found[1].seq])
        board.append_message({"id": "4", "content": "four"})
        kinds = [(each.kind, each.erased) for each in board.blame("messages")]
        appended = "board_message_appended"
        assert kinds == [
            *((appended, is_erased) for is_erased in (False, True, False)),
            ("board_changed", False),
            (appended, False),
        ]

    def test_messages_of_another_node_are_told_too(self, memory: Memory) -> None:
        board = memory.board(session="c")
        board.initialise(project_id="p", active_node_id="first")
        board.append_message({"content": "of the first"})
        board.set_session({"active_node_id": "second"})
        board.append_message({"content": "of the second"})
        found = board.blame("messages")
        assert [each.value["content"] for each in found] == ["of the first", "of the second"]
        assert len({each.key for each in found}) == 2

    def test_the_past_knows_no_later_values_and_an_erased_one_is_told_without_its_text(self, memory: Memory) -> None:
        profile = memory.profile()
        for value in ("a", "b", "c"):
            profile.set("key", value)
        assert values(memory.at(2).profile().blame("key")) == ["a", "b"]
        chat = memory.conversation("c")
        for value in ("a", "b", "c"):
            chat.scratchpad.set("key", value)
        middle = memory.head - 1
        memory.erase([middle])
        found = chat.scratchpad.blame("key")
        assert [(each.value, each.erased) for each in found] == [("a", False), (None, True), ("c", False)]

    def test_nonsense_is_refused(self, memory: Memory) -> None:
        memory.conversation("c").append("user", "hello")
        with pytest.raises(InvalidInput, match="needs a conversation"):
            memory.blame("a", of="scratchpad")
        with pytest.raises(InvalidInput, match="belongs to no conversation"):
            memory.blame("a", of="profile", conversation="c")
        with pytest.raises(InvalidInput):
            memory.blame("")
        assert memory.blame("a") == memory.blame("a", conversation="c") == []
        with pytest.raises(NotFound):
            memory.blame("/memories/none.md")


class TestFiles:
    def test_each_line_has_its_writer_and_a_line_its_history(self, memory: Memory) -> None:
        files = memory.files()
        files.create("/memories/a.md", "one\ntwo\nthree\n")
        with memory.acting("tool:memory"):
            files.str_replace("/memories/a.md", "two", "zwei")
            files.insert("/memories/a.md", 3, "four\n")
        files.str_replace("/memories/a.md", "zwei", "deux")
        found = files.blame("/memories/a.md")
        assert [(each.key, each.value, each.seq) for each in found] == [
            ("1", "one", 1),
            ("2", "deux", memory.head),
            ("3", "three", 1),
            ("4", "four", memory.head - 1),
        ]
        line = files.blame("/memories/a.md", line=2)
        assert values(line) == ["two", "zwei", "deux"]
        assert [each.actor for each in line] == ["host", "tool:memory", "host"]
        assert memory.blame("/memories/a.md", line=2) == line
        with pytest.raises(InvalidInput):
            files.blame("/memories/a.md", line=5)


def test_each_line_of_a_learned_skill_has_its_writer(memory: Memory) -> None:
    library = memory.skills.library
    library.learn("deploy", "Deploy the service.", "Build it.\nTest it.\nShip it.")
    first = memory.head
    with memory.acting("tool:edit"):
        library.refine("deploy", body="Build it.\nTest it twice.\nShip it.")
    refined = next(r.stamp.seq for r in memory.events() if type(r.event).__name__ == "SkillRefined")
    lines = memory.blame("deploy", of="skill")
    assert [(each.value, each.seq, each.actor) for each in lines] == [
        ("Build it.", first, "host"),
        ("Test it twice.", refined, "tool:edit"),
        ("Ship it.", first, "host"),
    ]
    assert values(memory.blame("deploy", line=2)) == ["Test it.", "Test it twice."]
    assert values(memory.at(first).blame("deploy", line=2)) == ["Test it."]
    assert memory.blame("deploy", of="skill", name="other") == memory.blame("nowhere", of="skill") == []


def test_what_was_never_taken_away_is_found_by_its_pointers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    chat = memory.conversation("c")
    for value in ("a", "b", "c"):
        chat.scratchpad.set("port", value)
        chat.state.set("port", value)
    with monkeypatch.context() as patched:
        patched.setattr("refold.memory.blame.origins", None)  # What would be scanned.
        assert values(chat.scratchpad.blame("port")) == values(chat.state.blame("port")) == ["a", "b", "c"]
        assert chat.scratchpad.blame("never") == []
    chat.scratchpad.delete("port")
    chat.scratchpad.set("port", "d")
    assert values(chat.scratchpad.blame("port")) == ["a", "b", "c", "removed", "d"]


def test_what_was_removed_is_sought_where_its_conversation_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory(tmp_path / "store") as memory:
        for name in ("a", "b", "c", "d"):
            chat = memory.conversation(name)
            with memory.batch():
                for number in range(2_000):
                    chat.append("user", f"message {number}")
                chat.scratchpad.set("port", name)
                chat.scratchpad.delete("port")
        memory.conversation("b").scratchpad.set("port", "again")
        read: list[int] = []

        def counted(*given: Any) -> Any:
            for record in records_of(*given):
                read.append(record.count)
                yield record

        monkeypatch.setattr("refold.engine.scan.records_of", counted)
        assert values(memory.conversation("b").scratchpad.blame("port")) == ["b", "removed", "again"]
        assert 0 < sum(read) < 2 * 2_002, "of four conversations, one was read, and no other but at its ends"


def test_values_in_a_row_are_led_back_to_their_turn_once() -> None:
    steps = list[int]()
    for count in (100, 400):
        with Memory() as memory:
            chat = memory.conversation("c")
            turn = chat.append("user", "Count.").seq
            for number in range(count):
                chat.scratchpad.set("number", str(number))
            assert {revision.turn for revision in chat.scratchpad.blame("number")} == {turn}
            steps.append(steps_of(partial(chat.scratchpad.blame, "number")))
    assert steps[1] < 1.3 * 400 / 100 * steps[0]


def test_a_file_that_is_gone_has_its_writers_and_who_removed_it(memory: Memory) -> None:
    files = memory.files()
    files.create("/memories/trip/plan.md", "Fly to Oslo.\nStay.\n")
    files.rename("/memories/trip", "/memories/travel")
    with memory.acting("user"):
        files.delete("/memories/travel")
    found = memory.blame("/memories/travel/plan.md")
    assert values(found) == ["Fly to Oslo.", "Stay.", "removed"]
    assert (found[-1].seq, found[-1].actor, found[-1].kind) == (3, "user", "file_deleted")
    assert values(memory.blame("/memories/trip/plan.md")) == ["Fly to Oslo.", "Stay.", "removed"]
    with pytest.raises(NotFound):
        memory.blame("/memories/trip/another.md")
    files.create("/memories/travel/plan.md", "Stay at home.\n")
    assert values(memory.blame("/memories/travel/plan.md")) == ["Stay at home."]
