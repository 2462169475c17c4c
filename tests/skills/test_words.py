"""The default selection: it knows what a message asks for, and that small talk asks for nothing."""

import pytest
from msgspec import structs

from refold.index.ranking import Ranking
from refold.skills import SelectionPolicy, Selector, Skill, SkillIndex


def skill(name: str, description: str, body: str = "") -> Skill:
    path, number = f"{name}/SKILL.md", f"{name}-000000000000"
    return Skill(name=name, description=description, body=body, path=path, hash="0" * 64, id=number)


SEMGREP = skill("semgrep", "Run static analysis with rules. Use it to find bugs in a code base.", "Fix what it finds.")
NOTES = skill("release-notes", "Write the notes of a release.", "One line a change, the changelog last.")
POSTGRES = skill("tune-postgres", "Speed up slow queries of PostgreSQL by indexes and plans.", "EXPLAIN ANALYZE first.")
LIBRARY = SkillIndex((SEMGREP, NOTES, POSTGRES))


def selected(message: str, *skills: Skill) -> list[str]:
    return [match.skill.name for match in Selector(SkillIndex(skills) if skills else LIBRARY).select(message)]


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("semgrep", "semgrep"),
        ("can you do a static analysis of the parser?", "semgrep"),
        ("please write the notes for this release", "release-notes"),
        ("which indexes do these queries need", "tune-postgres"),
        ("update the changelog for the release", "release-notes"),
    ],
)
def test_a_task_finds_its_skill_in_a_library_of_any_size(message: str, name: str) -> None:
    assert selected(message)[0] == name
    alone = next(skill for skill in LIBRARY.skills if skill.name == name)
    assert selected(message, alone) == [name]


@pytest.mark.parametrize(
    "message",
    [
        "hi",
        "please fix the bug",
        "thanks, that looks great!",
        "no, I meant the other one",
        "can you write that again?",
        "My cat is sitting on the keyboard. I love her. What a week that was!",
        "",
    ],
)
def test_small_talk_selects_nothing(message: str) -> None:
    assert selected(message) == []
    for alone in LIBRARY.skills:
        assert selected(message, alone) == []


@pytest.mark.parametrize("apostrophe", ["'", "\u2019"])
def test_what_is_left_of_a_contraction_selects_nothing(apostrophe: str) -> None:
    twice = skill("dont-repeat-yourself", "Find code that says what other code says. Don't repeat it, it's dear.")
    for message in ("I don't have it.", "It's what we've got, isn't it?", "They'd say so, I'm sure."):
        assert selected(message.replace("'", apostrophe), twice) == []
    assert selected(f"Find the code that says it twice, don{apostrophe}t repeat it", twice) == ["dont-repeat-yourself"]


def test_what_is_asked_in_one_sentence_of_many_is_heard() -> None:
    talk = "I had pasta for lunch and the weather was lovely. My sister is coming over with her dog tonight! " * 10
    assert selected(f"{talk}Now write the notes of the release. {talk}") == ["release-notes"]
    assert selected(talk) == []


def test_a_message_that_is_the_name_of_a_skill_selects_it() -> None:
    assert selected("good-day", skill("good-day", "Say hello.")) == ["good-day"]


def test_words_of_the_name_count_more_than_those_of_the_body() -> None:
    other = skill("rust", "Write crates.", "postgres " * 40)
    assert selected("tune postgres", other, POSTGRES) == ["tune-postgres", "rust"]


def test_other_scripts_are_heard_too() -> None:
    assert selected("\u6771\u4eac\u306e\u5929\u6c17", skill("weather", "\u6771\u4eac\u306e\u5929\u6c17"))


@pytest.mark.parametrize("ranking", ["words", "seed", Ranking(name="own", coverage=1.0, keywords=0.5)])
@pytest.mark.parametrize("message", ["Write notes. Then run a static analysis of the rules!", "slow queries", "hi"])
def test_a_verdict_says_what_the_selection_does_and_its_parts_are_the_score(message: str, ranking: object) -> None:
    policy = SelectionPolicy(top_k=1, ranking=ranking)
    matches = Selector(LIBRARY).select(message, policy=policy)
    for each in LIBRARY.skills:
        verdict = Selector(LIBRARY).explain(each, message, policy=policy, refusal=lambda _: "")
        assert verdict.is_selected == (each.name in [match.skill.name for match in matches])
        if ranking in ("words", "seed"):
            assert sum(verdict.parts.values()) == pytest.approx(verdict.score)
        if verdict.is_selected:
            assert verdict.score == matches[0].score


def test_a_verdict_names_what_keeps_a_skill_out() -> None:
    planning = structs.replace(NOTES, inject_into=("planning",))
    selector = Selector(SkillIndex((SEMGREP, planning, POSTGRES)))

    def told(each: Skill, message: str, refusal: str = "", **fields: object) -> str:
        policy = SelectionPolicy(**fields)  # type: ignore[arg-type]
        return str(selector.explain(each, message, policy=policy, phase="implementation", refusal=lambda _: refusal))

    assert "its phases are planning" in told(planning, "release notes")
    assert told(SEMGREP, "static analysis", "it is switched off") == "it is switched off"
    assert "shares nothing with 'bread'" in told(SEMGREP, "bread")
    assert "is under the 9.00 that it needs" in told(SEMGREP, "static analysis", min_score=9.0)
    assert "it is ranked 1, and 0 are selected" in told(SEMGREP, "static analysis", top_k=0)
