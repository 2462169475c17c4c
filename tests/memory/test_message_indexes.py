"""Messages whose terms the store has: found as those that are split anew, and believed for no other text."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import Memory
from refold.engine.packed import KNOWN_PREFIX, terms_key
from refold.index.messages import KnownMessages, MessageIndex, MessageRow, search
from refold.index.terms import STEMMERS, Words
from refold.log.protocol import write
from tests.support.bounds import lowered
from tests.support.seams import log_of

WORDS = (
    "port",
    "ports",
    "kitchen",
    "paint",
    "painted",
    "Ada",
    "Stra\u00dfe",
    "\u6771\u4eac\u90fd",
    "running",
    "runs",
    "8080",
)
QUERIES = ("which ports?", "When do we paint the kitchen?", "run", "\u6771\u4eac", "strasse 8080")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Where a store may be that has the terms of messages, however few there are."""
    with lowered(KNOWN_EVENTS_COUNT=8, KNOWN_ROWS_COUNT=100):
        yield tmp_path / "store"


def text(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randrange(1, 9))) + draw.choice(["", ".", "?"])


def answers(memory: Memory) -> list[Any]:
    """What is found in each conversation and in all of them, and what a context shows of earlier messages."""
    found: list[Any] = []
    for query in QUERIES:
        found.append([(hit.entry, hit.score, hit.parts) for hit in memory.search_messages(query, top_k=30)])
        for name in memory.conversations():
            chat = memory.conversation(name)
            found.append([(hit.entry, hit.score, hit.parts) for hit in chat.search(query, top_k=30, explain=True)])
            found.append(memory.context(chat, query=query).text)
    return found


def known_in(memory: Memory) -> dict[bytes, bytes]:
    return {key: row for key, row in log_of(memory).rows("graphs", b"", 1_000) if key.startswith(KNOWN_PREFIX)}


def strip(path: Path) -> None:
    with Memory(path) as memory:
        write(log_of(memory), (), [("graphs", key, None) for key in known_in(memory)])


def step(memory: Memory, draw: random.Random) -> None:
    chat = memory.conversation(draw.choice(["a", "b"]), window_tokens=60)
    window = chat.window()
    verb = draw.randrange(12)
    if verb == 0 and window:
        chat.replace(draw.choice(window).id, text(draw))
    elif verb == 1:
        chat.clear_window()
    elif verb == 2 and chat.version and "fork" not in memory.conversations():
        chat.fork("fork")
    else:
        chat.append(draw.choice(["user", "assistant"]), text(draw), name=draw.choice([None, "Ada"]))


@pytest.mark.parametrize("seed", range(4))
def test_messages_are_found_as_without_rows_of_their_terms(seed: int, path: Path, tmp_path: Path) -> None:
    draw = random.Random(seed)
    for session in range(5):
        with Memory(path) as memory:
            for _ in range(25):
                step(memory, draw)
            if session == 3:
                memory.erase([memory.conversation("a").append("user", text(draw))])
            seen = answers(memory)
        plain = tmp_path / f"plain {session}"
        shutil.copytree(path, plain)
        strip(plain)
        for place in (path, plain):
            with Memory(place, readonly=True) as memory:
                assert bool(known_in(memory)) == (place is path)
                assert answers(memory) == seen
    with Memory(path) as memory:
        assert len(known_in(memory)) == memory.head // 8
        assert memory.verify().ok


@pytest.mark.parametrize("kind", ["flipped", "cut", "of other messages"])
def test_rows_that_do_not_fit_are_passed_over(kind: str, path: Path) -> None:
    draw = random.Random(1)
    with Memory(path) as memory:
        for _ in range(40):
            step(memory, draw)
        expected = answers(memory)
    with Memory(path) as memory:
        rows = known_in(memory)
        key, row = min(rows.items())
        others = {
            "flipped": row[:-1] + bytes([row[-1] ^ 1]),
            "cut": row[: len(row) // 2],
            "of other messages": rows[terms_key(1)],
        }
        write(log_of(memory), (), [("graphs", key, others[kind])])
    with Memory(path) as memory:
        (finding,) = memory.verify().findings
        assert (finding.check, finding.fault) == ("graphs", "cache")
        assert answers(memory) == expected


def test_no_word_of_an_erased_message_stands_in_them(path: Path) -> None:
    with Memory(path) as memory:
        chat = memory.conversation("a")
        for number in range(10):
            chat.append("user", f"number {number}")
        secret = chat.append("user", "xylophonic zanzibar")
        for number in range(10):
            chat.append("user", f"number {number}")
        assert chat.search("zanzibar")
    with Memory(path) as memory:
        assert any(b"zanzibar" in row for row in known_in(memory).values())
        memory.erase([secret])
        assert not memory.conversation("a").search("zanzibar")
        memory.flush()
        assert len(known_in(memory)) == memory.head // 8
    content = b"".join(file.read_bytes() for file in path.iterdir() if file.is_file())
    assert b"zanzibar" not in content
    assert b"xylophon" not in content
    with Memory(path) as memory:
        assert memory.verify().ok


texts = st.lists(st.sampled_from([*WORDS, "the", "?", "eying", "universally", "univers"]), max_size=8).map(" ".join)


@given(texts=st.lists(texts, max_size=12), known=st.sets(st.integers(0, 11)), query=texts)
def test_an_index_of_known_messages_equals_one_of_their_texts(texts: list[str], known: set[int], query: str) -> None:
    rows = [MessageRow(place + 1, 0, "conversation/a", 0, text) for place, text in enumerate(texts)]
    other = [row._replace(text="another text") for row in rows]
    packed = KnownMessages(KnownMessages.pack(rows[place] for place in sorted(known) if place < len(rows)))
    foreign = KnownMessages(KnownMessages.pack(other))
    plain, mixed, unfit = MessageIndex(), MessageIndex(), MessageIndex()
    plain.extend(rows)
    mixed.extend(rows, packed.find)
    unfit.extend(rows, foreign.find)
    assert all((packed.find(row) is not None) == (row.seq - 1 in known) for row in rows)
    found = [search([index.view(None)], query, None, 20, explain=True) for index in (plain, mixed, unfit)]
    assert found[0] == found[1] == found[2]


ENDINGS = (
    "",
    "s",
    "es",
    "ies",
    "ed",
    "ing",
    "ly",
    "y",
    "ization",
    "ational",
    "biliti",
    "fulness",
    "ement",
    "ion",
    "ll",
    "e",
)


@given(
    words=st.lists(st.builds("{}{}{}".format, st.text("abeioustlyz", max_size=4), *[st.sampled_from(ENDINGS)] * 2)),
    stemmer=st.sampled_from(sorted(STEMMERS)),
)
def test_the_words_of_a_term_are_those_that_have_it_as_their_stem(words: list[str], stemmer: str) -> None:
    known, present = Words(stemmer), [word for word in words if word]
    known.add(present)
    known.flush()
    for term in {STEMMERS[stemmer](word) for word in present} | {"a", "absent"}:
        assert sorted(known.find_words(term)) == sorted({word for word in present if STEMMERS[stemmer](word) == term})
