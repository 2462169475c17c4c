"""What skills leave in the log: nothing that cannot be read again, and nothing that an erasure leaves behind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from refold import Memory
from refold.errors import InvalidInput, ReadOnly
from refold.skills.format import Skill, summary_of
from refold.skills.library import library_of
from refold.skills.selection import SkillMatch
from refold.views.skills import SkillUsage
from tests.support.memories import refused, remembering

pytest.importorskip("yaml", reason="PyYAML is not installed")

CALLS = [("Read", "the changelog"), ("Bash", "git log"), ("Write", "the notes")]


@pytest.mark.parametrize("phase", [3, "lunch", ["planning"], "x" * 1_000_000])
def test_a_phase_that_is_none_is_not_recorded(tmp_path: Path, phase: Any) -> None:
    with remembering(tmp_path / "store") as memory, refused(memory, InvalidInput, "phase is"):
        library_of(memory).record((), query="q", phase=phase)


def test_one_session_is_no_list_of_letters() -> None:
    with remembering() as memory:
        library = library_of(memory)
        with refused(memory, InvalidInput, "sessions must be a list"):
            library.learn("a", "d", "b", sessions="s1")
        library.learn("a", "d", "b")
        with refused(memory, InvalidInput, "sessions must be a list"):
            library.refine("a", sessions="s1")


@pytest.mark.parametrize("is_said", [True, False], ids=["after a message", "before any"])
def test_erasing_a_conversation_reaches_what_was_selected_and_used_for_it(tmp_path: Path, is_said: bool) -> None:
    with remembering(tmp_path / "store") as memory:
        library, chat = library_of(memory), memory.conversation("the-secret-name")
        if is_said:
            chat.append("user", "Hello", tokens=1)
        library.record((), query="the secret question", conversation="the-secret-name")
        library.use("notes", conversation="the-secret-name", succeeded=True)
        library.record((), query="another question", conversation="other")
        library.use("notes", conversation="other")
        if not is_said:
            chat.append("user", "Hello", tokens=1)
        memory.flush()
        chat.erase()
        assert library.last_selection("the-secret-name") is None
        assert library.last_selection("other") is not None
        assert library.usage("notes") == SkillUsage(1, 0, 0, library.usage("notes").last_ns)
    held = (tmp_path / "store/data.mdb").read_bytes()
    assert b"the secret question" not in held
    assert b"the-secret-name" not in held
    assert b"another question" in held


def test_what_was_derived_from_a_conversation_is_kept_on_demand() -> None:
    with remembering() as memory:
        library, chat = library_of(memory), memory.conversation("c")
        chat.append("user", "Hello", tokens=1)
        library.use("notes", conversation="c")
        chat.erase(derived="keep")
        assert library.usage("notes").count == 1


def test_erasing_a_fork_of_the_memory_leaves_what_the_main_line_recorded() -> None:
    with remembering() as memory:
        fork = memory.fork("other")
        for line in (memory, fork):
            line.conversation("c").append("user", "Hello", tokens=1)
            library_of(line).record((), query="q", conversation="c")
        fork.conversation("c").erase()
        assert library_of(fork).last_selection("c") is None
        assert library_of(memory).last_selection("c") is not None


class Loud:
    """An embedder whose vectors are long, as those of many models are."""

    id = "loud"
    dim = 2

    def embed(self, texts: list[str]) -> Any:
        return np.array([[5.0, 0.0] if "tag" in text else [0.0, 3.0] for text in texts], dtype=np.float32)


def test_likeness_is_that_of_directions() -> None:
    with remembering(embedder=Loud()) as memory:
        library_of(memory).learn("tag-it", "How to tag.", "Tag.", status="active")
        answer = {"name": "notes", "description": "Write.", "tags": [], "body": "Write."}
        found = memory.skills.maybe_generate(lambda *_: answer, summary="Did it.", tool_calls=CALLS)
        assert (found.skill is not None, found.nearest) == (True, 0.0)
        again = memory.skills.maybe_generate(lambda *_: answer, summary="Did it.", tool_calls=CALLS)
        assert again.skill is None
        assert again.nearest == pytest.approx(1.0)


def test_no_model_is_asked_for_what_cannot_be_written(tmp_path: Path) -> None:
    def asked(*_: Any) -> Any:
        raise AssertionError

    with remembering(tmp_path / "store") as memory:
        library_of(memory).use("a")
        with refused(memory, ReadOnly, "frozen at seq 1"):
            memory.at(1).skills.maybe_generate(asked, summary="x", tool_calls=CALLS)
        for calls in (["a", "b", "c"], "abc", [("a", "b", "c")] * 3):
            with refused(memory, InvalidInput, "tool_calls"):
                memory.skills.maybe_generate(asked, summary="x", tool_calls=calls)
    with Memory(tmp_path / "store", readonly=True) as closed, pytest.raises(ReadOnly):
        closed.skills.maybe_generate(asked, summary="x", tool_calls=CALLS)


def match_of(**fields: Any) -> Any:
    given: dict[str, Any] = {"score": 1.0, "match_reason": "lexical", "query": "q", "body": "b"} | fields
    summary = summary_of(Skill(id="a-0", name="a", description="d", body="b", path="a", hash="0"))
    return SkillMatch(skill=replace(summary, **given.pop("skill", {})), **given)


@pytest.mark.parametrize(
    "matches",
    [
        *([match_of(score=score)] for score in ("high", float("nan"), float("inf"), True, None, 10**400)),
        [match_of(match_reason=3)],
        [match_of(skill={"name": 3})],
        [match_of(skill={"id": None})],
        [match_of(skill={"name": "\ud800"})],
        ["a"],
        [None],
        "a",
        None,
    ],
    ids=lambda matches: str(matches)[:40],
)
def test_what_is_no_match_is_not_recorded(tmp_path: Path, matches: Any) -> None:
    with remembering(tmp_path / "store") as memory, refused(memory, InvalidInput):
        library_of(memory).record(matches, query="q")


def test_scores_of_numpy_and_whole_ones_are_numbers() -> None:
    with remembering() as memory:
        library = library_of(memory)
        matches = [match_of(score=np.float32(0.5)), match_of(score=2)]
        assert library.record(matches, query="q").scores == (0.5, 2.0)


def test_a_repeated_request_has_its_first_result_whatever_came_after() -> None:
    with remembering() as memory:
        library = library_of(memory)
        learned = library.learn("a", "d", "b", request_id="l")
        refined = library.refine("a", body="c", request_id="f")
        reviewed = library.review("a", "active", request_id="v")
        library.reject("a")
        for is_deleted in (False, True):
            if is_deleted:
                library.delete("a", request_id="d")
            head = memory.head
            assert library.learn("a", "d", "b", request_id="l") == learned
            assert library.refine("a", body="c", request_id="f") == refined
            assert library.review("a", "active", request_id="v") == reviewed
            assert memory.head == head
        library.delete("a", request_id="d")
