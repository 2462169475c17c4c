"""Keywords as the seed defines them, and words as texts are found by: every script, case and composition."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refold.text import is_unspaced, keywords, words

KEYWORDS = {
    "": (),
    "a an to of it": (),
    "Use pnpm, not npm: use_workspaces!": ("use", "pnpm", "not", "npm", "use_workspaces"),
    "ABC abc Abc": ("abc",),
    "v1.2.345 x86_64": ("345", "x86_64"),
    "___ __": ("___",),
    "caf\u00e9 \u00e9t \u00e9": ("caf\u00e9", "\u00e9t"),
    "\u6771\u4eac\u3067\u4f1a\u8b70\u3001\u732b": ("\u6771\u4eac\u3067\u4f1a\u8b70", "\u732b"),
    "\uc11c\uc6b8\uc5d0\uc11c \ud68c\uc758": ("\uc11c\uc6b8\uc5d0\uc11c", "\ud68c\uc758"),
    "\u041c\u041e\u0421\u041a\u0412\u0410 \u0438 \u043c\u0438\u0440": (
        "\u043c\u043e\u0441\u043a\u0432\u0430",
        "\u043c\u0438\u0440",
    ),
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645": (
        "\u0645\u0631\u062d\u0628\u0627",
        "\u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    ),
}


@pytest.mark.parametrize(("text", "expected"), KEYWORDS.items(), ids=range(len(KEYWORDS)))
def test_the_keywords_of_a_text(text: str, expected: tuple[str, ...]) -> None:
    assert keywords(text) == expected


@given(st.text(max_size=60))
def test_keywords_are_runs_of_three_bytes_once_each(text: str) -> None:
    runs = [run for run in re.split(r"\W+", text.lower()) if len(run.encode()) >= 3]
    assert list(keywords(text)) == sorted(set(runs), key=runs.index)


WORDS = {
    "": [],
    "Use use_workspaces, v1.2!": ["use", "use", "workspaces", "v1", "2"],
    "STRASSE Stra\u00dfe": ["strasse", "strasse"],
    "cafe\u0301 CAF\u00c9": ["caf\u00e9", "caf\u00e9"],
    "\uff21\uff22\uff23 \ufb01ne": ["abc", "fine"],
    "\u0130stanbul": ["i\u0307stanbul"],
    "\u2764\ufe0f \U0001f600": [],
    "\u0645\u064e\u0631\u0652\u062d\u064e\u0628\u0627": ["\u0645\u064e\u0631\u0652\u062d\u064e\u0628\u0627"],
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e": [
        "\u0939\u093f\u0928\u094d\u0926\u0940",
        "\u092d\u093e\u0937\u093e",
    ],
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645": ["\u0645\u06cc\u062e\u0648\u0627\u0647\u0645"],
    "\u6771\u4eac\u90fd\u3001\u732b": ["\u6771\u4eac", "\u4eac\u90fd", "\u732b"],
    "GPT4\u3092\u4f7f\u3046": ["gpt4", "\u3092\u4f7f", "\u4f7f\u3046"],
    "\uc11c\uc6b8\uc5d0\uc11c": ["\uc11c\uc6b8", "\uc6b8\uc5d0", "\uc5d0\uc11c"],
    "\u0e44\u0e17\u0e22": ["\u0e44\u0e17", "\u0e17\u0e22"],
}


@pytest.mark.parametrize(("text", "expected"), WORDS.items(), ids=range(len(WORDS)))
def test_the_words_of_a_text(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@example("\u17b4")  # A mark of a script that does not part words, on no letter.
@given(st.text(max_size=60))
def test_no_word_is_empty_and_every_word_has_a_letter_or_digit(text: str) -> None:
    assert all(any(map(str.isalnum, word)) and not set(word) & set(" _\n\t,.") for word in words(text))


@given(st.text(alphabet=st.characters(max_codepoint=127), max_size=60))
def test_a_text_beyond_ascii_is_cut_as_one_within_it(text: str) -> None:
    assert words(text + " \u00fc")[:-1] == words(text)


def test_scripts_that_do_not_part_words_are_told() -> None:
    assert [word for word in words("\u6771\u4eac tokyo \uc11c\uc6b8 \u0e44\u0e17\u0e22") if is_unspaced(word)] == [
        "\u6771\u4eac",
        "\uc11c\uc6b8",
        "\u0e44\u0e17",
        "\u0e17\u0e22",
    ]
