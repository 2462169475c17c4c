"""Why, asked with a path or a name: the file that is there or was the last one there, the skill with all about it."""

from refold import Memory
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
