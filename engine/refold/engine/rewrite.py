"""What stays of a file or a learned skill that an erasure by text touches, because it does not hold the text any more.

Each edit of a file cites the one before it as a source, and so does each new content of a skill. These are no reasons
to erase them: only what holds the text goes, with what other sources say was derived from that. The fold removes a file
with any of its edits, so that nothing replaced comes back. So what the file holds now is written once more, in the
commit of the erasure.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from refold import fold
from refold.engine.kin import pages
from refold.engine.origin import origin_in
from refold.engine.reader import Reader
from refold.engine.spellings import Spelling
from refold.engine.streams import Stream, key_of, kind_of, name_of
from refold.engine.transaction import Mutation
from refold.log.record import EventBytes
from refold.views.files import FILES, FileCreated, FileDeleted, FileEdited, FileRenamed, Tree
from refold.views.skills import SkillLearned, SkillRefined

_CONTENT: Final = (FileCreated, FileEdited, SkillLearned, SkillRefined)
_MOVES: Final = (FileDeleted, FileRenamed)
_TAGS: Final = frozenset(fold.TAGS[kind] for kind in (*_CONTENT, *_MOVES))


class Part(msgspec.Struct, frozen=True):
    """What an event changed: the number of its stream, and the ids of files or of a learned skill."""

    number: int
    ids: tuple[str, ...]


def parts_at(reader: Reader, seqs: Collection[int]) -> dict[int, Part]:
    """Return what the events at the seqs changed, by seq, for those that changed files or learned skills."""
    found = (each for page in pages(sorted(seqs)) for each in reader.log.events_at(page))
    parts = ((each.seq, _part_of(each)) for each in found)
    return {seq: part for seq, part in parts if part is not None}


def _part_of(event: EventBytes) -> Part | None:
    if fold.tag_of(event.array) not in _TAGS:
        return None
    decoded = fold.decode(event.array)
    if isinstance(decoded, _MOVES):
        return Part(event.number, decoded.ids)
    assert isinstance(decoded, _CONTENT), decoded
    return Part(event.number, (decoded.id,))


def files_anew(
    reader: Reader, parts: Mapping[int, Part], derived: Collection[int], text: str
) -> Iterator[tuple[Mutation, tuple[str, str]]]:
    """Yield what writes files anew, in each branch that has the events of ``parts``, with their streams and paths.

    Left out are files that hold the text, and those with a part at one of the ``derived`` seqs.
    """
    spelling, origin = Spelling(text), origin_in(reader)
    names = {reader.streams.name_of(part.number) for part in parts.values()}
    for branch in range(len(reader.loader.branches()) + 1):
        for key in sorted(key_of(branch, name) for name in names if kind_of(name) == "files"):
            stream = reader.streams.find(key)
            if stream is not None:
                ids = {each for seq, part in parts.items() if _has(reader, stream, part, seq) for each in part.ids}
                for event in _files(reader.live(stream).part(FILES), ids):
                    if not spelling.is_in(fold.encode(event)) and not set(event.sources).intersection(derived):
                        yield Mutation(key, event, origin=origin), (name_of(key), event.path)


def _has(reader: Reader, stream: Stream, part: Part, seq: int) -> bool:
    """Return whether an event is in a stream, or in what that continues from."""
    while stream.number != part.number:
        if stream.base is None or stream.base[1] < seq:
            return False
        stream = reader.streams.at_number(stream.base[0])
    return True


def _files(tree: Tree, ids: Collection[str]) -> Iterator[FileCreated]:
    for path, node in tree.nodes.items():
        if node.id in ids and node.text is not None:
            yield FileCreated(tuple(sorted({*node.chain, node.named})), node.id, path, node.text)
