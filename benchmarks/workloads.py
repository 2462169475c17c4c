"""The workloads, seeded, so that refold, the floors and the peers do the same work on the same texts."""

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from refold import Conversation, Memory
from refold.log.protocol import Log
from refold.log.record import EventBytes

SEED = 20_261_121
TEXT_BYTES_MIN = 100
TEXT_BYTES_MAX = 320
TEXTS = 1_000
BYTES_PER_TOKEN = 4
WINDOW_TOKENS = 4_000
"""A window of about 76 of these messages, so that nearly every append evicts one."""

WINDOW_MESSAGES = 115
"""The live messages of the window benchmark: a chat of some hours."""

MESSAGE_TOKENS = 50
"""Every message of the window benchmark counts the same, so that the window holds WINDOW_MESSAGES exactly."""

WIDE = 200
"""Conversations of the wide log; their evicted messages have long left the processor's cache."""

_LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


class Sizes(NamedTuple):
    """How much of everything: FULL for figures, TINY for the question whether it works at all."""

    batch_events: int
    log_events: int
    peer_log_events: int
    window_operations: int
    targets: int
    fork_events: int
    processes: int
    rounds: int
    writer_events: int
    thread_events: int
    task_events: int
    many_conversations: int
    many_targets: int
    large_events: int
    search_rows: int
    large_search_rows: int
    search_queries: int
    search_projects: int
    spread_projects: int
    budget_events: int
    session_memories: int
    million_rows: int
    growth_events: tuple[int, ...]
    growth_memories: tuple[int, ...]


FULL = Sizes(
    batch_events=1_000,
    log_events=100_000,
    peer_log_events=10_000,
    window_operations=1_000,
    targets=60,
    fork_events=60,
    processes=15,
    rounds=60,
    writer_events=25,
    thread_events=50,
    task_events=20,
    many_conversations=100_000,
    many_targets=2_000,
    large_events=1_000_000,
    search_rows=10_000,
    large_search_rows=100_000,
    search_queries=200,
    search_projects=1_000,
    spread_projects=10_000,
    budget_events=100_000,
    session_memories=10_000,
    million_rows=1_000_000,
    growth_events=(1_000, 10_000, 100_000, 1_000_000),
    growth_memories=(1_000, 10_000, 100_000),
)
QUICK = FULL._replace(
    log_events=20_000,
    budget_events=40_000,
    session_memories=1_000,
    peer_log_events=2_000,
    targets=30,
    fork_events=30,
    processes=5,
    rounds=20,
    growth_events=(1_000, 10_000, 30_000),
    growth_memories=(1_000, 3_000),
)
TINY = Sizes(
    batch_events=30,
    log_events=900,
    peer_log_events=60,
    window_operations=150,
    targets=6,
    fork_events=4,
    processes=1,
    rounds=1,
    writer_events=3,
    thread_events=2,
    task_events=2,
    many_conversations=60,
    many_targets=20,
    large_events=900,
    search_rows=1_200,
    large_search_rows=1_500,
    search_queries=5,
    search_projects=3,
    spread_projects=4,
    budget_events=300,
    session_memories=100,
    million_rows=1_500,
    growth_events=(500, 1_500),
    growth_memories=(100, 300),
)


class Text(NamedTuple):
    """A message's content and its tokens, given so that no counter takes part."""

    content: str
    tokens: int


@cache
def texts(seed: int = SEED) -> tuple[Text, ...]:
    """Return texts of 100 to 320 bytes, made of words."""
    generator = random.Random(seed)
    return tuple(_text(generator) for _ in range(TEXTS))


def _text(generator: random.Random) -> Text:
    size = generator.randint(TEXT_BYTES_MIN, TEXT_BYTES_MAX)
    words: list[str] = []
    while sum(map(len, words)) + len(words) < size:
        words.append("".join(generator.choices(_LETTERS[:20], k=generator.randint(2, 9))))
    content = " ".join(words)[:size]
    return Text(content, size // BYTES_PER_TOKEN)


def share(place: int, count: int) -> list[Text]:
    """Return what one of several writers says in a round: texts of its own, as far as there are enough."""
    said = texts()
    return [said[(place * count + turn) % TEXTS] for turn in range(count)]


def sized(content_bytes: int, count: int) -> list[Text]:
    """Return texts of a given size, each another one."""
    whole = " ".join(text.content for text in texts())
    step = (len(whole) - content_bytes) // count
    return [Text(whole[turn * step :][:content_bytes], content_bytes // BYTES_PER_TOKEN) for turn in range(count)]


def say(chat: Conversation, said: Sequence[Text]) -> None:
    """Append every text by itself, each durable when its append returns."""
    for content, tokens in said:
        chat.append("user", content, tokens=tokens)


def handles(memory: Memory, count: int) -> list[Conversation]:
    """Return handles on so many conversations."""
    return [memory.conversation(f"chat-{number:04d}") for number in range(count)]


def append_batch(memory: Memory, chats: Sequence[Conversation], said: Sequence[Text]) -> None:
    """Append every text, to the conversations in turn, in one commit: the whole public path."""
    count = len(chats)
    with memory.batch():
        for place, (content, tokens) in enumerate(said):
            chats[place % count].append("user", content, tokens=tokens)


def fill(
    path: Path,
    events: int,
    conversations: int,
    batch_events: int = FULL.batch_events,
    window_tokens: int = WINDOW_TOKENS,
) -> Memory:
    """Return a store with so many messages, spread over the conversations."""
    memory = Memory(path, window_tokens=window_tokens)
    chats = handles(memory, conversations)
    said = texts()
    for begin in range(0, events, batch_events):
        count = min(batch_events, events - begin)
        append_batch(memory, chats, [said[(begin + place) % TEXTS] for place in range(count)])
    return memory


RECORD_BYTES = 160
"""What the first format wrote beside the text of a message: 106 bytes of header, 16 of salt, and 38 of an array with an
id of 20 characters, a role of four, tokens below 128 and a text of at most 31 bytes. Measured at the last commit that
wrote it, 3c98335, over all texts of this file: 161 bytes and a text of 100 to 255, 162 and a longer one."""


def record_bytes(text_bytes: int) -> int:
    """Return how many bytes the first format wrote for a message: what the floors of writes put, whatever is now."""
    return RECORD_BYTES + text_bytes + sum(text_bytes > bound for bound in (31, 255, 65_535))


def records(said: Sequence[Text]) -> list[bytes]:
    """Return a record of the first format's size for each text, the text in it."""
    encoded = [text.content.encode() for text in said]
    return [text.ljust(record_bytes(len(text)), b"\0") for text in encoded]


def events(memory: Memory, first_seq: int, count: int) -> list[EventBytes]:
    """Return the events that refold wrote, byte for byte, from below its public face."""
    return log_of(memory).events_at(range(first_seq, first_seq + count))


def engine_of(memory: Memory) -> Any:
    """Return the engine behind a memory: floors have to see what lies beneath the public face."""
    return memory._core.engine  # pyright: ignore[reportPrivateUsage]


def log_of(memory: Memory) -> Log:
    """Return the log behind a memory."""
    log: Log = engine_of(memory).reader.log
    return log
