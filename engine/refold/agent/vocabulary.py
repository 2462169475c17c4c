"""Tables of words in many languages, written as text, and the regular expressions that are composed of them. Pure.

A table begins with its name and an equals sign. It has its alternatives in the same line, or each in a line of its own,
which may begin with its language: a new language is a new line. Lines that begin with four spaces go on with the one
before them, and those with ``#`` are comments. In any pattern, ``<name>`` stands for the alternatives of a table.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

Tables: TypeAlias = Mapping[str, tuple[str, ...]]

_TABLE: Final = re.compile(r"(?P<name>[a-z][\w' ]*) =(?: (?P<first>.+))?")
_LANGUAGE: Final = re.compile(r"[a-z]{2}: ")
_REFERENCE: Final = re.compile(r"(?<!\?P)<([a-z][\w' ]+)>")


def read_tables(text: str) -> Tables:
    """Read the alternatives of each table.

    >>> read_tables('''
    ... pet =
    ... en: cats?|dogs?
    ... de: katzen?
    ... mine = my <pet>
    ... ''')
    {'pet': ('cats?|dogs?', 'katzen?'), 'mine': ('my <pet>',)}
    """
    tables, name = dict[str, tuple[str, ...]](), ""
    for line in text.replace("\n    ", "").splitlines():
        table = _TABLE.fullmatch(line)
        if table is not None:
            name = table["name"]
            tables[name] = (table["first"],) if table["first"] else ()
        elif line and not line.startswith("#"):
            language = _LANGUAGE.match(line)
            tables[name] += (line if language is None else line[language.end() :],)
    return tables


def fill(pattern: str, tables: Tables) -> str:
    """Put the alternatives of tables for their names.

    >>> fill("my <pet>", {"pet": ("cats?", "dogs?")})
    'my (?:cats?|dogs?)'
    """
    return _REFERENCE.sub(lambda name: fill(f"(?:{'|'.join(tables[name[1]])})", tables), pattern)
