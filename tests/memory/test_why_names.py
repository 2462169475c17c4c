"""Why, asked with a path or a name: the file that is there or was the last one there, the skill with all about it."""

import re

import pytest

from refold import Memory, NotFound
from tests.memory.test_why import told


def test_a_path_stands_for_the_file_that_is_there_or_was_the_last(memory: Memory) -> None:
    files = memory.files()
    files.create("/memories/trip/plan.md", "Fly to Oslo.\n")
    files.rename("/memories/trip", "/memories/travel")
    path = "/memories/travel/plan.md"
    assert (memory.why(path).is_there, told(memory.why(path))) == (True, [("came", 1), ("changed", 2)])
    files.delete(path)
    assert (memory.why(path).is_there, told(memory.why(path))[-1]) == (False, ("left", 3))
    assert memory.why("/memories/trip/plan.md").is_there is False
    assert memory.why(path, at=2).is_there is True


def test_the_name_of_a_skill_stands_for_the_skill_and_its_note(memory: Memory) -> None:
    library = memory.skills.library
    library.learn("deploy", "How to deploy.", "Run make deploy.", status="active")
    library.note("deploy", "Never on Friday.")
    assert told(memory.why("deploy")) == [("came", 1), ("came", 2)]
    library.delete("deploy")
    assert told(memory.why("deploy")) == [("came", 1), ("left", 3), ("came", 2)]


def test_a_text_that_only_the_names_of_streams_hold_is_said_to_be_there(memory: Memory) -> None:
    for node in ("case-1", "case-2"):
        memory.board(project="shop/ada", node=node).set_working_history("done")
    memory.profile("ada").set("likes", "tea")
    text = "no event up to seq 3 holds {!r}; 0 erased events may have held it; {} of streams hold it, the first is {}"
    for sought, count, first in (("shop/ada", "2 names", "board/node/shop%2Fada/case-1"), ("ada", "3 names", "")):
        answer = memory.why(sought)
        assert answer.places == 0
        assert answer.steps[0].text.startswith(text.format(sought, count, first))


def test_a_conversation_that_never_began_is_said_to_be_unknown(memory: Memory) -> None:
    chat = memory.conversation("ada-1")
    chat.append("user", "My phone is broken.")
    memory.board(session="desk").set_working_history("The phone came back.")
    typo = re.escape("there is no conversation 'ada-01'; conversations() lists those there are")
    for then in (memory, memory.at(1)):
        for ask in (then.why, then.blame, then.influence):
            with pytest.raises(NotFound, match=typo):
                ask("phone", conversation="ada-01")
    assert memory.why("phone", conversation="ada-1").is_there
    assert memory.why("phone", conversation="desk").is_there
    assert memory.blame("working_history", conversation="desk")
    new = memory.conversation("new")
    assert (memory.why("phone", conversation=new).is_there, memory.blame("phone", conversation=new)) == (False, [])
    asked = memory.at(1).why("tablet", conversation="desk")
    assert asked.steps[0].text.startswith("no event up to seq 1 holds 'tablet' in conversation/desk; 0 erased events")
