"""Skill files that were written to do harm: to stall the reader, to leave their project, to be put before a model."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from refold.store.limits import SKILL_FILE_BYTES_MAX
from refold.tools.delimiting import inert
from refold.tools.skills import SelectionPolicy, Skill, inject_skills, parse_skill
from refold.tools.skills.injecting import activation, truncated
from refold.tools.skills.selecting import match_of

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")


def write(path: Path, name: str, front: str = "", body: str = "Body\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: About {name}.\n{front}---\n{body}", encoding="utf-8")
    return path


def skill_of(body: str) -> Skill:
    return Skill(id="a-0", name="a", description="d", body=body, path="a/SKILL.md", hash="0")


# Texts that take long to read, if they are read carelessly.

HALF = SKILL_FILE_BYTES_MAX // 2

SLOW: dict[str, Callable[[int], object]] = {
    "heading": lambda count: parse_skill("CLAUDE.md", f"# x{' ' * count}x".encode(), is_convention=True),
    "hashes": lambda count: parse_skill("CLAUDE.md", f"# {'# ' * count}x".encode(), is_convention=True),
    "bracket": lambda count: inert(f"[{' ' * count}x"),
    "closing bracket": lambda count: inert(f"[{' ' * count}/{' ' * count}x"),
    "tag": lambda count: activation(skill_of(f"<{' ' * count}x")),
    "lines": lambda count: truncated("a\n" * count, count, 10),
    "section": lambda count: inject_skills(
        [match_of(skill_of("a\n" * count), 1.0, "lexical")], SelectionPolicy(max_content_lines=count)
    ),
    "tools": lambda count: parse_skill(
        "a/SKILL.md", f"---\nname: a\ndescription: d\nallowed-tools: {'a(' * min(count, 30_000)}\n---\n".encode()
    ),
}


@pytest.mark.parametrize("shape", SLOW)
def test_time_grows_with_the_text_and_not_with_its_square(shape: str) -> None:
    """A text of half a megabyte is read in the time of a few walks over it; the square of it would take minutes."""
    begin = time.perf_counter()
    SLOW[shape](HALF)
    assert time.perf_counter() - begin < 5


@pytest.mark.parametrize(
    ("line", "description"),
    [
        ("# Title #", "Title"),
        ("## Two # words ##  ", "Two # words"),
        ("   ### C#", "C"),
        ("# #", "first"),
        ("#", "first"),
        ("#no", "first"),
        ("####### seven", "first"),
        ("    # code", "first"),
        ("#\tTab\t#", "Tab"),
    ],
)
def test_a_heading_is_what_it_was(line: str, description: str) -> None:
    skill = parse_skill("CLAUDE.md", f"first\n{line}\n".encode(), is_convention=True).skill
    assert skill is not None
    assert skill.description == description
