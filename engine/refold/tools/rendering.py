"""The parts of a context as text: the same bytes for the same memory, whenever and wherever they are made.

This is renderer 1. A change of one byte is another number: contexts that were shown are built again by theirs.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from refold.entry import Entry
from refold.results import Scratchpad
from refold.tools.delimiting import inert, marked

RENDERER: Final = 1

POLICY: Final = (
    "To remember permanent facts or preferences, you MUST use the `memory_set` tool. "
    "Do NOT attempt to edit profile.json directly using file editing tools."
)
PROFILE_HEADING: Final = "## Core Profile (Facts & Preferences)\n"
NOTES_HEADING: Final = "## Recent Daily Notes\n"
MEMORIES_HEADING: Final = "## Project Memory\nThe following facts were learned from previous sessions:\n\n"
PAGE_BREAK: Final = "\n\n---\n\n"

BADGES: Final = {
    "preference": "[PREF]",
    "convention": "[CONV]",
    "pattern": "[PATN]",
    "correction": "[WARN]",
    "fact": "[FACT]",
}


def profile(items: Iterable[tuple[str, str]], chars_max: int) -> str:
    """Return a profile as a Markdown list, in the order of its keys' first setting; empty for none."""
    return _filled(PROFILE_HEADING, (f"- **{_line(key)}**: {_line(value)}\n" for key, value in items), chars_max)[0]


def notes(pages: Sequence[tuple[str, Sequence[str]]], chars_max: int) -> str:
    """Return days and their notes, the newest day first; what is over the bound is cut off at the end."""
    shown = [f"# {day}\n\n" + "\n".join(texts) for day, texts in pages if texts]
    return NOTES_HEADING + PAGE_BREAK.join(shown)[:chars_max] if shown and chars_max else ""


def memories(entries: Sequence[Entry], chars_max: int) -> tuple[str, list[Entry]]:
    """Return memories as a list with badges, and those that fit; one that does not fit gives way to the next."""
    lines = [f"- {BADGES[entry.category]} {_line(entry.content)}\n" for entry in entries]
    text, places = _filled(MEMORIES_HEADING, lines, chars_max)
    return text, [entries[place] for place in places]


def skills(given: Sequence[tuple[str, str]], chars_max: int) -> str:
    """Return skills one after the other, each between marks, cut to a number of characters in all; none for none."""
    text, left = "", chars_max
    for name, body in given:
        kept = inert(body)[: max(left, 0)]
        left -= len(kept)
        if kept:
            text += f"{marked(name, kept)}\n\n"
    return text.rstrip("\n")


def working_memory(pad: Scratchpad) -> str:
    """Return a scratchpad: keys sorted, notes in their order; empty where there is nothing in it."""
    lines = ["[Working Memory]"]
    if pad.entries:
        lines += ["Key-value pairs:", *(f"  {key}: {value}" for key, value in sorted(pad.entries.items()))]
    if pad.notes:
        lines += ["Notes:", *(f"  - {note}" for note in pad.notes)]
    return "\n".join(lines) if len(lines) > 1 else ""


def _line(text: str) -> str:
    """Return a text in one line, so that nothing remembered can look like a heading or like another entry."""
    return " ".join(text.split())


def _filled(heading: str, lines: Iterable[str], chars_max: int) -> tuple[str, list[int]]:
    """Return a heading with the lines that fit below it, and their places; nothing where none does."""
    text, places = heading, list[int]()
    for place, line in enumerate(lines):
        if len(text) + len(line) <= chars_max:
            text += line
            places.append(place)
    return (text if places else ""), places
