"""Excerpts of skills: as many whole sections of each as fit, so that one long skill hides no other. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

_EXCERPT_CHARS_MIN: Final = 200  # A shorter excerpt of a longer skill is useless.
_LINES_MAX: Final = 10**9
_HEADING: Final = re.compile(r"[ ]{0,3}#{1,6}(?:[ \t]|$)")
_FENCE: Final = re.compile(r"[ ]{0,3}(?:```|~~~)")
_PARAGRAPH_END: Final = re.compile(r"(?<=\n)(?=\n)")


def excerpts(bodies: Sequence[str], chars_max: int, lines_max: int = _LINES_MAX) -> list[str]:
    r"""Cut texts to their shares of `chars_max`, dropping the last texts if the shares would be tiny.

    The unused share of a short text goes to the longer ones. See `excerpt`.

    >>> excerpts(["Be short.", "# One\nfirst\n# Two\n" + 40 * "second "], 250)
    ['Be short.', '# One\nfirst\n\n(Left out: Two)']
    """
    count = len(bodies)
    while count > 1 and chars_max < sum(min(len(body), _EXCERPT_CHARS_MIN) for body in bodies[:count]):
        count -= 1
    shares, room = dict[int, int](), chars_max
    for place in sorted(range(count), key=lambda place: len(bodies[place])):
        shares[place] = min(len(bodies[place]), room // (count - len(shares)))
        room -= shares[place]
    return [excerpt(bodies[place], shares[place], lines_max) for place in range(count)]


def excerpt(body: str, chars_max: int, lines_max: int = _LINES_MAX) -> str:
    """Cut a text after its last whole section that fits, or else after a paragraph, a line or a character.

    If there is room, a note names the sections left out.
    """
    if len(body) <= chars_max and body.count("\n") < lines_max:
        return body
    sections = list(_sections(body))
    fitting = _count_fitting(sections, chars_max, lines_max)
    if fitting:
        text = "".join(sections[:fitting]).rstrip()
        titles = [section.partition("\n")[0].lstrip("# ").rstrip("# ") for section in sections[fitting:]]
        note = f"\n\n(Left out: {'; '.join(titles)})"
        return text + note if len(text) + len(note) <= chars_max and text.count("\n") + 2 < lines_max else text
    for pieces in (_PARAGRAPH_END.split(sections[0]), sections[0].splitlines(keepends=True)):
        fitting = _count_fitting(pieces, chars_max, lines_max)
        if fitting and (text := "".join(pieces[:fitting]).rstrip()):
            return text
    return body[:chars_max] if lines_max else ""


def _count_fitting(pieces: Sequence[str], chars_max: int, lines_max: int) -> int:
    chars = lines = 0
    for place, piece in enumerate(pieces):
        chars, lines = chars + len(piece), lines + piece.count("\n")
        if chars - (len(piece) - len(piece.rstrip())) > chars_max or lines > lines_max:
            return place
    return len(pieces)


def _sections(body: str) -> Iterator[str]:
    """Split a text before each heading that is not code."""
    lines, is_code = list[str](), False
    for line in body.splitlines(keepends=True):
        if _FENCE.match(line):
            is_code = not is_code
        elif not is_code and _HEADING.match(line) and lines:
            yield "".join(lines)
            lines = []
        lines.append(line)
    yield "".join(lines)
