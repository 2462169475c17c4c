"""Excerpts of skills: as many whole sections of each as fit, so that one long skill hides no other. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

_EXCERPT_CHARS_MIN: Final = 200  # A shorter excerpt of a longer skill is useless.
_LINES_MAX: Final = 10**9
_HEADING: Final = re.compile(r"[ ]{0,3}#{1,6}(?:[ \t]|$)")
_FENCE: Final = re.compile(r"[ ]{0,3}(?:```|~~~)")
_PARAGRAPH_END: Final = re.compile(r"(?<=\n)(?=\n)")
_FENCE_MARK: Final = "\n```"
_NOTE_LINES: Final = 3  # Of a note, with the blank line before it and the end of code.
_WORD_CHARS: Final = 40  # A longer word is cut: languages without spaces have no others.


def excerpts(bodies: Sequence[str], chars_max: int, lines_max: int = _LINES_MAX) -> list[str]:
    r"""Cut texts to their shares of `chars_max`, dropping the last texts if the shares would be tiny.

    The unused share of a short text goes to the longer ones. See `excerpt`.

    >>> [text[-22:] for text in excerpts(["Be short.", "# One\n" + 20 * "first " + "\n# Two\n" + 30 * "second "], 250)]
    ['Be short.', 'first\n\n(Left out: Two)']
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
    """Cut a text after its last whole section that fits, followed by a note of what is left out.

    If that leaves more than half of the room empty, cut after a paragraph, a line or a word instead. If there is no
    room for a note, the excerpt is empty: a model would take a few words for the whole.
    """
    if _fits(body, chars_max, lines_max):
        return body
    body = body.rstrip()
    if _fits(body, chars_max, lines_max):
        return body
    text = ""
    for pieces in (list(_sections(body)), _PARAGRAPH_END.split(body), body.splitlines(keepends=True)):
        text = _cut_pieces(pieces, chars_max, lines_max)
        if 2 * len(text) >= chars_max or 2 * (text.count("\n") + 1) >= lines_max:
            return text
    return _cut_words(body, chars_max, lines_max) or text


def _cut_pieces(pieces: Sequence[str], chars_max: int, lines_max: int) -> str:
    """Join the first pieces that fit together with a note of the others, or return nothing if none do."""
    for count in range(_count_fitting(pieces, chars_max, lines_max), 0, -1):
        text = "".join(pieces[:count]).rstrip()
        if _HEADING.match(text[text.rfind("\n") + 1 :]):  # A heading without what it stands above says nothing.
            continue
        rest = pieces[count:]
        titles = [piece.partition("\n")[0] for piece in rest]
        if all(map(_HEADING.match, titles)):
            named = _close(text, f"Left out: {'; '.join(title.strip('# ') for title in titles)}")
            if _fits(named, chars_max, lines_max):
                return named
        lines = "".join(rest).strip().count("\n") + 1
        noted = _close(text, f"{lines:,} more line{'' if lines == 1 else 's'} left out")
        if _fits(noted, chars_max, lines_max):
            return noted
    return ""


def _cut_words(body: str, chars_max: int, lines_max: int) -> str:
    """Cut a text after a word, or within one that is long, followed by the number of characters left out."""
    room = chars_max - len(_close(_FENCE_MARK, f"{len(body):,} more characters left out"))
    text = "\n".join(body[: max(room, 0)].split("\n")[: max(lines_max - _NOTE_LINES, 0)])
    words = text.rpartition(" ")[0]
    text = (words if len(text) - len(words) <= _WORD_CHARS else text).rstrip()
    return _close(text, f"{len(body) - len(text):,} more characters left out") if text else ""


def _close(text: str, note: str) -> str:
    """Append a note to a text that was cut, outside of any code that the cut left open."""
    is_code = sum(map(bool, map(_FENCE.match, text.splitlines()))) % 2
    return f"{text}{_FENCE_MARK if is_code else ''}\n\n({note})"


def _fits(text: str, chars_max: int, lines_max: int) -> bool:
    return len(text) <= chars_max and text.count("\n") < lines_max


def _count_fitting(pieces: Sequence[str], chars_max: int, lines_max: int) -> int:
    """Return how many of the first pieces fit without a note."""
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
