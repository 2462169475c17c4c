"""Explicit memory commands: the phrases, and what they leave of a message."""

from typing import Any

import msgspec
import pytest

from refold import InvalidInput
from refold.agent import ForgetCommand, RecallCommand, RememberCommand, detect_memory_command

REMEMBERED = [
    ("remember that I like tea", "I like tea"),
    ("Remember that I like tea.", "I like tea"),
    ("REMEMBER THAT I LIKE TEA!", "I LIKE TEA"),
    ("note that the build needs Docker", "the build needs Docker"),
    ("Note that: the build needs Docker", "the build needs Docker"),
    ("note that, as of today, main is frozen", "as of today, main is frozen"),
    ("Remember: tests first", "tests first"),
    ("Remember this: tests first", "tests first"),
    ("note\uff1a \u7528 pnpm\u3002", "\u7528 pnpm"),
    ("Keep in mind that CI is slow...", "CI is slow"),
    ("don't forget that we deploy on Friday", "we deploy on Friday"),
    ("Don\u2019t forget: deploy on Friday", "deploy on Friday"),
    ("  \n remember\tthat   spaces \n do not matter  ", "spaces \n do not matter"),
    ("remember that \u6211\u559c\u6b22\u8336\uff01", "\u6211\u559c\u6b22\u8336"),
    ("remember that it works. ! \u3002\uff1f ", "it works"),
    ("remember that he said \u201cnever\u201d", "he said \u201cnever\u201d"),
    ("remember that we stop remembering logs", "we stop remembering logs"),
    # A rule keeps its verb.
    ("always use pnpm", "always use pnpm"),
    ("Always use pnpm.", "Always use pnpm"),
    ("never do force pushes", "never do force pushes"),
    ("Never use tabs!", "Never use tabs"),
    ("always answer in German\u3002", "always answer in German"),
    ("never commit to main", "never commit to main"),
]
FORGOTTEN = [
    ("forget that I like tea", "I like tea"),
    ("Forget that I like tea?", "I like tea"),
    ("forget about the old server", "the old server"),
    ("stop remembering my address", "my address"),
    ("STOP REMEMBERING my address.", "my address"),
    ("delete memory about pnpm", "pnpm"),
    ("Delete the memory about pnpm\uff01", "pnpm"),
    ("remove memories about pnpm", "pnpm"),
    ("forget that you should remember that I like tea", "you should remember that I like tea"),
]
ASKED = [
    ("what do you remember about the deployment", "the deployment"),
    ("What do you remember about the deployment?", "the deployment"),
    ("what are my preferences", "what are my preferences"),
    ("What  are my preferences?", "what are my preferences"),
    ("what are my preferences for tests?", "for tests"),
    ("What do you remember?", "what do you remember"),
    ("What do you remember about?", "what do you remember about"),
    ("do you remember my editor?", "my editor"),
    ("list my memories", "list my memories"),
    ("Show me what you remember about Oslo", "about Oslo"),
]
NOTHING = [
    *("", " ", "?", "hello", "remember", "Remember the milk", "note", "noteworthy", "forget", "forget it"),
    # Nothing follows the phrase.
    *(
        "remember that",
        "Remember that.",
        "note that \u3002",
        "forget that",
        "stop remembering!",
        "delete memory about ?",
    ),
    *("always", "never.", "always use", "never do!", "remember:", "don't forget that"),
    # The phrase does not stand at the beginning, or goes on as another word.
    *(
        "please remember that I like tea",
        "I remember that",
        "You should always use pnpm",
        "\u201cremember that x\u201d",
    ),
    *(
        "'always use pnpm'",
        "> never do this",
        "remember thatch",
        "always-on display",
        "nevertheless",
        "forget thatcher",
    ),
    # What only looks like a rule.
    *("never mind", "Never mind, it works", "nevermind"),
    "what do you know about lifetimes in Rust?",
]


@pytest.mark.parametrize(("text", "content"), REMEMBERED)
def test_what_to_remember(text: str, content: str) -> None:
    found = detect_memory_command(text)
    assert found == RememberCommand(content)
    assert isinstance(found, RememberCommand)
    assert found.importance == 0.95


@pytest.mark.parametrize(("text", "query"), FORGOTTEN)
def test_what_to_forget(text: str, query: str) -> None:
    assert detect_memory_command(text) == ForgetCommand(query)


@pytest.mark.parametrize(("text", "query"), ASKED)
def test_what_is_asked(text: str, query: str) -> None:
    assert detect_memory_command(text) == RecallCommand(query)


@pytest.mark.parametrize("text", NOTHING)
def test_what_is_no_command(text: str) -> None:
    assert detect_memory_command(text) is None


@pytest.mark.parametrize("text", [None, b"always use pnpm", 3, ["note that x"]])
def test_what_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(InvalidInput, match="text must be a str, not"):
        detect_memory_command(text)


def test_a_long_message_is_looked_at_once() -> None:
    # A million spaces and stops by turns would take hours if each were stripped from the beginning on again.
    text = "remember that x" + " ." * 200_000
    assert detect_memory_command(text) == RememberCommand("x")
    assert detect_memory_command(" " * 1_000_000) is None


def test_a_command_is_frozen_and_says_its_kind_in_json() -> None:
    command = detect_memory_command("note that x")
    assert msgspec.json.encode(command) == b'{"type":"remember","content":"x","importance":0.95}'
    with pytest.raises(AttributeError):
        command.content = "y"  # type: ignore[union-attr, misc]
