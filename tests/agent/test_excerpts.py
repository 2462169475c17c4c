"""Excerpts of skills: never a heading alone, never a cut without a note."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold import Memory
from refold.agent.excerpts import excerpt, excerpts

STEPS = [f"{number}. Run check number {number}, and write down its result." for number in range(1, 60)]
DEPLOY = "# Deploy\n\n" + "\n".join(STEPS) + "\n\n## Never\n\nNever deploy on Friday.\n"
NOTE = re.compile(r"\n\n\((?:Left out: .+|[\d,]+ more (?:lines?|characters) left out)\)\Z")


def test_a_long_first_section_is_cut_after_a_line() -> None:
    text = excerpt(DEPLOY, 1_000)
    count = text.count("Run check")
    assert count > 12
    assert text == "# Deploy\n\n" + "\n".join(STEPS[:count]) + f"\n\n({63 - count} more lines left out)"


def test_a_short_introduction_does_not_hide_the_long_section_after_it() -> None:
    text = excerpt("# Deploy\n\nFollow these steps:\n\n## Steps\n\n" + "\n".join(STEPS), 1_000)
    assert text.count("Run check") > 12
    assert text.endswith(" more lines left out)")


def test_whole_sections_are_named_when_they_are_left_out() -> None:
    body = f"# One\n{'first ' * 30}\n# Two #\n{'second ' * 30}\n## Three\nthird"
    assert excerpt(body, 250) == f"# One\n{'first ' * 29}first\n\n(Left out: Two; Three)"
    many = f"# One\n{'first ' * 30}\n" + "".join(f"# Number {number}\nmore\n" for number in range(40))
    assert excerpt(many, 300).endswith(" more lines left out)"), "where their names take too much room"


def test_one_long_line_is_cut_after_a_word_and_one_without_spaces_within() -> None:
    assert excerpt("# Deploy\n" + "carefully " * 200, 200).endswith("carefully\n\n(1,860 more characters left out)")
    text = excerpt("あ" * 2_000, 200)
    assert text.startswith("あ" * 150)
    assert NOTE.search(text)


def test_code_that_is_cut_ends_before_the_note() -> None:
    text = excerpt("# Deploy\n\n```bash\n" + "make check  # of all\n" * 80 + "```\n", 500)
    assert re.search(r"# of all\n```\n\n\(\d+ more lines left out\)\Z", text)


def test_a_cut_by_lines_has_a_note_too() -> None:
    text = excerpt(DEPLOY, 10_000, 20)
    assert text.count("\n") < 20
    assert text.endswith(" more lines left out)")


def test_without_room_for_a_note_there_is_no_excerpt() -> None:
    assert excerpt(DEPLOY, 20) == ""
    assert excerpts([DEPLOY, "Be short."], 0) == [""]


def test_of_a_text_whose_last_spaces_do_not_fit_nothing_is_left_out() -> None:
    assert excerpt("# A\nword" + " " * 40, 30) == "# A\nword"
    assert excerpt("# A\nword\n\n\n", 300, 2) == "# A\nword"


@settings(max_examples=300, deadline=None)
@given(
    pieces=st.lists(st.sampled_from(["# A\n", "## B", "\n", "\n\n", "word ", "x" * 60, "```\n", "- item\n", " "])),
    chars=st.integers(0, 400),
    lines=st.integers(0, 30),
)
def test_an_excerpt_fits_and_says_that_it_is_one(pieces: list[str], chars: int, lines: int) -> None:
    body = "".join(pieces)
    text = excerpt(body, chars, lines)
    assert len(text) <= chars
    assert text.count("\n") < max(lines, 1)
    if text not in (body, body.rstrip(), ""):
        assert NOTE.search(text)
        said = NOTE.sub("", text).removesuffix("\n```")
        assert body.startswith((said, NOTE.sub("", text)))


@pytest.mark.parametrize("chars", [300, 1_000, 3_000])
def test_a_context_shows_what_a_skill_says_and_how_much_is_missing(chars: int) -> None:
    with Memory() as memory:
        memory.settings.set("skills_max_injected_chars", chars)
        part = memory.context(memory.conversation("c"), skills=[("deploy", DEPLOY)]).part("skills")
        assert part is not None
        assert "1. Run check number 1," in part.text
        assert NOTE.search(part.text.removesuffix("\n[/skill]"))
