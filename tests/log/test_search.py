"""The search for erased strings finds what a plain scan finds: in any file, any strings, across borders of chunks."""

import base64
import mmap
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from refold.limits import MARKER_BYTES_MIN, OCCURRENCES_COUNT_MAX
from refold.log import search as log_search
from refold.log.lmdb_file import LOCK_FILE
from refold.log.search import search

WORDS = (b"alpha ", b"beta ", b"gamma ", b"delta ", b"epsilon ")
CHUNK_WORDS = mmap.PAGESIZE // 8
SEEDS = range(12)


@pytest.fixture
def small() -> Iterator[None]:
    """Chunks of a page, so that a small file has many borders, and few pairs compared at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_search, "_CHUNK_WORDS", CHUNK_WORDS)
        patch.setattr(log_search, "_SAMPLED", 2)
        patch.setattr(log_search, "_STARTS_MAX", 200)
        patch.setattr(log_search, "_PAIRS_MAX", 50)
        yield


def plain(content: bytes, strings: list[bytes]) -> int:
    """How often the strings stand there, overlapping ones too, as far as each is counted."""
    total = 0
    for string in strings:
        count, at = 0, content.find(string)
        while at >= 0 and count < OCCURRENCES_COUNT_MAX:
            count, at = count + 1, content.find(string, at + 1)
        total += count
    return total


def counted(path: Path, content: bytes, strings: list[bytes]) -> int:
    path.write_bytes(content)
    with path.open("rb") as file:
        return log_search.count(mmap.mmap(file.fileno(), len(content), prot=mmap.PROT_READ), strings)


def content_of(random: Random) -> bytes:
    """A file of one of several kinds, which share more or less with themselves; its length is no multiple of a word."""
    length = random.choice([MARKER_BYTES_MIN, 100, mmap.PAGESIZE, random.randrange(20, 4 * mmap.PAGESIZE)])
    kind = random.choice(["bytes", "words", "zeros", "runs"])
    if kind == "bytes":
        return random.randbytes(length)
    if kind == "words":
        return b"".join(random.choices(WORDS, k=length // 4 + 8))[:length]
    if kind == "zeros":
        return bytes(length - MARKER_BYTES_MIN) + random.randbytes(MARKER_BYTES_MIN)
    return b"".join(bytes([random.randrange(3)]) * random.randrange(1, 60) for _ in range(length))[:length]


def strings_of(random: Random, content: bytes) -> list[bytes]:
    """Strings that stand in the file, some at its ends or at borders of chunks, and some that nearly do."""
    borders = [0, len(content), *range(0, len(content), mmap.PAGESIZE)]
    found = set[bytes]()
    for _ in range(random.randint(1, 30)):
        length = min(random.choice([16, 17, 22, 23, 24, 38, 39, 71, 135, 136, 300, 5_000]), len(content))
        near = random.choice(borders) - random.randint(0, length)
        begin = max(0, min(near if random.getrandbits(1) else random.randrange(len(content)), len(content) - length))
        string = content[begin : begin + length]
        found.add(string)
        changed = bytearray(string)
        changed[random.randrange(length)] ^= 1
        found.add(bytes(changed))
    return sorted(found)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_plain_scan_finds_is_found(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    for number in range(4):
        content = content_of(random)
        strings = strings_of(random, content)
        expected = plain(content, strings)
        assert expected > 0
        assert counted(tmp_path / "file", content, strings) == expected, (seed, number)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("length", [16, 22, 23, 39, 135, 700])
def test_a_string_is_found_wherever_it_stands(tmp_path: Path, length: int) -> None:
    """At each byte around a border of chunks, once among zeros and once among others that begin as it does."""
    random = Random(length)
    string = random.randbytes(length)
    for filler in (b"\0", string[:-1]):
        whole = filler * (3 * mmap.PAGESIZE // len(filler) + 1)
        for at in range(mmap.PAGESIZE - 20, mmap.PAGESIZE + 20):
            content = whole[:at] + string + whole[at:]
            assert counted(tmp_path / "file", content, [string]) == plain(content, [string]), at


@pytest.mark.parametrize("seed", [1])
def test_with_the_bounds_as_they_are(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    content = b"".join(random.choices(WORDS, k=100_000))
    strings = sorted({content[at : at + random.randint(16, 400)] for at in random.choices(range(400_000), k=200)})
    expected = sum(content.count(string) > 0 for string in strings)
    assert expected == len(strings)
    found = counted(tmp_path / "file", content, strings)
    assert found == plain(content, strings)


def test_what_stands_everywhere_is_counted_so_far(tmp_path: Path) -> None:
    """Comparing a long text at every place of a longer one of the same would take for ever."""
    content = b"x" * 5_000_000
    assert counted(tmp_path / "file", content, [b"x" * 1_000_000, b"x" * 2_000_000]) == 2 * OCCURRENCES_COUNT_MAX


def test_every_file_below_the_directory_is_searched_but_the_locks(tmp_path: Path) -> None:
    marker = b"a text that is looked for"
    (tmp_path / "below").mkdir()
    for name in ("data.mdb", "below/data.mdb", LOCK_FILE):
        (tmp_path / name).write_bytes(b"before " + marker + b" after")
    (tmp_path / "empty").touch()
    found = search(str(tmp_path), [marker])
    assert (found.files, found.occurrences) == (3, 2)
    assert found.bytes == 2 * (len(marker) + 13)
    assert search(str(tmp_path), []).occurrences == 0


@pytest.mark.parametrize("before", range(4))
def test_base64_is_found_at_each_place_where_it_may_begin(tmp_path: Path, before: int) -> None:
    marker = os.urandom(40)
    encoded = base64.b64encode(bytes(before) + marker + b"behind it")
    (tmp_path / "file").write_bytes(b"{" + encoded + b"}")
    assert search(str(tmp_path), [marker]).occurrences == 1


def test_a_search_takes_memory_by_the_chunk(tmp_path: Path) -> None:
    """A file in which all strings seem to stand everywhere makes many pairs; they are compared a part at a time."""
    most = 0
    original = log_search._count_pairs

    def noting(*arguments: Any) -> int:
        nonlocal most
        most = max(most, int(arguments[-1].sum()))
        return original(*arguments)

    strings = [b"x" * 100 + b"%03d" % number for number in range(300)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_search, "_count_pairs", noting)
        patch.setattr(log_search, "_PAIRS_MAX", 10_000)
        assert counted(tmp_path / "file", b"x" * 20_000 + strings[7], strings) == 1
    assert 0 < most <= 10_000


def test_more_strings_take_more_passes_and_no_more_memory(tmp_path: Path) -> None:
    """The strings are random bytes like vectors; eight times as many may not take twice the memory."""
    random = Random(7)
    markers = [random.randbytes(2_000) for _ in range(1_600)]
    (tmp_path / "file").write_bytes(b"before " + b" ".join([markers[3], *markers[-3:]]) + base64.b64encode(markers[9]))
    peaks = list[int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_search, "_FORMS_BYTES", 1 << 20)
        for count, expected in ((200, 2), (1_600, 5)):
            tracemalloc.start()
            found = search(str(tmp_path), markers[:count])
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert (found.files, found.bytes, found.occurrences) == (1, (tmp_path / "file").stat().st_size, expected)
    assert peaks[1] < 2 * peaks[0], peaks
    tracemalloc.start()
    search(str(tmp_path), markers[:800])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 5 * 2_000 * 800, "less than eight times the bytes of the strings and of their base64 forms"
