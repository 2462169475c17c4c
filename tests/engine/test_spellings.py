"""A text is found in every spelling that JSON allows, also nested once, and no other text is taken for it."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold import Memory
from refold.engine.spellings import Spelling
from tests.engine.test_erasure import occurrences
from tests.support.memories import assert_sound

SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def codes(char: str, *, upper: bool) -> str:
    units = char.encode("utf-16-be").hex(" ", 2).split()
    return "".join(f"\\u{unit.upper() if upper else unit}" for unit in units)


def with_codes(chars: str, *, upper: bool, slash: bool = False) -> Callable[[str], str]:
    """An encoder that writes some characters as codes, and what JSON must escape as short escapes."""

    def encode(text: str) -> str:
        short = SHORT if slash else {key: value for key, value in SHORT.items() if key != "/"}
        return "".join(
            codes(char, upper=upper) if char in chars or (not chars and ord(char) > 126) else short.get(char, char)
            for char in text
        )

    return encode


ENCODERS: dict[str, Callable[[str], str]] = {
    "Python": lambda text: json.dumps(text)[1:-1],
    "JavaScript": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "Go": with_codes("<>&\u2028\u2029", upper=False),
    "PHP": with_codes("", upper=False, slash=True),
    "Gson": with_codes("<>&='", upper=False),
    ".NET": with_codes("<>&'\"+`\u00fc\u00df\u4e2d\u6587\U0001f511", upper=True),
    "Java": with_codes("", upper=True),
    "all": lambda text: "".join(codes(char, upper=True) for char in text),
}
TEXTS = (
    "tom&jerry4",
    "https://x.org/t0ken",
    "J\u00fcrgen",
    "O'Brien",
    'p"w 1234',
    "C:\\keys\\a",
    "-----BEGIN\nMIIE\r\n-----END",
    "tab\tand \u4e2d\u6587",
    "the key \U0001f511 of <all>",
    "\\\\\\\\",
    "Zanzibarquark",
    "http://[::1]/" + "long/" * 500,
)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_each_spelling_of_a_text_is_erased(tmp_path: Path, encoder: str) -> None:
    encode = ENCODERS[encoder]
    again = encode if encoder != "all" else ENCODERS["Python"]  # What an escape is made of is not escaped as codes.
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("chat", window_tokens=1_000_000)
        for text in TEXTS:
            once = f'{{"q":"{encode(text)}"}}'
            assert json.loads(once) == {"q": text}
            seqs = [chat.append("tool", content).seq for content in (once, f'{{"inner":"{again(once)}"}}')]
            seqs.append(memory.table("t").put("key", {"raw": once.encode()}).seq)
            harmless = chat.append("user", encode(text.replace(text[1], "?"))).seq
            receipt = memory.erase(text=text)
            assert receipt.seqs == tuple(seqs)
            assert (receipt.occurrences, memory.event(harmless).stamp.erased) == (0, False)
            assert occurrences(tmp_path / "store", once) == 0
        assert_sound(memory)


@given(
    text=st.text(min_size=4, max_size=40).filter(lambda text: not any("\ud800" <= char <= "\udfff" for char in text)),
    before=st.text('\\u0026"/ab\u00fc', max_size=8),
    seed=st.integers(0, 2**32),
    depth=st.integers(0, 2),
)
@settings(max_examples=300, deadline=None)
def test_any_mixture_of_escapes_is_found(text: str, before: str, seed: int, depth: int) -> None:
    drawn = random.Random(seed)
    written, around = text, before
    for _ in range(depth):
        written, around = mixed(written, drawn, inner=written is not text), mixed(around, drawn, inner=True)
    array = msgspec.msgpack.encode([2, {"key": [f"{around}{written}"]}])
    spelling = Spelling(text)
    assert spelling.is_in(array)
    assert spelling.may_be_in(b"\x5c" + array)


def mixed(text: str, drawn: random.Random, *, inner: bool) -> str:
    """Escape each character in one of its ways; of an escape that is escaped again, only what has a short escape."""
    ways = [
        [char] * (char not in '"\\' and ord(char) >= 32)
        + [SHORT.get(char, "")] * (char in SHORT)
        + [codes(char, upper=upper) for upper in (False, True)] * (not inner or char in SHORT)
        for char in text
    ]
    return "".join(drawn.choice(way or [codes(char, upper=True)]) for way, char in zip(ways, text, strict=True))


@pytest.mark.parametrize(
    "other", ["J\\u00fdrgen", "Ju\u0308rgen", "j\u00fcrgen", "J\\u00fc rgen", "J\\xfcrgen", "J\\u0fcrgen"]
)
def test_another_text_is_not_taken_for_it(other: str) -> None:
    assert not Spelling("J\u00fcrgen").is_in(msgspec.msgpack.encode([2, other, [other.encode()]]))
