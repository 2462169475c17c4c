"""What a model is shown of its files, and how a text becomes another one; pure.

The texts are a contract: models were trained on them, so that they stand here letter by letter as the reference
implementation of Anthropic's memory tool has them.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from refold.errors import InvalidInput, LimitExceeded
from refold.views.files import Node, Tree

LINES_COUNT_MAX: Final = 999_999
"""Lines of a file that can be shown: their numbers have six digits."""

OCCURRENCES_COUNT_MAX: Final = 1_000
"""Lines that an error names where a text is not unique."""

SHOWN_DEPTH: Final = 2
"""Levels of directories that are listed."""

EDITED: Final = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"

_NUMBER_CHARS: Final = len(str(LINES_COUNT_MAX))
_AROUND_LINES: Final = 2
_UNITS: Final = "BKMG"
_UNIT_BITS: Final = 10


def shown_size(size_bytes: int) -> str:
    """Return a size as a person reads it: ``0B``, ``1.5K``, ``2M``."""
    if size_bytes == 0:
        return "0B"
    place = min((size_bytes.bit_length() - 1) // _UNIT_BITS, len(_UNITS) - 1)
    scaled = size_bytes / (1 << (_UNIT_BITS * place))
    return f"{scaled:.0f}{_UNITS[place]}" if scaled == int(scaled) else f"{scaled:.1f}{_UNITS[place]}"


def shown_file(path: str, text: str, view_range: Sequence[int] | None) -> str:
    """Return the lines of a file with their numbers; raises ``LimitExceeded`` for more than can be numbered."""
    lines = text.split("\n")
    if len(lines) > LINES_COUNT_MAX:
        message = f"File {path} exceeds maximum line limit of {LINES_COUNT_MAX:,} lines."
        raise LimitExceeded(message)
    begin, end = 0, len(lines)
    if view_range is not None and len(view_range) == 2:  # noqa: PLR2004 - its first line and its last
        begin = max(1, view_range[0]) - 1
        end = len(lines) if view_range[1] == -1 else view_range[1]
    return f"Here's the content of {path} with line numbers:\n{_numbered(lines[begin:end], begin + 1)}"


def _numbered(lines: Sequence[str], first: int) -> str:
    return "\n".join(f"{number:>{_NUMBER_CHARS}}\t{line}" for number, line in enumerate(lines, first))


def shown_directory(path: str, tree: Tree, place: str) -> str:
    """Return what a directory holds, two levels deep, names that begin with a dot left out."""
    sizes = {held: len((tree.nodes[held].text or "").encode()) for held in tree.under(place)}
    lines = [f"{shown_size(sum(sizes.values()))}\t{path}"]
    for names, node in _listed(tree, place):
        held = "/".join((place, *names))
        size_bytes = sum(sizes[inner] for inner in tree.under(held)) if node.text is None else sizes[held]
        lines.append(f"{shown_size(size_bytes)}\t{path}/{'/'.join(names)}{'/' if node.text is None else ''}")
    header = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
    return "\n".join((header, *lines))


def _listed(tree: Tree, place: str) -> Iterator[tuple[list[str], Node]]:
    """Yield the names below a directory and what stands there, each directory in front of what it holds."""
    begin = len(place) + 1
    below = sorted((held[begin:].split("/"), node) for held, node in tree.nodes.items() if held.startswith(f"{place}/"))
    for names, node in below:
        if len(names) <= SHOWN_DEPTH and not any(name.startswith(".") for name in names):
            yield names, node


def replaced(path: str, text: str, old_str: str, new_str: str) -> tuple[str, int]:
    """Return a text in which a piece that stands in it once was replaced, and where; else ``InvalidInput``."""
    count = text.count(old_str)
    if count == 0:
        message = f"No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}."
        raise InvalidInput(message)
    if count > 1:
        shown = ", ".join(map(str, _lines_of(text, old_str)))
        found = f"Multiple occurrences of old_str `{old_str}` in lines: {shown}."
        message = f"No replacement was performed. {found} Please ensure it is unique"
        raise InvalidInput(message)
    place = text.find(old_str)
    return text[:place] + new_str + text[place + len(old_str) :], place


def _lines_of(text: str, wanted: str) -> Iterator[int]:
    """Yield the line of each occurrence, overlapping ones too, as many as an error names."""
    line, seen, place = 1, 0, text.find(wanted)
    for _ in range(OCCURRENCES_COUNT_MAX):
        if place < 0:
            return
        line += text.count("\n", seen, place)
        yield line
        seen, place = place, text.find(wanted, place + 1)


def snippet(text: str, place: int) -> str:
    """Return what an edit has made of a text: the line that begins it, with two lines around."""
    lines = text.split("\n")
    changed = text.count("\n", 0, place)
    begin, end = max(0, changed - _AROUND_LINES), min(len(lines), changed + _AROUND_LINES + 1)
    return f"{EDITED}\n{_numbered(lines[begin:end], begin + 1)}"


def inserted(text: str, insert_line: int, insert_text: str) -> str:
    """Return a text with another one behind one of its lines; ``InvalidInput`` for a line that it does not have."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if not 0 <= insert_line <= len(lines):
        message = f"Invalid `insert_line` parameter: {insert_line}. It should be within the range [0, {len(lines)}]."
        raise InvalidInput(message)
    lines.insert(insert_line, insert_text.rstrip("\n"))
    joined = "\n".join(lines)
    return joined if joined.endswith("\n") else f"{joined}\n"


def difference(before: str, after: str) -> tuple[int, int, str]:
    """Return where two texts begin to differ, how much of the first one goes, and what comes in its place."""
    begin = _alike(before, after)
    shorter = min(len(before), len(after)) - begin
    end = _alike(before[::-1][:shorter], after[::-1][:shorter])
    return begin, len(before) - begin - end, after[begin : len(after) - end]


def _alike(one: str, other: str) -> int:
    """Return how many characters two texts begin with that are the same, by halves: each comparison is one in C."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least
