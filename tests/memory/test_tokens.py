"""Counting tokens: the built-in estimate on fixed texts, what of a message is counted, and counters of one's own."""

import json
from pathlib import Path
from typing import Any

import pytest

from refold import Memory
from refold.limits import MEDIA_TOKENS
from refold.text import ByteClassCounter, TokenCounter
from tests.support.memories import remembering
from tests.support.paths import DATA, SAMPLE

TEXTS = {
    "": 0,
    "a": 1,
    "Hello!": 2,
    "hello world": 3,
    "1234567890": 6,
    "{}[]()": 4,
    "          ": 2,
    "\n\t\r": 1,
    "\u4e16\u754c": 3,
    "\U0001f600": 2,
    "UPPERCASE": 4,
    "The quick brown fox jumps over the lazy dog.": 9,
    '{"city": "Oslo", "nights": 3}': 11,
    "x" * 1_000: 195,
    "\0\x01\x7f": 2,
}


@pytest.mark.parametrize(("text", "tokens"), TEXTS.items(), ids=range(len(TEXTS)))
def test_the_estimate_of_a_fixed_text_never_changes(text: str, tokens: int) -> None:
    assert ByteClassCounter().count(text) == tokens
    assert ByteClassCounter().id == "refold-bytes-1"


WEIGHTS = (("a", 0.195), ("A", 0.195 + 0.151), ("0", 0.503), ("{", 0.599), (" ", 0.160), ("\u00e9", 2 * 0.382))


@pytest.mark.parametrize(("character", "weight"), WEIGHTS, ids=range(len(WEIGHTS)))
def test_the_weight_of_each_class_of_bytes(character: str, weight: float) -> None:
    assert ByteClassCounter().count(character * 10_000) == pytest.approx(weight * 10_000, abs=1)


def test_every_byte_belongs_to_one_class() -> None:
    counter = ByteClassCounter()
    singles = sum(counter.count(character * 1_000) for character in map(chr, range(128)))
    together = counter.count("".join(map(chr, range(128))) * 1_000)
    assert abs(singles - together) <= 128


CALL = {"id": "x", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
USE = {"type": "tool_use", "id": "x", "name": "look", "input": {"at": "sky"}}
RESULT = {"type": "tool_result", "tool_use_id": "x", "content": "blue"}
NESTED = {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": "blue"}, {"type": "image"}]}
IMAGE = {"type": "image_url", "image_url": {"url": "data:" + "x" * 10_000}}

COUNTED: dict[str, tuple[str, Any, list[dict[str, Any]] | None, list[str]]] = {
    "a text": ("user", "hello", None, ["hello"]),
    "nothing": ("assistant", None, None, []),
    "an empty list": ("user", [], None, []),
    "text parts": ("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], None, ["a", "b"]),
    "a picture has no text": ("user", [{"type": "text", "text": "a"}, IMAGE], None, ["a"]),
    "a refusal": ("assistant", [{"type": "refusal", "refusal": "no"}], None, ["no"]),
    "a result in JSON": ("user", [{"json": {"sky": "blue"}}], None, ['{"sky":"blue"}']),
    "a call of Gemini's": (
        "assistant",
        [{"functionCall": {"name": "look", "args": {"at": "sky"}}}],
        None,
        ["look", '{"at":"sky"}'],
    ),
    "documents that are text": (
        "user",
        [
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}},
            {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "b"}]}},
            {"type": "document", "source": {"type": "content", "content": "c"}},
            {"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": "ZA=="}},
            {"type": "file", "file": {"filename": "e.txt", "file_data": "data:text/plain;base64,ZQ=="}},
            {"type": "input_file", "filename": "f.txt", "file_data": "data:text/plain;base64,Zg=="},
            {"inlineData": {"mimeType": "text/plain", "data": "Zw=="}},
        ],
        None,
        list("abcdefg"),
    ),
    "names and arguments of calls": ("assistant", "hm", [CALL], ["hm", "look", '{"at": "sky"}']),
    "arguments as an object": (
        "assistant",
        None,
        [{"id": "x", "function": {"name": "look", "arguments": {"at": "sky"}}}],
        ["look", '{"at":"sky"}'],
    ),
    "a call of another shape": ("assistant", None, [{"id": "x", "function": "look"}], []),
    "a call without function": (
        "assistant",
        None,
        [{"id": "x", "name": "look", "input": {"a": 1}}],
        ["look", '{"a":1}'],
    ),
    "a used tool": ("assistant", [USE], None, ["look", '{"at":"sky"}']),
    "a result": ("user", [RESULT], None, ["blue"]),
    "a result of parts": ("user", [NESTED], None, ["blue"]),
    "thinking": ("assistant", [{"type": "thinking", "thinking": "hm"}], None, ["hm"]),
}


class Listing:
    """A counter that remembers what it was given."""

    id = "listing"

    def __init__(self) -> None:
        self.texts: list[str] = []

    def count(self, text: str) -> int:
        self.texts.append(text)
        return len(text)


@pytest.mark.parametrize("what", COUNTED)
def test_what_is_counted(what: str) -> None:
    role, content, calls, texts = COUNTED[what]
    counter = Listing()
    with Memory(token_counter=counter) as memory:
        message = memory.conversation("chat").append(role, content, tool_calls=calls)
        assert counter.texts == texts
        pictures = {"a picture has no text": 1, "a result of parts": 1}.get(what, 0)
        assert message.tokens == sum(map(len, texts)) + pictures * MEDIA_TOKENS["image"]


PDF: dict[str, Any] = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
MEDIA: list[tuple[str, dict[str, Any]]] = [
    ("image", IMAGE),
    ("image", {"type": "input_image", "file_id": "f1"}),
    ("image", {"type": "image", "source": {"type": "url", "url": "https://a.b/c.png"}}),
    ("image", {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}),
    ("audio", {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
    ("audio", {"inline_data": {"mime_type": "audio/wav", "data": "AAAA"}}),
    ("video", {"type": "video_url", "video_url": {"url": "https://a.b/c.mp4"}}),
    ("video", {"fileData": {"mimeType": "video/mp4", "fileUri": "https://a.b/c"}}),
    ("document", {"type": "document", "source": PDF}),
    ("document", {"type": "file", "file": {"file_id": "f1"}}),
    ("document", {"type": "input_file", "file_url": "https://a.b/c.pdf"}),
    ("document", {"fileData": {"fileUri": "https://a.b/c.pdf"}}),
    ("document", {"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": "?"}}),
    ("document", {"type": "document", "source": 5}),
    ("document", {"type": "file", "file": None}),
]


@pytest.mark.parametrize(("kind", "block"), MEDIA)
def test_a_block_that_is_no_text_counts_an_estimate_by_its_kind(kind: str, block: dict[str, Any]) -> None:
    with Memory() as memory:
        chat = memory.conversation("chat")
        assert chat.append("user", [block]).tokens == MEDIA_TOKENS[kind]
        nested = {"type": "tool_result", "tool_use_id": "x", "content": [block]}
        assert chat.append("user", [nested, block]).tokens == 2 * MEDIA_TOKENS[kind]
        assert chat.append("user", [block], tokens=7).tokens == 7


def test_photos_leave_the_window_when_they_are_too_many() -> None:
    with Memory() as memory:
        chat = memory.conversation("chat", window_tokens=4_000)
        for number in range(50):
            chat.append("user", [{"type": "text", "text": f"photo {number}"}, IMAGE])
        assert len(chat.window()) == 3
        assert chat.token_count() <= 4_000


class TestCounters:
    def test_the_built_in_one_is_a_counter(self) -> None:
        assert isinstance(ByteClassCounter(), TokenCounter)
        assert isinstance(Listing(), TokenCounter)
        assert not isinstance(object(), TokenCounter)

    def test_given_tokens_are_taken_and_not_counted(self) -> None:
        counter = Listing()
        with Memory(token_counter=counter) as memory:
            assert memory.conversation("chat").append("user", "hello", tokens=99).tokens == 99
            assert memory.conversation("chat").append("user", "hello", tokens=0).tokens == 0
        assert counter.texts == []

    def test_the_count_is_recorded_and_never_counted_again(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store", token_counter=Listing()) as memory:
            memory.conversation("chat").append("user", "hello world")
            hashed = memory.state_hash()
        with remembering(tmp_path / "store") as memory:
            assert (memory.conversation("chat").token_count(), memory.state_hash()) == (11, hashed)
            assert memory.conversation("chat").append("user", "hello world").tokens == 3

    def test_its_name_is_recorded_when_a_conversation_opens(self) -> None:
        with remembering(token_counter=Listing()) as memory:
            memory.conversation("chat").append("user", "x")
            opened = next(iter(memory.conversation("chat").events())).event
            assert getattr(opened, "counter", None) == "listing"

    def test_nothing_is_counted_for_what_is_refused(self) -> None:
        counter = Listing()
        with Memory(token_counter=counter) as memory:
            for content in (5, [5], "\ud800", [{"text": float("nan")}]):
                with pytest.raises(ValueError, match="content"):
                    memory.conversation("chat").append("user", content)  # type: ignore[arg-type]
        assert counter.texts == []


TAU = DATA / "tau-bench"


def sessions(directory: Path) -> list[list[dict[str, Any]]]:
    return [
        json.loads(line)["traj"]
        for path in sorted(directory.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


@pytest.mark.skipif(not TAU.is_dir(), reason="the tau-bench trajectories are not on this machine")
def test_the_estimate_is_near_a_real_vocabulary_on_recorded_sessions() -> None:
    vocabulary = pytest.importorskip("bpe_openai", reason="bpe-openai is not installed")
    encoding = vocabulary.get_encoding("o200k_base")
    texts = [message["content"] for session in sessions(TAU) for message in session if message.get("content")]
    truth = [len(encoding.encode(text)) for text in texts]
    estimates = list(map(ByteClassCounter().count, texts))
    assert 0.90 < sum(estimates) / sum(truth) < 1.10
    errors = [abs(estimate - true) / true for estimate, true in zip(estimates, truth, strict=True)]
    assert sum(errors) / len(errors) < 0.10


def test_counting_a_session_is_adding_up_its_messages() -> None:
    counter = ByteClassCounter()
    recorded = sessions(SAMPLE.parent)
    assert recorded
    with Memory(window_tokens=2**40) as memory:
        for number, session in enumerate(recorded):
            chat = memory.conversation(str(number))
            for message in session:
                chat.append(
                    message["role"],
                    message.get("content"),
                    tool_calls=message.get("tool_calls"),
                    tool_call_id=message.get("tool_call_id"),
                )
            plain = sum(counter.count(message["content"]) for message in session if message.get("content"))
            assert chat.token_count() >= plain
            assert chat.token_count() == sum(message.tokens for message in chat.window())
