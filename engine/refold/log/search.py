"""Searches every file of a directory for byte strings, in the time of reading it a few times; loads numpy.

The files are read anew for each batch of strings, so that the memory used is bounded.
"""

import mmap
import os
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from refold.limits import MARKER_BYTES_MIN, OCCURRENCES_COUNT_MAX
from refold.log.ballast import BALLAST_FILE
from refold.log.environment import TURN_LOCK
from refold.log.lmdb_file import LOCK_FILE
from refold.log.protocol import SearchCounts
from refold.log.reservation import RESERVATIONS

# Searches one file for many byte strings at once, in the time of reading it a few times.
#
# A string of at least ``MARKER_BYTES_MIN`` bytes covers aligned words of eight bytes, wherever it begins. So the search
# looks for eight runs of its words, one for each byte of a word at which the string can begin: for each of these, the
# run that is rarest in a sample of the file. The file is read once, as words. The hash of each run of words is looked
# up in a table, and each match is compared, in the end byte for byte. Every occurrence is found exactly once, because
# there one of the string's eight runs begins at a word boundary. If a string is everywhere, such as a line of blanks,
# ``OCCURRENCES_COUNT_MAX`` occurrences of it are counted.

_Words: TypeAlias = NDArray[np.uint64]
_Places: TypeAlias = NDArray[np.intp]
_Counts: TypeAlias = NDArray[np.int32]

_WORD_BYTES: Final = 8
_RUNS: Final = (1, 2, 4, 16)
"""The possible lengths of a run in words; a string gets the longest that it covers wherever it begins, as it is rarer.
"""

_CHUNK_WORDS: Final = 1 << 16
"""Words that are hashed at a time, so that the data in use stays in the processor's cache."""

_SAMPLED: Final = 16
"""One in this many chunks is sampled."""

_STARTS_MAX: Final = 1 << 18
"""The maximum number of runs among which the rarest ones are chosen, for all strings together."""
_STARTS_EACH_MAX: Final = 256
"""The same for each string."""

_PAIRS_MAX: Final = 1 << 17
"""The number of pairs of a place and a string compared at a time, which bounds the memory used."""

_FORMS_BYTES: Final = 1 << 25
"""The bytes of strings that are searched for in one pass over the files, which bounds the memory used."""

_BUCKETS_EACH: Final = 32
"""Buckets of the table per run, as far as ``_BITS`` allows."""
_BITS: Final = (16, 22)

_ODD: Final = 0x9E3779B97F4A7C15
_MIX: Final = np.uint64(0xD6E8FEB86659FD93)
_POWERS: Final = {1 << power: np.uint64(pow(_ODD, 1 << power, 1 << 64)) for power in range(_RUNS[-1].bit_length())}

assert all(longer % run == 0 for run, longer in pairwise(_RUNS)), "a run is made of shorter ones"
assert _RUNS[0] * _WORD_BYTES + _WORD_BYTES - 1 <= MARKER_BYTES_MIN


class _Pattern(NamedTuple):
    """The strings that are searched for by runs of one length, and their runs, grouped by bucket."""

    strings: Sequence[bytes]
    lengths: _Places
    probes: tuple[tuple[_Places, _Words], ...]
    """Places in each string (its end, beginning and middle), with the words that begin there."""
    numbers: _Places
    """The number of each run's string."""
    offsets: _Places
    """The offset of each run in its string."""
    first: _Counts
    """Bucket -> its first run, which is the next bucket's first if it has none; one more at the end."""
    is_wanted: NDArray[np.bool_]
    """Bucket -> whether it has any run."""
    left: _Counts
    """How many more occurrences of each string are counted."""


def count(content: mmap.mmap, strings: Sequence[bytes]) -> int:
    """Return how often any of the strings, each of ``MARKER_BYTES_MIN`` bytes or more, occurs in a mapped file."""
    shift = np.uint64(64 - _bits(8 * len(strings)))
    words = np.frombuffer(content, np.uint64, len(content) // _WORD_BYTES)
    groups = _group_by_run(strings)
    seen = _sample_counts(words, list(groups), shift)
    wanted = {run: _build_pattern(group, run, seen.pop(run), shift) for run, group in groups.items()}
    found = 0
    for begin in range(0, len(words), _CHUNK_WORDS):
        chunk = words[begin : begin + _CHUNK_WORDS + _RUNS[-1] - 1]
        for run, buckets in _buckets(chunk, list(groups), shift):
            found += _count_chunk(content, wanted[run], buckets[:_CHUNK_WORDS], begin)
        _forget(content, begin)
    return found


def _bits(runs: int) -> int:
    least, most = _BITS
    return min(max((runs * _BUCKETS_EACH).bit_length(), least), most)


def _group_by_run(strings: Sequence[bytes]) -> dict[int, list[bytes]]:
    """Group the strings by the longest run that each covers wherever it begins, shorter runs first."""
    groups: dict[int, list[bytes]] = {run: [] for run in _RUNS}
    for string in strings:
        groups[max(run for run in _RUNS if run * _WORD_BYTES + _WORD_BYTES - 1 <= len(string))].append(string)
    return {run: group for run, group in groups.items() if group}


def _buckets(words: _Words, runs: Sequence[int], shift: np.uint64) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield, for each run length, the buckets of all runs."""
    hashes, length = words, 1
    for run in runs:
        while length < run:
            hashes = hashes[:-length] * _POWERS[length] + hashes[length:]
            length *= 2
        yield run, ((hashes * _MIX) >> shift).view(np.int64)


def _buckets_at(grams: _Words, begins: _Places, run: int, shift: np.uint64) -> NDArray[np.int64]:
    """Return the buckets of the runs that begin at some bytes, given the words that begin at each byte."""
    hashes = grams[begins]
    for place in range(1, run):
        hashes = hashes * _POWERS[1] + grams[begins + place * _WORD_BYTES]
    return ((hashes * _MIX) >> shift).view(np.int64)


def _sample_counts(words: _Words, runs: Sequence[int], shift: np.uint64) -> dict[int, _Counts]:
    """Return, for each run length, how often each bucket occurs in a sample of the words."""
    size = 1 << (64 - int(shift))
    seen = {run: np.zeros(size, np.int32) for run in runs}
    for begin in range(0, len(words), _CHUNK_WORDS * _SAMPLED):
        for run, buckets in _buckets(words[begin : begin + _CHUNK_WORDS], runs, shift):
            seen[run] += np.bincount(buckets, minlength=size).astype(np.int32)
    return seen


def _build_pattern(strings: Sequence[bytes], run: int, seen: _Counts, shift: np.uint64) -> _Pattern:
    """Return the strings with the rarest of their runs for each byte of a word at which they can begin."""
    lengths = np.array([len(string) for string in strings], np.intp)
    begins = np.cumsum(lengths) - lengths
    blob = b"".join(strings)
    grams = _unaligned_words(blob)
    numbers, offsets = _starts(lengths - run * _WORD_BYTES + 1)
    found = _buckets_at(grams, begins[numbers] + offsets, run, shift)
    ways = numbers * _WORD_BYTES + offsets % _WORD_BYTES
    order = np.lexsort((offsets, seen[found], ways))
    chosen = order[np.flatnonzero(np.diff(ways[order], prepend=-1))]
    chosen = chosen[np.argsort(found[chosen], kind="stable")]
    counts = np.bincount(found[chosen], minlength=len(seen))
    left = np.full(len(strings), OCCURRENCES_COUNT_MAX, np.int32)
    first = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    places = (lengths - _WORD_BYTES, np.zeros_like(lengths), (lengths - _WORD_BYTES) // 2)
    probes = tuple((place, grams[begins + place]) for place in places)
    return _Pattern(strings, lengths, probes, numbers[chosen], offsets[chosen], first, counts > 0, left)


def _unaligned_words(content: Any) -> _Words:
    """Return a view of the words that begin at each byte."""
    return np.ndarray((len(content) - _WORD_BYTES + 1,), np.uint64, content, strides=(1,))


def _starts(counts: _Places) -> tuple[_Places, _Places]:
    """Return string numbers and offsets at which runs begin, given the number of runs of each string, at least eight.

    The offsets come in blocks of eight, one for each byte of a word. For long strings only some blocks are used, spread
    from beginning to end, because the text they share with other strings may be at either end.
    """
    blocks = -(-counts // _WORD_BYTES)
    most = max(min(_STARTS_MAX // len(counts), _STARTS_EACH_MAX) // _WORD_BYTES, 1)
    taken = np.minimum(blocks, most)
    each = taken * _WORD_BYTES
    numbers = np.repeat(np.arange(len(counts)), each)
    within = np.arange(len(numbers)) - np.repeat(np.cumsum(each) - each, each)
    block, place = np.divmod(within, _WORD_BYTES)
    block = block * (blocks - 1)[numbers] // np.maximum(taken - 1, 1)[numbers]
    offsets = block * _WORD_BYTES + place
    is_there = offsets < counts[numbers]
    return numbers[is_there], offsets[is_there]


def _count_chunk(content: mmap.mmap, wanted: _Pattern, buckets: NDArray[np.int64], begin: int) -> int:
    """Return how many strings occur where one of their runs begins at a word of this chunk."""
    at = np.flatnonzero(wanted.is_wanted.take(buckets))
    first = wanted.first[buckets[at]]
    counts = wanted.first[buckets[at] + 1] - first
    until: _Places = np.cumsum(counts)
    found = done = 0
    while done < len(at):
        bound = int(until[done]) - int(counts[done]) + _PAIRS_MAX
        end = max(int(np.searchsorted(until, bound, "right")), done + 1)
        places = (at[done:end] + begin) * _WORD_BYTES
        found += _count_pairs(content, wanted, places, first[done:end], counts[done:end])
        done = end
    return found


def _count_pairs(content: mmap.mmap, wanted: _Pattern, places: _Places, first: _Counts, counts: _Counts) -> int:
    """Return how many strings occur where one of their runs begins: at each place ``counts`` runs from ``first`` on."""
    which = np.repeat(np.arange(len(counts)), counts)
    runs = first[which] + np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    numbers = wanted.numbers[runs]
    begins = places[which] - wanted.offsets[runs]
    is_inside = (begins >= 0) & (begins + wanted.lengths[numbers] <= len(content)) & (wanted.left[numbers] > 0)
    numbers, begins = numbers[is_inside], begins[is_inside]
    grams = _unaligned_words(content)
    for offsets, words in wanted.probes:
        is_same = grams[begins + offsets[numbers]] == words[numbers]
        numbers, begins = numbers[is_same], begins[is_same]
    found = 0
    pairs: Iterable[tuple[int, int]] = zip(begins.tolist(), numbers.tolist(), strict=True)
    for at, number in pairs:
        string = wanted.strings[number]
        if wanted.left[number] and content[at : at + len(string)] == string:
            wanted.left[number] -= 1
            found += 1
    return found


def _forget(content: mmap.mmap, begin: int) -> None:
    """Let the system reclaim the pages that were read, so that they do not count as this process's memory."""
    if hasattr(mmap, "MADV_DONTNEED"):
        chunk_bytes = _CHUNK_WORDS * _WORD_BYTES
        at = begin * _WORD_BYTES
        content.madvise(mmap.MADV_DONTNEED, at, min(chunk_bytes, len(content) - at))


assert _CHUNK_WORDS * _WORD_BYTES % mmap.PAGESIZE == 0


_LEFT_OUT: Final = frozenset((LOCK_FILE, TURN_LOCK, BALLAST_FILE))
"""Files that hold only numbers of processes and transactions, and one to which no data is ever written. A process that
closes one of the first two loses all its locks on it: LMDB would take the process for dead."""


def search(directory: str, markers: Iterable[bytes]) -> SearchCounts:
    """Return how often any of the markers, as it is or in base64, occurs in the files below the directory.

    Many markers are searched for in several passes, so that the memory used does not grow with them. A base64 form that
    markers of different passes share is counted once for each pass.
    """
    passes = [_search_once(directory, forms) for forms in _batches(markers)]
    return passes[0]._replace(occurrences=sum(each.occurrences for each in passes))


def _batches(markers: Iterable[bytes]) -> Iterator[set[bytes]]:
    """Yield the markers and their base64 forms in batches of about ``_FORMS_BYTES``; an empty one if there are none."""
    forms, size = set[bytes](), 0
    for marker in sorted(markers):  # Those that share a form mostly stand together.
        assert len(marker) >= MARKER_BYTES_MIN, "a marker that is too short to look for"
        if size > _FORMS_BYTES:
            yield forms
            forms, size = set[bytes](), 0
        own = [marker, *_base64_forms(marker)]
        forms.update(own)
        size += sum(map(len, own))
    yield forms


def _search_once(directory: str, forms: Iterable[bytes]) -> SearchCounts:
    files = searched_bytes = occurrences = 0
    for place, directories, names in os.walk(directory):
        if place == directory and RESERVATIONS in directories:
            directories.remove(RESERVATIONS)
        for name in names:
            if name in _LEFT_OUT:
                continue
            with open(os.path.join(place, name), "rb") as file:
                length = os.fstat(file.fileno()).st_size
                files, searched_bytes = files + 1, searched_bytes + length
                occurrences += _count_in_file(file.fileno(), length, sorted(forms))
    return SearchCounts(files, searched_bytes, occurrences)


def _base64_forms(marker: bytes) -> Iterable[bytes]:
    """Return the base64 of the marker for each of the three offsets at which it can begin in a longer string."""
    for before in range(3):
        encoded = b64encode(bytes(before) + marker)
        # Cut off characters of the first and the last group that also encode neighbouring bytes.
        begin, end = -(-before * 8 // 6), len(encoded) - (4 if (before + len(marker)) % 3 else 0)
        yield encoded[begin:end]


def _count_in_file(file: int, length: int, forms: Sequence[bytes]) -> int:
    """Return how often a form occurs in a file."""
    if length < MARKER_BYTES_MIN or not forms:
        return 0
    # The map is closed with its last reference: after an error, views of it may live on in the traceback.
    return count(mmap.mmap(file, length, prot=mmap.PROT_READ), forms)
