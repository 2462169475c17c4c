"""No pattern of ours takes more than its share of time over a text, whoever wrote the text.

Every compiled pattern of the package is found and searched with texts made out of its own parts: what leads up to each
of its points, and from there long runs of the characters that it looks for, that never quite match.
"""

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

import refold
from refold.agent import lessons, parts, providers, request_words, requests, secret_phrases
from refold.agent.commands import detect_memory_command
from refold.agent.secrets import secret_in
from refold.errors import RefoldError
from refold.importers import formats
from refold.index.terms import question_share, terms_of
from refold.mirror import merge
from refold.mirror.files import PROFILE_FILE
from refold.skills import format as skills_format
from refold.skills import selection
from refold.skills.format import parse_skill
from refold.text import ByteClassCounter, contradiction, entails, keywords, words
from tests.support.paths import NOT_HERE
from tests.support.sizes import sizes

PARSER: Any = importlib.import_module("re._parser")
PROBES = " \n\ta0A-_/.:=+\"'\\([{<]),!@#%"
ENDS = ("", "\x00")
JOINTS = ("", " ", "-", ".", "/")
LEADS_MAX = 12
POINTS_MAX = 40
CHARS = (375, 1_500, 6_000)
TABLES = (request_words, requests, secret_phrases)
"""Modules whose patterns are tables of words: each try costs so much that a tenth of them is made but in a soak."""
FLOOR_SECONDS = 0.001
GROWTH = 4
GROWTH_MAX = 9
"""What four times the text may cost: 4 is linear, 16 quadratic."""


@cache
def modules() -> list[Any]:
    names = {module.name for module in pkgutil.walk_packages(refold.__path__, "refold.")} - NOT_HERE
    return [refold, *(importlib.import_module(name) for name in sorted(names) if not name.endswith("__main__"))]


def patterns_in(value: object) -> Iterator[re.Pattern[Any]]:
    """The patterns that a global holds: itself, in a table, or as what a cached function without arguments makes."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, Mapping):
        yield from (pattern for item in value.items() for pattern in patterns_in(item))
    elif isinstance(value, tuple | list | set | frozenset):
        yield from (pattern for item in value for pattern in patterns_in(item))
    elif hasattr(value, "cache_info") and "Pattern" in str(getattr(value, "__annotations__", {}).get("return")):
        yield from patterns_in(value())  # type: ignore[operator]


@cache
def methods() -> dict[re.Pattern[Any], set[str]]:
    """Every pattern of the package, and the methods of it that are called by its name."""
    found: dict[re.Pattern[Any], set[str]] = {}
    for module in modules():
        for value in vars(module).values():
            for pattern in patterns_in(value):
                found.setdefault(pattern, set())
    for module in modules():
        for node in ast.walk(syntax(module)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                value = vars(module).get(node.value.id)
                if isinstance(value, re.Pattern):
                    found[value].add(node.attr)
    return found


@cache
def tables() -> frozenset[re.Pattern[Any]]:
    return frozenset(pattern for module in TABLES for value in vars(module).values() for pattern in patterns_in(value))


def syntax(module: Any) -> ast.AST:
    return ast.parse(Path(module.__file__).read_text(encoding="utf-8"))


def use(pattern: re.Pattern[Any]) -> Callable[[Any], object]:
    """What the package does with a pattern at its dearest: at one place, or all over a text."""
    called = methods()[pattern] - {"pattern"}
    if called and called <= {"match", "fullmatch"}:
        return pattern.fullmatch if called == {"fullmatch"} else pattern.match
    return partial(pattern.sub, b"" if isinstance(pattern.pattern, bytes) else "")


# Texts out of a pattern.


def is_in(character: str, members: Iterable[tuple[Any, Any]]) -> bool:
    negated = False
    found = False
    for kind, value in members:
        name = str(kind)
        if name == "NEGATE":
            negated = True
        elif name == "LITERAL":
            found |= ord(character) == value
        elif name == "RANGE":
            found |= value[0] <= ord(character) <= value[1]
        else:
            letter = {"SPACE": r"\s", "DIGIT": r"\d", "WORD": r"\w"}[
                str(value).removeprefix("CATEGORY_").removeprefix("NOT_")
            ]
            found |= (re.fullmatch(letter, character) is not None) is ("NOT_" not in str(value))
    return found is not negated


def samples(kind: str, value: Any) -> list[str]:
    """Characters that one item of a pattern takes."""
    if kind == "LITERAL":
        return [chr(value)]
    members = value if kind == "IN" else [("NEGATE", None), ("LITERAL", value)] if kind == "NOT_LITERAL" else []
    fitting = [probe for probe in PROBES if kind == "ANY" or is_in(probe, members)]
    listed = [
        chr(one if isinstance(one, int) else one[0]) for name, one in members if str(name) in {"LITERAL", "RANGE"}
    ]
    return (fitting or listed)[:2]


def thinned(texts: list[str], count: int) -> list[str]:
    """So many of the texts, from all over."""
    return [texts[place * len(texts) // count] for place in range(count)] if len(texts) > count else texts


def walk(items: Iterable[tuple[Any, Any]], leads: list[str], points: dict[str, None]) -> list[str]:
    """Go along a pattern with the texts that led here; note each point at which more than a literal follows."""
    for op, value in items:
        if str(op) != "LITERAL":
            points.update(dict.fromkeys(leads))
        leads = thinned(list(dict.fromkeys(step(str(op), value, leads, points))), LEADS_MAX)
    points.update(dict.fromkeys(leads))
    return leads


def step(kind: str, value: Any, leads: list[str], points: dict[str, None]) -> list[str]:
    if kind in {"LITERAL", "NOT_LITERAL", "IN", "ANY"}:
        return [lead + sample for sample in samples(kind, value) for lead in leads]
    if kind.endswith("REPEAT"):
        least, _, inner = value
        once = walk(inner, leads, points)
        for _ in range(1, min(least, 64)):
            once = walk(inner, once[:1], {})
        return once if least else leads + once
    if kind in {"ASSERT", "ASSERT_NOT"} and value[0] == 1:
        walk(value[1], leads, points)
    nested = {"BRANCH": value[1], "SUBPATTERN": [value[-1]]} if isinstance(value, tuple) else {"ATOMIC_GROUP": [value]}
    return [lead for option in nested.get(kind, ()) for lead in walk(option, leads, points)] or leads


def repeated(items: Iterable[Any], *, is_inside: bool = False) -> Iterator[str]:
    """The characters that stand in a repeat, and two of each class there."""
    for item in items:
        is_pair = isinstance(item, tuple) and len(item) == 2
        kind = str(item[0]) if is_pair else ""
        if kind in {"LITERAL", "NOT_LITERAL", "IN"}:
            yield from samples(kind, item[1]) if is_inside else ()
        elif not isinstance(item, str | int | type(None)) and hasattr(item, "__iter__"):
            yield from repeated(item, is_inside=is_inside or kind.endswith("REPEAT"))


def hostile(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """Texts that a pattern may spend long on: how each begins, what is repeated in it, and how it ends."""
    source = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    parsed = PARSER.parse(source, pattern.flags & ~re.UNICODE)
    points: dict[str, None] = {"": None}
    walk(parsed, [""], points)
    alphabet = dict.fromkeys((*PROBES, *repeated(parsed)))
    leads = thinned(list(points), POINTS_MAX)
    runs = [(point, character) for point in leads for character in alphabet]
    runs += [("", point + joint) for point in leads for joint in JOINTS if point + joint]
    runs += [("", one + other) for one in alphabet for other in alphabet]
    return ((begin, run, end) for begin, run in dict.fromkeys(runs) for end in ENDS)


def seconds(call: Callable[[], object], repeats: int = 1) -> float:
    """The CPU time of a call on this thread, the least of several: what else runs on the machine does not count."""
    least = float("inf")
    for _ in range(repeats):
        begun = time.thread_time()
        call()
        least = min(least, time.thread_time() - begun)
    return least


def grows(calls: Sequence[Callable[[], object]]) -> bool:
    """Whether a call costs out of proportion to the one before it, whose text is ``GROWTH`` times as short.

    What does so in each of four rounds: a busy neighbour on the same core may cost one of them as much.
    """
    for small, large in pairwise(calls):
        if (least := seconds(small)) > FLOOR_SECONDS:
            # Mostly one look says that it does not grow, at a third of the time; it leaves room for a busy neighbour.
            may_grow = seconds(large) > 1.25 * GROWTH * least
            return may_grow and all(seconds(large, 3) > GROWTH_MAX * seconds(small, 3) for _ in range(4))
    return False


def encoded(pattern: re.Pattern[Any], text: str) -> Any:
    return text.encode("latin-1", errors="replace") if isinstance(pattern.pattern, bytes) else text


def name(pattern: re.Pattern[Any]) -> str:
    return ascii(pattern.pattern)[:60]


@pytest.mark.timeout(600)
@sizes("step", slow=10, soak=1)
@pytest.mark.parametrize("pattern", list(methods()), ids=name)
def test_a_pattern_takes_time_in_proportion_to_the_text(pattern: re.Pattern[Any], step: int) -> None:
    run, step = use(pattern), step if pattern in tables() else 1
    for begin, repeated, end in islice(hostile(pattern), None, None, step):
        texts = [begin + repeated * (chars // len(repeated)) + end for chars in (*CHARS, GROWTH * CHARS[-1])]
        assert not grows([partial(run, encoded(pattern, text)) for text in texts]), f"{begin!r}, {repeated!r}, {end!r}"


@pytest.mark.parametrize("module", modules(), ids=lambda module: str(module.__name__))
def test_every_pattern_of_a_module_is_among_them(module: Any) -> None:
    """What is compiled while the package runs, or where no global leads to it, would be judged by nobody."""
    calls = [node for node in ast.walk(syntax(module)) if isinstance(node, ast.Call)]
    used = [
        call for call in calls if ast.unparse(call.func).startswith("re.") and ast.unparse(call.func) != "re.escape"
    ]
    compiled = [call for call in used if ast.unparse(call.func) == "re.compile"]
    at_import = [call for call in used if all(isinstance(argument, ast.Constant) for argument in call.args)]
    assert [ast.unparse(call) for call in used if call not in compiled and call not in at_import] == []
    imported = [node for node in ast.walk(syntax(module)) if isinstance(node, ast.ImportFrom) and node.module == "re"]
    assert [ast.unparse(node) for node in imported] == []
    own = {pattern for value in vars(module).values() for pattern in patterns_in(value)}
    assert len(own) >= len(compiled)


def test_the_judge_tells_what_grows_from_what_does_not() -> None:
    text = "password is" + " " * 6_000 + "'"
    quadratic, linear = re.compile(r"is\s*:?\s*['0]?x"), re.compile(r"is(?:\s*+:)?\s*+['0]?x")
    lengths = (400, 1_600, 6_400)
    assert grows([partial(quadratic.search, text[:chars]) for chars in lengths])
    assert not grows([partial(linear.search, text[:chars]) for chars in lengths])


# What reads the texts of users, models and files, with all its loops around those patterns.

READERS: dict[str, Callable[[str], object]] = {
    "secrets": secret_in,
    "commands": detect_memory_command,
    "models' JSON": providers.parse_json,
    "what is learnt": lambda text: lessons.parse_lessons([{"content": text[:2_000]}], echoes={"memory": text}),
    "frontmatter": lambda text: skills_format.split_frontmatter("---\n" + text),
    "frontmatter mended": skills_format.mend,
    "YAML": skills_format.read_frontmatter,
    "skills": lambda text: parse_skill(
        "a/SKILL.md", f"---\nname: a\nallowed-tools: {text[:15_000]}\n---\n{text}".encode()
    ),
    "skills shown": selection._plain_lines,
    "skills marked": parts.disarm,
    "parts of a context": parts.quote_text,
    "keywords": keywords,
    "words": words,
    "contradictions": lambda text: (contradiction(text, f"x {text}"), entails(text, text)),
    "terms": lambda text: terms_of(text, "porter"),
    "questions": lambda text: question_share(text + "?"),
    "documents": lambda text: sum(1 for _ in formats.paths(text.encode())),
    "late saves": lambda text: merge.hand_side(PROFILE_FILE, text.encode(), []),
    "token counter": ByteClassCounter().count,
}
UNITS = (
    *PROBES,
    *(
        "password is ",
        "password for x ",
        "token=",
        "eyJ-",
        "basic ",
        "bearer ",
        "sk-",
        "a://a:",
        "remember ",
        "never mind ",
    ),
    *("\r\n", "\ufeff\n", "# a\n", "- - ", "---\n", "a: b\n", "```json\n[", "a(", "[skill", "<skill", "</think>"),
    *('[{"a":', '{"a":1},', "[1,", '\\"', '"a" ', "? ", "\u4e2d", "\u3002", "\u0301", "\U0001f642", "y", "ational"),
)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_takes_time_in_proportion_to_the_text(reader: str) -> None:
    def read(text: str) -> None:
        with suppress(RefoldError, skills_format.BlockError):
            READERS[reader](text)

    for unit in UNITS:
        texts = [unit * (chars // len(unit)) for chars in (4_000, 16_000, 64_000)]
        assert not grows([partial(read, text) for text in texts]), repr(unit)
