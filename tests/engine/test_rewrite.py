"""An erasure by text and the files and skills that held the text once: what does not hold it any more stays."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from refold import Memory
from tests.engine.test_erasure import occurrences
from tests.support.memories import assert_sound

KEY = "sk-live-5512"
PATH = "/memories/handbook.md"
RULES = "".join(f"Rule {number}: always check {number}.\n" for number in range(40))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def memory(path: Path) -> Iterator[Memory]:
    with Memory(path) as memory:
        yield memory


def slip(memory: Memory) -> str:
    """Writes a secret into a file, mends that, and returns the file's text, whose events are 1 to 4."""
    files = memory.files()
    files.create(PATH, RULES)
    files.insert(PATH, 20, f"The key is {KEY}.\n")
    files.str_replace(PATH, KEY, "in the vault")
    files.insert(PATH, 0, "# Handbook\n")
    return files.read(PATH)


def check(memory: Memory, path: Path) -> None:
    memory.flush()
    assert occurrences(path, KEY) == 0
    assert memory.replay_hash() == memory.state_hash()
    assert_sound(memory)


def test_a_file_that_does_not_hold_the_text_any_more_stays(memory: Memory, path: Path) -> None:
    text = slip(memory)
    receipt = memory.erase(text=KEY)
    assert (receipt.seqs, receipt.derived, receipt.occurrences) == ((2,), (), 0)
    assert receipt.rewritten == (("files/default", PATH),)
    assert memory.files().read(PATH) == text
    check(memory, path)
    memory.files().str_replace(PATH, "# Handbook", "# The handbook")
    assert memory.files().read(PATH) == text.replace("# Handbook", "# The handbook")
    check(memory, path)


def test_a_file_that_holds_the_text_goes(memory: Memory, path: Path) -> None:
    memory.files().create("/memories/b", "another")
    memory.files().create(PATH, f"The key is {KEY}.")
    memory.files().insert(PATH, 1, "Another line.")
    receipt = memory.erase(text=KEY)
    assert (receipt.derived, receipt.rewritten) == ((), ())
    assert [entry.path for entry in memory.files().list()] == ["/memories/b"]
    check(memory, path)


def test_a_file_that_began_with_the_text_stays_under_its_path(memory: Memory, path: Path) -> None:
    files = memory.files()
    files.create(f"/memories/{KEY}/a", f"The key is {KEY}.")
    files.str_replace(f"/memories/{KEY}/a", KEY, "in the vault")
    files.rename(f"/memories/{KEY}", "/memories/keys")
    memory.erase(text=KEY)
    assert files.read("/memories/keys/a") == "The key is in the vault."
    check(memory, path)


def test_what_was_derived_from_the_text_goes(memory: Memory, path: Path) -> None:
    said = memory.conversation("c").append("user", f"The key is {KEY}.")
    memory.files().create(PATH, "No more.")
    memory.files().insert(PATH, 1, "What he said.", sources=[said])
    memory.files().insert(PATH, 1, "And more.")
    memory.files().create("/memories/b", "What he said.", sources=[said])
    assert memory.erase(text=KEY).derived == (4, 5, 6)
    assert memory.files().list() == []
    check(memory, path)


def test_a_file_that_names_an_edit_as_its_source_goes(memory: Memory) -> None:
    slip(memory)
    memory.files().create("/memories/b", "taken from there", sources=[2])
    assert memory.erase(text=KEY).derived == (5,)
    assert [entry.path for entry in memory.files().list()] == [PATH]


def test_an_erasure_by_seq_takes_the_file_along(memory: Memory) -> None:
    slip(memory)
    assert memory.erase([2]).derived == (3, 4)
    assert memory.files().list() == []


def test_what_was_written_anew_goes_with_what_it_is_made_of(memory: Memory, path: Path) -> None:
    said = memory.conversation("c").append("user", "We have rules.")
    text = slip(memory)
    memory.files().insert(PATH, 0, "We have rules.\n", sources=[said])
    memory.erase(text=KEY)
    assert memory.files().read(PATH) == f"We have rules.\n{text}"
    memory.erase([said])
    assert memory.files().list() == []
    check(memory, path)


def test_forks_of_the_memory_keep_their_own_form_of_the_file(memory: Memory, path: Path) -> None:
    files = memory.files()
    files.create(PATH, RULES)
    before = memory.fork("before")
    files.insert(PATH, 20, f"The key is {KEY}.\n")
    holding = memory.fork("holding")
    files.str_replace(PATH, KEY, "in the vault")
    after = memory.fork("after")
    after.files().insert(PATH, 0, "# After\n")
    inherited = memory.fork("inherited")
    texts = [fork.files().read(PATH) for fork in (memory, before, after, inherited)]
    head = before.head
    memory.erase(text=KEY)
    assert [fork.files().read(PATH) for fork in (memory, before, after, inherited)] == texts
    assert holding.files().list() == []
    assert [*before.events(after=head)] == [], "nothing had to be written there"
    check(memory, path)


def test_a_learned_skill_that_does_not_hold_the_text_any_more_stays(memory: Memory, path: Path) -> None:
    library = memory.skills.library
    library.learn("deploy", "How to deploy.", f"Use {KEY}.", status="active")
    library.refine("deploy", body="Take the token from the vault.", status=None)
    library.learn("undeploy", "How to undeploy.", f"Use {KEY}.", status="active")
    receipt = memory.erase(text=KEY)
    assert (receipt.seqs, receipt.derived) == ((1, 3), ())
    assert [skill.body for skill in library.list()] == ["Take the token from the vault."]
    check(memory, path)
