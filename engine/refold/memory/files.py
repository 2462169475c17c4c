"""The files of a model under ``/memories``: the verbs of Anthropic's memory tool, kept in the log."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from refold import checks
from refold.engine.pending import ANY, Decide, Noted
from refold.errors import InvalidInput, LimitExceeded, NotFound
from refold.event import Event
from refold.fold import State
from refold.memory import file_texts as texts
from refold.memory.door import Door, Sources
from refold.memory.file_paths import placed
from refold.views.files import (
    FILES,
    PATH_BYTES_MAX,
    PATH_DEPTH_MAX,
    ROOT,
    FileCreated,
    FileDeleted,
    FileEdited,
    FileRenamed,
    Node,
    Tree,
)

FILE_CHARS_MAX: Final = 1024 * 1024
"""Characters of one file."""

FILES_CHARS_MAX: Final = 16 * 1024 * 1024
"""Characters of all files of one tree: they are in RAM while it is used."""

FILES_COUNT_MAX: Final = 1_024
"""Files and directories of one tree."""

EDITS_COUNT_MAX: Final = 64
"""Edits of a file after which the next one is written whole, so that reading it never takes more events."""

assert FILE_CHARS_MAX < FILES_CHARS_MAX

_FREE: Final = "delete what is no longer needed"


class FileEntry(Struct, frozen=True):
    """A file: its path, its size in UTF-8, and the seq of the event that wrote it last, below 0 in an open batch."""

    path: str
    size_bytes: int
    seq: int


class Files:
    """A handle on a tree of files: what each verb returns or raises is the text that a model is given.

    >>> from refold import Memory
    >>> files = Memory().files()
    >>> files.create("/memories/plan.md", "Ship it.")
    'File created successfully at: /memories/plan.md'
    """

    __slots__ = ("_at", "_door", "_stream", "name")

    def __init__(self, door: Door, name: str, at: int | None) -> None:
        self.name = name
        self._door = door
        self._stream = f"files/{name}"
        self._at = at

    def __repr__(self) -> str:
        """Return the handle with its count."""
        return f"Files({self.name!r}, {self._door.counts(lambda: f'files={len(self.list())}')})"

    # Reading.

    def _look(self, query: Callable[[Tree], Any]) -> Any:
        return self._door.read(self._stream, lambda state: query(state.part(FILES)), self._at)

    def list(self) -> list[FileEntry]:
        """Return all files, sorted by path; directories are only in ``view``."""
        nodes: list[tuple[str, Node]] = self._look(lambda tree: sorted(tree.nodes.items(), key=lambda item: item[0]))
        return [
            FileEntry(path, len(node.text.encode()), node.chain[-1]) for path, node in nodes if node.text is not None
        ]

    def read(self, path: str) -> str:
        """Return the text of a file; ``NotFound`` where there is none, ``InvalidInput`` for a directory."""
        place = placed(path)
        text: str = self._look(lambda tree: _file(tree, path, place).text)
        return text

    def view(self, path: str, view_range: Sequence[int] | None = None) -> str:
        """Return a file with numbered lines, or what a directory holds, as a model is shown it.

        ``view_range`` is the first and the last line, the last may be -1. Raises ``NotFound`` for a path that is not
        there.
        """
        place, lines = placed(path), _range(view_range)

        def shown(tree: Tree) -> str:
            node = None if place == ROOT else _known(tree, place, _MISSING.format(path))
            if node is None or node.text is None:
                return texts.shown_directory(path, tree, place)
            return texts.shown_file(path, node.text, lines)

        text: str = self._look(shown)
        return text

    # Writing.

    def create(
        self,
        path: str,
        file_text: str,
        *,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sources = (),
    ) -> str:
        """Write a file where nothing is, with the directories on the way; ``InvalidInput`` where something is."""
        place, text = placed(path), _text(file_text, "file_text")
        cited, file_id = self._door.sources(sources), self._door.engine.new_id()

        def decide(state: State) -> Event:
            tree = state.part(FILES)
            _refuse_taken(tree, place, f"File {path} already exists")
            _check_way(tree, place)
            _check_room(tree, place, len(text))
            return FileCreated(cited, file_id, place, text)

        self._note(decide, ("create", place, text), expected, request_id)
        return f"File created successfully at: {path}"

    def str_replace(
        self,
        path: str,
        old_str: str,
        new_str: str,
        *,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sources = (),
    ) -> str:
        """Put a text in the place of another one that stands once in a file; return the lines around it.

        Raises ``NotFound`` for a file that is not there, ``InvalidInput`` for a text that is not there, or not once.
        """
        place, old, new = placed(path), _text(old_str, "old_str"), _text(new_str, "new_str")
        cited, shown = self._door.sources(sources), [texts.EDITED]

        def decide(state: State) -> Event | None:
            tree = state.part(FILES)
            node = _file(tree, path, place)
            changed, begin = texts.replaced(path, node.text or "", old, new)
            shown[:] = [texts.snippet(changed, begin)]
            return _edit(cited, tree, node, changed, (begin, len(old), new))

        noted = self._note(decide, ("str_replace", place, old, new), expected, request_id)
        return self._snippet_of(noted, old) if shown == [texts.EDITED] else shown[0]

    def _snippet_of(self, noted: Noted | None, old: str) -> str:
        """Return what a request that was answered before was told: the lines as they were then."""
        if noted is None:
            return texts.EDITED
        event, stamp = noted
        assert isinstance(event, FileEdited), event

        def then(seq: int) -> str | None:
            return self._door.read(self._stream, lambda state: _text_with(state.part(FILES), event.id), seq)

        # What was replaced stood there once; what came in its place may stand anywhere.
        before, after = then(stamp.seq - 1), then(stamp.seq)
        return texts.EDITED if before is None or after is None else texts.snippet(after, before.find(old))

    def insert(
        self,
        path: str,
        insert_line: int,
        insert_text: str,
        *,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sources = (),
    ) -> str:
        """Insert a text behind a line of a file, 0 for its beginning.

        Raises ``NotFound`` for a file that is not there, ``InvalidInput`` for a line that it does not have.
        """
        place, text = placed(path), _text(insert_text, "insert_text")
        if type(insert_line) is not int:
            checks.invalid(f"insert_line must be an int, not {type(insert_line).__name__}")
        cited = self._door.sources(sources)

        def decide(state: State) -> Event | None:
            tree = state.part(FILES)
            node = _file(tree, path, place)
            before = node.text or ""
            changed = texts.inserted(before, insert_line, text)
            return _edit(cited, tree, node, changed, texts.difference(before, changed))

        self._note(decide, ("insert", place, insert_line, text), expected, request_id)
        return f"The file {path} has been edited."

    def delete(self, path: str, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()) -> str:
        """Remove a file, or a directory with all that it holds; ``NotFound`` where nothing is.

        The log keeps it, and ``memory.at`` shows it, until it is erased.
        """
        place, cited = placed(path), self._door.sources(sources)
        if place == ROOT:
            message = f"Cannot delete the {ROOT} directory itself"
            raise InvalidInput(message)

        def decide(state: State) -> Event:
            tree = state.part(FILES)
            _known(tree, place, f"The path {path} does not exist")
            return FileDeleted(cited, _ids(tree, place), place)

        self._note(decide, ("delete", place), expected, request_id)
        return f"Successfully deleted {path}"

    def rename(
        self,
        old_path: str,
        new_path: str,
        *,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sources = (),
    ) -> str:
        """Move a file, or a directory with all that it holds, to a path where nothing is.

        Raises ``NotFound`` for an old path that is not there, ``InvalidInput`` for a new one that is, or that lies
        inside of the old one.
        """
        old, new = placed(old_path, "old_path"), placed(new_path, "new_path")
        cited, move_id = self._door.sources(sources), self._door.engine.new_id()
        if old == ROOT:
            message = f"Cannot rename the {ROOT} directory itself"
            raise InvalidInput(message)

        def decide(state: State) -> Event:
            tree = state.part(FILES)
            _refuse_taken(tree, new, f"The destination {new_path} already exists")
            _known(tree, old, f"The path {old_path} does not exist")
            if new.startswith(f"{old}/"):
                checks.invalid(f"Cannot rename {old_path} to {new_path}, which lies inside of it")
            _check_way(tree, new)
            _check_room(tree, new, 0, count=0)
            _check_lengths(tree, old, new)
            return FileRenamed(cited, move_id, _ids(tree, old), old, new)

        self._note(decide, ("rename", old, new), expected, request_id)
        return f"Successfully renamed {old_path} to {new_path}"

    def _note(self, decide: Decide, asked: tuple[Any, ...], expected: object, request_id: str | None) -> Noted | None:
        return self._door.note(self._stream, decide, at=self._at, asked=asked, expected=expected, request_id=request_id)


_MISSING: Final = "The path {} does not exist. Please provide a valid path."


def _text(value: object, what: str) -> str:
    text = checks.text(value, what)
    if len(text) > FILE_CHARS_MAX:
        message = f"{what} has {len(text):,} characters, over FILE_CHARS_MAX = {FILE_CHARS_MAX:,}; write several files"
        raise LimitExceeded(message)
    return text


def _range(view_range: Any) -> "list[int] | None":
    if view_range is None:
        return None
    lines: list[Any] = list(view_range) if isinstance(view_range, (list, tuple)) else [None]  # pyright: ignore[reportUnknownArgumentType]
    if any(type(line) is not int for line in lines):
        shown = checks.shown(view_range)  # pyright: ignore[reportUnknownArgumentType]
        checks.invalid(f"view_range is {shown}; give the first and the last line, the last may be -1")
    return lines


def _known(tree: Tree, place: str, message: str) -> Node:
    node = tree.nodes.get(place)
    if node is None:
        raise NotFound(message)
    return node


def _file(tree: Tree, path: str, place: str) -> Node:
    node = None if place == ROOT else _known(tree, place, _MISSING.format(path))
    if node is None or node.text is None:
        message = f"The path {path} is not a file."
        raise InvalidInput(message)
    return node


def _text_with(tree: Tree, file_id: str) -> str | None:
    path = tree.places.get(file_id)
    return None if path is None else tree.nodes[path].text


def _refuse_taken(tree: Tree, place: str, message: str) -> None:
    if place == ROOT or place in tree.nodes:
        raise InvalidInput(message)


def _ids(tree: Tree, place: str) -> tuple[str, ...]:
    return tuple(tree.nodes[held].id for held in tree.under(place))


def _parents(place: str) -> "list[str]":
    """Return the directories on the way to a path, without the root."""
    names = place.split("/")
    return ["/".join(names[:count]) for count in range(3, len(names))]


def _check_way(tree: Tree, place: str) -> None:
    """Refuse a path that leads through a file."""
    for parent in _parents(place):
        node = tree.nodes.get(parent)
        if node is not None and node.text is not None:
            checks.invalid(f"The path {parent} is a file, so that nothing can stand under it")


def _check_room(tree: Tree, place: str, chars: int, *, count: int = 1) -> None:
    """Refuse what would be more files, directories or characters than a tree holds."""
    count += len(tree.nodes) + sum(parent not in tree.nodes for parent in _parents(place))
    if count > FILES_COUNT_MAX:
        message = f"{count:,} files and directories are over FILES_COUNT_MAX = {FILES_COUNT_MAX:,}; {_FREE}"
        raise LimitExceeded(message)
    _check_chars(tree, chars)


def _check_chars(tree: Tree, more: int) -> None:
    held = sum(len(node.text or "") for node in tree.nodes.values()) + more
    if held > FILES_CHARS_MAX:
        message = f"the files would have {held:,} characters, over FILES_CHARS_MAX = {FILES_CHARS_MAX:,}; {_FREE}"
        raise LimitExceeded(message)


def _check_lengths(tree: Tree, old: str, new: str) -> None:
    """Refuse a move that would make a path too long or too deep, so that nobody could name it any more."""
    for held in tree.under(old):
        moved = checks.text(new + held[len(old) :], "a path that is moved along", PATH_BYTES_MAX, "PATH_BYTES_MAX")
        depth = moved.count("/") - 1
        if depth > PATH_DEPTH_MAX:
            message = f"a path that is moved along is {depth} names deep, over PATH_DEPTH_MAX = {PATH_DEPTH_MAX}"
            raise LimitExceeded(f"{message}; use fewer directories")


def _edit(
    cited: tuple[int, ...], tree: Tree, node: Node, changed: str, piece: tuple[int, int, str]
) -> FileEdited | None:
    """Return the event that makes a file's text another one: the piece, or after many of them the whole."""
    before = node.text or ""
    if changed == before:
        return None
    _text(changed, "the edited file")
    _check_chars(tree, len(changed) - len(before))
    derived = (*cited, *(seq for seq in node.chain[-1:] if seq not in cited))
    if len(node.chain) > EDITS_COUNT_MAX:
        return FileEdited(derived, node.id, 0, len(before), changed)
    return FileEdited(derived, node.id, *piece)
