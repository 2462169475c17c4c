"""The files that a model keeps under ``/memories``: a tree of texts, edited piece by piece.

An edit is an event with the changed piece, so that changing a line does not store a long file again. An erased event
removes the files that it wrote, moved or removed, so that the text it replaced does not come back. An erasure by text
writes those without the text once more.
"""

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold import checks
from refold.event import Event, Located, Stamp, View
from refold.limits import INLINE_BYTES_MAX
from refold.views.base import copy_slots

ROOT: Final = "/memories"
"""The directory that always exists and holds all others."""

PATH_BYTES_MAX: Final = 1_024
"""Bytes of a path, in UTF-8."""

PATH_NAME_BYTES_MAX: Final = 255
"""Bytes of one name in a path, in UTF-8: the bound of file systems."""

PATH_DEPTH_MAX: Final = 32
"""Names in a path below the root."""

assert PATH_NAME_BYTES_MAX < PATH_BYTES_MAX

SUSPICIOUS: Final = re.compile(r"[\x00-\x1f\x7f\\]|%(?:2e|2f|5c|00)", re.IGNORECASE)
"""Control characters, backslashes, and URL-encoded dots, slashes, backslashes and NULs."""


class FileCreated(Event, frozen=True, tag=80):
    """A file was written to a path that did not exist; missing directories on the way were created."""

    sentence: ClassVar[str] = "the file {path} was written: {text}"
    subject: ClassVar[tuple[str, str]] = ("file", "id")

    has_own_id: ClassVar[bool] = True

    id: str
    path: str = ""
    text: str = ""

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            _check_path("path", self.path)


class FileEdited(Event, frozen=True, tag=81):
    """A text replaced ``removed`` characters of a file from ``start`` on; replacing all begins the file anew."""

    sentence: ClassVar[str] = "{removed!s} characters of the file from {start!s} on made way for {text}"
    subject: ClassVar[tuple[str, str]] = ("file", "id")

    id: str
    start: int
    removed: int
    text: str = ""


class FileDeleted(Event, frozen=True, tag=82):
    """A file or a directory was removed, with everything under it; ``ids`` are those of everything removed."""

    sentence: ClassVar[str] = "{path} was removed, with all under it"

    ids: tuple[str, ...]
    path: str = ""

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            _check_path("path", self.path)

    def removes(self, key: str) -> bool:  # noqa: ARG002 - it names only one
        return True


class FileRenamed(Event, frozen=True, tag=83):
    """A file or a directory was moved, with everything under it; ``id`` is that of the move and of its directories."""

    sentence: ClassVar[str] = "{path} was moved to {new_path}"

    id: str
    ids: tuple[str, ...]
    path: str = ""
    new_path: str = ""

    def check(self, *, is_erased: bool) -> None:
        if is_erased:
            return
        _check_path("path", self.path)
        _check_path("new_path", self.new_path)
        if f"{self.new_path}/".startswith(f"{self.path}/"):
            raise msgspec.ValidationError(f"{checks.brief(self.path)} is moved into itself")


class FileNode(Struct, frozen=True, array_like=True, gc=False):
    """A file, or a directory, which has no text.

    ``chain`` holds the seqs of the events that make up the text, ``named`` the seq of the event that gave it its path.
    """

    id: str
    text: str | None
    chain: tuple[int, ...]
    named: int


class Tree:
    """The nodes by path, without the root, and the paths by id."""

    __slots__ = ("nodes", "places")

    def __init__(self) -> None:
        self.nodes: dict[str, FileNode] = {}
        self.places: dict[str, str] = {}

    copy = copy_slots

    def paths_under(self, path: str) -> list[str]:
        """Return a path and the paths under it, if they exist."""
        beginning = f"{path}/"
        return [inner for inner in self.nodes if inner == path or inner.startswith(beginning)]

    def put(self, path: str, node: FileNode, maker: str) -> None:
        """Put a node at a path; missing parents get ids derived from the maker's, and the node's ``named`` seq."""
        parts = path.split("/")[2:]
        for depth in range(1, len(parts)):
            parent = "/".join((ROOT, *parts[:depth]))
            directory = self.nodes.get(parent)
            if directory is None or directory.text is not None:
                self._put_node(parent, FileNode(f"{maker}.{depth}", None, (), node.named))
        self._put_node(path, node)

    def _put_node(self, path: str, node: FileNode) -> None:
        self.drop(path)
        self.drop_ids([node.id])  # No verb assigns an id twice, but an edited export can.
        self.nodes[path] = node
        self.places[node.id] = path

    def drop(self, path: str) -> None:
        if path in self.nodes:
            for inner in self.paths_under(path):
                self.places.pop(self.nodes.pop(inner).id, None)

    def drop_ids(self, ids: Iterable[str]) -> None:
        """Remove the nodes with these ids, and everything under them."""
        for node_id in ids:
            path = self.places.get(node_id)
            if path is not None:
                self.drop(path)

    def move(self, path: str, new_path: str, maker: str, seq: int) -> None:
        """Move a path and everything under it; if it no longer exists, nothing moves."""
        moved = [(inner, self.nodes[inner]) for inner in self.paths_under(path)]
        self.drop(path)
        for inner, node in moved:
            self.put(new_path + inner[len(path) :], replace(node, named=seq), maker)

    def pack(self) -> tuple[Any, list[int]]:
        rows: list[list[Any]] = []
        pointed: list[int] = []
        for path, node in self.nodes.items():
            is_long = node.text is not None and len(node.text) > INLINE_BYTES_MAX
            pointed += node.chain if is_long else ()
            rows.append([path, node.id, None if is_long else node.text, node.chain, node.named])
        return rows or None, pointed

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Tree":
        tree, located = cls(), iter(events)
        for path, node_id, text, chain, named in msgspec.convert(inline or [], _ROWS):
            is_pointed = text is None and chain
            whole = _text_of([event for event, _ in islice(located, len(chain))]) if is_pointed else text
            tree.nodes[path] = FileNode(node_id, whole, chain, named)
            tree.places[node_id] = path
        return tree

    def logical(self) -> Any:
        rows = ([path, node.id, node.chain[-1] if node.chain else 0, node.text] for path, node in self.nodes.items())
        return sorted(rows, key=lambda row: str(row[0])) or None

    def plain(self) -> dict[str, Any]:
        """Return the texts by path; a directory's path ends with a slash, and its text is empty."""
        rows = ((path, node) if node.text is not None else (f"{path}/", node) for path, node in self.nodes.items())
        return {path: node.text or "" for path, node in sorted(rows, key=lambda pair: pair[0])}


def _check_path(field: str, path: str) -> None:
    if not _is_place(path):
        raise msgspec.ValidationError(f"{field} is {checks.brief(path)}, where no file can be")


def _is_place(path: str) -> bool:
    root, *names = path.removeprefix("/").split("/")
    return (
        f"/{root}" == ROOT
        and path.startswith("/")
        and 0 < len(names) <= PATH_DEPTH_MAX
        and SUSPICIOUS.search(path) is None
        and not {"", ".", ".."}.intersection(names)
        and len(path.encode()) <= PATH_BYTES_MAX
        and all(len(name.encode()) <= PATH_NAME_BYTES_MAX for name in names)
    )


def splice(text: str, event: FileEdited) -> str:
    """Return a text after an edit."""
    return text[: event.start] + event.text + text[event.start + event.removed :]


_ROWS: Final = list[tuple[str, str, str | None, tuple[int, ...], int]]


def _text_of(chain: list[Event]) -> str:
    first, *edits = chain
    assert isinstance(first, (FileCreated, FileEdited)), f"{first!r} was packed as the beginning of a file"
    text = first.text
    for edit in edits:
        assert isinstance(edit, FileEdited), f"{edit!r} was packed as an edit of a file"
        text = splice(text, edit)
    return text


FILES = View("files", kinds=("files",), state=Tree)


@FILES.on(FileCreated)
def _file_created(tree: Tree, stamp: Stamp, event: FileCreated) -> None:
    if not stamp.erased:
        tree.put(event.path, FileNode(event.id, event.text, (stamp.seq,), stamp.seq), event.id)


@FILES.on(FileEdited)
def _file_edited(tree: Tree, stamp: Stamp, event: FileEdited) -> None:
    path = tree.places.get(event.id)
    if path is None:
        return
    node = tree.nodes[path]
    if stamp.erased or node.text is None:
        tree.drop(path)
        return
    is_whole = event.start == 0 and event.removed == len(node.text)
    chain = (stamp.seq,) if is_whole else (*node.chain, stamp.seq)
    tree.nodes[path] = replace(node, text=splice(node.text, event), chain=chain)


@FILES.on(FileDeleted)
def _file_deleted(tree: Tree, stamp: Stamp, event: FileDeleted) -> None:
    if stamp.erased:
        tree.drop_ids(event.ids)
    else:
        tree.drop(event.path)


@FILES.on(FileRenamed)
def _file_renamed(tree: Tree, stamp: Stamp, event: FileRenamed) -> None:
    if stamp.erased:
        tree.drop_ids(event.ids)
    else:
        tree.move(event.path, event.new_path, event.id, stamp.seq)
