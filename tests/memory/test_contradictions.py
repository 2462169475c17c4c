"""Statements that look alike and contradict each other are never merged into one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import Memory
from refold.text import contradiction
from tests.support.memories import assert_sound

CONTRADICTING = [
    ("The API listens on port 8080.", "The API listens on port 9090."),
    ("The release is on 2026-11-18.", "The release is on 2026-11-19."),
    ("Uploads are limited to 1,000 rows", "Uploads are limited to 10,000 rows"),
    ("Use Python 3.11 here", "Use Python 3.12 here"),
    ("Use pnpm, not npm", "Use npm, not pnpm"),
    ("Use tabs in Go files", "Do not use tabs in Go files"),
    ("Force pushes are fine", "Force pushes are never fine"),
    ("The user lives in Oslo", "The user lives in Bergen"),
    ("Alice likes green tea", "Bob likes green tea"),
    ("Deborah finished an engineering project last week", "Jolene finished an engineering project last week"),
    ("Deborah bought a new bench", "Jolene bought a new bench"),
    ("Mike's editor is vim", "Mike's editor is emacs"),
    ("The user prefers dark mode here", "The user prefers light mode here"),
    ("config.yaml holds the ports", "config.json holds the ports"),
    ("The worker calls get_user first", "The worker calls get_account first"),
    ("\u7528\u6237\u559c\u6b22\u8336", "\u7528\u6237\u4e0d\u559c\u6b22\u8336"),
]
AGREEING = [
    ("The API listens on port 8080.", "The API is on 8080, behind nginx."),
    ("Tests need Docker", "The tests need Docker to run"),
    ("The user likes tea.", "The user likes green tea"),
    ("Use pnpm for all installs", "Always use pnpm for installs"),
    ("The API listens on 8080", "The API server listens on port 8080"),
    ("The frontend uses Zustand for state management", "Zustand is the state management of the frontend"),
    ("Never push to main", "Pushing to main is never allowed"),
    ("Use pnpm for installs", "Use pnpm for installing"),
    ("", "x"),
    ("...", "Use pnpm"),
]


@pytest.mark.parametrize(("text", "other"), CONTRADICTING)
def test_what_differs_in_a_number_a_name_or_a_denial_contradicts(text: str, other: str) -> None:
    assert contradiction(text, other)
    assert contradiction(other, text)
    assert contradiction(f"Something else entirely | {text}", other), "a piece of a merged memory counts"


@pytest.mark.parametrize(("text", "other"), AGREEING)
def test_what_says_more_or_says_it_otherwise_does_not(text: str, other: str) -> None:
    assert contradiction(text, other) is None
    assert contradiction(other, text) is None


@given(st.text(max_size=60), st.text(max_size=60))
def test_it_is_symmetric_and_no_text_contradicts_itself(text: str, other: str) -> None:
    assert bool(contradiction(text, other)) == bool(contradiction(other, text))
    assert " | " in text or contradiction(text, text) is None


@pytest.mark.parametrize(("text", "other"), CONTRADICTING)
def test_an_upsert_adds_what_contradicts_and_says_so(memory: Memory, text: str, other: str) -> None:
    project = memory.project()
    first = project.upsert(text, vector=[1.0, 0.0])
    second = project.upsert(other, vector=[1.0, 0.01])
    assert (first.outcome, first.reason, second.outcome) == ("inserted", None, "inserted")
    assert first.entry is not None
    assert second.reason is not None
    assert second.reason.endswith(f": it is not what {first.entry.id} says")
    assert second.cosine is not None
    assert second.cosine > 0.99
    assert [entry.content for entry in project.list()] == [text, other]
    assert project.compact().merged == 0
    assert project.upsert(text, vector=[1.0, 0.01]).outcome == "skipped", "its twin is found before"
    assert_sound(memory)


@pytest.mark.parametrize(("text", "other"), AGREEING[:8])
def test_an_upsert_and_a_compaction_merge_what_agrees(memory: Memory, text: str, other: str) -> None:
    memory.project("a").upsert(text, vector=[1.0, 0.0])
    assert memory.project("a").upsert(other, vector=[1.0, 0.01]).outcome == "merged"
    for number, content in enumerate((text, other)):
        memory.project("b").add(content, vector=[1.0, 0.01 * number])
    assert memory.project("b").compact().merged == 1


def test_the_built_in_embedder_keeps_two_ports_apart() -> None:
    with Memory() as memory:
        for port in (8080, 9090):
            assert memory.upsert(f"The API of the payment service listens on port {port}.").outcome == "inserted"
        assert memory.project().count() == 2
