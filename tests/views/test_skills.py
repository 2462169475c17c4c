"""Given events, the library of skills."""

from refold import fold
from refold.event import Event, Stamp
from refold.views.skills import (
    SELECTIONS_KEPT,
    SKILLS,
    Library,
    SkillDeleted,
    SkillEdited,
    SkillLearned,
    SkillNoted,
    SkillRefined,
    SkillReviewed,
    SkillsSelected,
    SkillToggled,
    SkillUsage,
    SkillUsed,
)
from tests.views.fold import BEGIN_NS, Erased, folded, stamp_of

LEARNED = SkillLearned((), "a", "generated", "release", "How to release.", "Tag it.", ("git",), ("s1",))
REFINED = SkillRefined((), "a", "refined", "release", "How to release.", "Test, tag.", ("git",), ("s1", "s2"))


def library(*events: Event | Erased) -> Library:
    found: Library = folded("skills", *events).part(SKILLS)
    return found


def test_a_skill_is_learned_reviewed_refined_and_deleted() -> None:
    held = library(LEARNED, SkillReviewed((), "a", "active")).learned["a"]
    assert (held.name, held.body, held.status, held.kind) == ("release", "Tag it.", "active", "generated")
    assert (held.seq, held.created_ns, held.updated_ns) == (1, BEGIN_NS + 1, BEGIN_NS + 2)
    refined = library(LEARNED, SkillReviewed((), "a", "active"), REFINED).learned["a"]
    assert (refined.body, refined.status, refined.sessions) == ("Test, tag.", "pending_review", ("s1", "s2"))
    assert (refined.seq, refined.created_ns, refined.updated_ns) == (3, BEGIN_NS + 1, BEGIN_NS + 3)
    assert library(LEARNED, REFINED, SkillDeleted((), "a")).learned == {}


def test_a_skill_is_found_by_name_and_by_id() -> None:
    found = library(LEARNED)
    assert found.find("release") == found.find("a") == found.learned["a"]
    assert found.find("other") is None


def test_a_name_stands_for_the_first_skill_that_has_it_still() -> None:
    again = SkillLearned((), "b", "generated", "release", "How to release again.", "Tag it.", ("git",), ("s1",))
    for events, expected in (
        ((LEARNED, again), "a"),
        ((LEARNED, again, SkillDeleted((), "a")), "b"),
        ((LEARNED, SkillDeleted((), "a"), again), "b"),
        ((LEARNED, Erased(REFINED), again), "b"),
        ((LEARNED, again, SkillRefined((), "a", "refined", "publish", "How to.", "Test.", (), ())), "b"),
    ):
        named = library(*events).find("release")
        assert named is not None
        assert named.id == expected


def test_what_is_erased_leaves_no_trace_and_brings_nothing_back() -> None:
    assert library(Erased(LEARNED)).learned == {}
    assert library(LEARNED, Erased(REFINED)).learned == {}
    assert library(Erased(LEARNED), REFINED).learned["a"].body == "Test, tag."
    assert library(Erased(LEARNED), SkillReviewed((), "a", "active"), SkillDeleted((), "a")).learned == {}
    assert library(SkillToggled((), 0, "x", enabled=False), Erased(SkillToggled((), 1, "x"))).toggles.values == {}
    assert library(Erased(SkillUsed((), "x"))).uses == {}
    first = SkillsSelected((), 0, "c", "q", None, "seed", ("x",), ("x-1",), ("lexical",), (1.5,))
    assert library(first, Erased(SkillsSelected((), 1, "c"))).selections == {}
    assert library(first, Erased(SkillsSelected((), 0, "d"))).selections.keys() == {"c"}


def test_a_switch_counts_until_the_next_one() -> None:
    off, on = SkillToggled((), 0, "x", enabled=False), SkillToggled((), 1, "x", enabled=True)
    assert not library(off).is_enabled("x")
    assert library(off, on).is_enabled("x")
    assert library(off).is_enabled("y")
    long = "n" * 1_000
    assert not library(SkillToggled((), 0, long, enabled=False)).is_enabled(long)


def test_a_note_counts_until_the_next_one_and_an_erased_one_brings_nothing_back() -> None:
    first, second = SkillNoted((), 0, "x", "Ask first."), SkillNoted((), 1, "x", "Ask twice.")
    assert library(first).notes.values == {"x": "Ask first."}
    assert library(first, second).notes.values == {"x": "Ask twice."}
    assert library(first, SkillNoted((), 1, "x")).notes.values == {}
    assert library(first, Erased(second)).notes.values == {}
    assert library(Erased(first), SkillNoted((), 1, "y", "Ask.")).notes.values == {"y": "Ask."}
    assert fold.digests(folded("skills", first)) != fold.digests(folded("skills", second)) != []


def test_an_edit_of_a_file_changes_no_state() -> None:
    assert fold.digests(folded("skills", SkillEdited((), "x", "x-1", "x-2"))) == []


def test_uses_and_how_they_went_are_counted() -> None:
    uses = library(
        SkillUsed((), "x"), SkillUsed((), "x", succeeded=True), SkillUsed((), "x", succeeded=False), SkillUsed((), "y")
    )
    assert uses.uses["x"] == SkillUsage(3, 2, 1, BEGIN_NS + 3)
    assert (uses.uses["x"].success_rate, uses.uses["y"].success_rate) == (0.5, 1.0)


def test_the_last_selection_of_each_conversation_is_held_for_the_latest_ones() -> None:
    selections = [SkillsSelected((), 0, str(place % (SELECTIONS_KEPT + 1)), f"q{place}") for place in range(3)]
    held = library(*selections, SkillsSelected((), 1, "0", "again")).selections
    assert [(name, selection.query) for name, selection in held.items()] == [("1", "q1"), ("2", "q2"), ("0", "again")]
    state = fold.empty("skills")
    for place in range(SELECTIONS_KEPT + 5):
        fold.fold(state, _stamp(place + 1), SkillsSelected((), 0, str(place), "q"))
    assert list(state.part(SKILLS).selections) == [str(place) for place in range(5, SELECTIONS_KEPT + 5)]


def _stamp(seq: int) -> Stamp:
    return stamp_of(seq, "skills/x")


def test_a_copy_goes_on_by_itself() -> None:
    state = folded("skills", LEARNED, SkillUsed((), "x"), SkillToggled((), 0, "x", enabled=False))
    twin = fold.copy_state(state)
    assert twin is not None
    before = fold.digests(state)
    fold.fold(twin, _stamp(4), SkillDeleted((), "a"))
    fold.fold(twin, _stamp(5), SkillUsed((), "x"))
    fold.fold(twin, _stamp(6), SkillsSelected((), 0, "c", "q"))
    assert fold.digests(state) == before != fold.digests(twin)


def test_nothing_is_nothing() -> None:
    assert fold.digests(folded("skills")) == []
    assert fold.plain(folded("skills", LEARNED, SkillUsed((), "release")))["skills"]["used"] == {"release": [1, 0, 0]}
