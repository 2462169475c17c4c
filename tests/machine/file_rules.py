"""The rules of the state machine for the files of a model, and what the plain model says of them."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from refold import InvalidInput, NotFound
from refold.memory import Files
from tests.machine import model_states
from tests.machine.chat_rules import GIVEN, drawn_rule
from tests.machine.driver import Drawn, drawn_options
from tests.machine.fact_rules import FactRules
from tests.machine.model_states import EMPTY, FOLD, Entry

ROOT = "/memories"
STREAM = "files/work"
NodeId = tuple[int, int]
"""The seq of the entry that made a file or a directory, and how deep a directory lies that was made on the way."""

paths = st.sampled_from(["a", "b", "d/a", "d/a", "d/e/a", "f/b", "d", "d/e", "f"]).map(lambda path: f"{ROOT}/{path}")
contents = st.sampled_from(["", "one\ntwo\n", "one", "\u00e9\ntwo\nthree", "long\n" * 60])
pieces = st.sampled_from(["one", "two", "long", "x\ny", ""])

GIVEN |= {
    "write_file": {"path": paths, "text": contents, "drawn": drawn_options},
    "edit_file": {
        "place": st.integers(0, 20),
        "path": paths,
        "old": pieces,
        "new": pieces,
        "line": st.one_of(st.none(), st.integers(-1, 3)),
        "drawn": drawn_options,
    },
    "remove_path": {"path": paths, "drawn": drawn_options},
    "move_path": {"old": paths, "new": paths, "drawn": drawn_options},
}


@dataclass
class Folder:
    """The state of a tree of files: (id, text, seq of the text) by path; a directory has no text."""

    nodes: dict[str, tuple[NodeId, str | None, int]] = field(default_factory=dict)

    def hashed(self) -> Any:
        """What a hash tells apart."""
        return self.nodes

    def plain(self) -> Any:
        """What a person compares."""
        return {path: text for path, (_, text, _) in self.nodes.items()}

    def under(self, path: str) -> list[str]:
        """A path and all below it."""
        return [held for held in self.nodes if (held + "/").startswith(path + "/")]

    def ids(self, path: str) -> tuple[NodeId, ...]:
        """Their ids."""
        return tuple(self.nodes[held][0] for held in self.under(path))

    def file(self, path: str) -> tuple[NodeId, str, int]:
        """A file, which has to be there."""
        if path not in self.nodes:
            raise NotFound(path)
        node_id, text, seq = self.nodes[path]
        if text is None:
            raise InvalidInput(path)
        return node_id, text, seq

    def check_free(self, path: str) -> None:
        """Nothing may stand there."""
        if path in self.nodes:
            raise InvalidInput(path)

    def check_way(self, path: str) -> None:
        """No file may stand on the way."""
        if any(self.nodes.get(parent, (0, None))[1] is not None for parent in _parents(path)):
            raise InvalidInput(path)

    def hang(self, path: str, node: tuple[NodeId, str | None, int], maker: int) -> None:
        """Puts a node there, in the place of what an erasure left behind, and makes the directories on the way."""
        for depth, parent in enumerate(_parents(path), 1):
            if self.nodes.get(parent, (0, "none"))[1] is not None:
                self._put(parent, ((maker, depth), None, 0))
        self._put(path, node)

    def _put(self, path: str, node: tuple[NodeId, str | None, int]) -> None:
        self.cut(path)
        self.nodes[path] = node

    def cut(self, path: str) -> None:
        """Removes a path and all below it."""
        for held in self.under(path) if path in self.nodes else ():
            del self.nodes[held]

    def cut_ids(self, ids: tuple[NodeId, ...]) -> None:
        """Removes what has one of the ids, and all below it."""
        for path in [path for path, (node_id, _, _) in self.nodes.items() if node_id in ids]:
            self.cut(path)


def _parents(path: str) -> list[str]:
    names = path.split("/")
    return ["/".join(names[:count]) for count in range(3, len(names))]


def _created(folder: Folder, entry: Entry) -> None:
    if not entry.erased:
        maker, path, text = entry.data
        folder.hang(path, ((maker, 0), text, entry.seq), maker)


def _edited(folder: Folder, entry: Entry) -> None:
    node_id, text = entry.data
    for path, (held, _, _) in list(folder.nodes.items()):
        if held == node_id and entry.erased:
            folder.cut(path)
        elif held == node_id:
            folder.nodes[path] = (node_id, text, entry.seq)


def _removed(folder: Folder, entry: Entry) -> None:
    ids, path = entry.data
    if entry.erased:
        folder.cut_ids(ids)
    else:
        folder.cut(path)


def _moved(folder: Folder, entry: Entry) -> None:
    maker, ids, old, new = entry.data
    if entry.erased:
        folder.cut_ids(ids)
        return
    moved = [(path, folder.nodes[path]) for path in folder.under(old) if old in folder.nodes]
    folder.cut(old)
    for path, node in moved:
        folder.hang(new + path[len(old) :], node, maker)


EMPTY["files"] = Folder  # type: ignore[assignment]  # A kind of stream more than the plain model knows by itself.
FOLD |= {"file_created": _created, "file_edited": _edited, "path_removed": _removed, "path_moved": _moved}
assert model_states.EMPTY is EMPTY


class FileRules(FactRules):
    """Every verb of a tree of files that changes something."""

    @property
    def files(self) -> Files:
        """The handle."""
        return self.memory.files("work")

    @drawn_rule("write_file")
    def write_file(self, path: str, text: str, drawn: Drawn) -> None:
        def decide(folder: Folder) -> Any:
            folder.check_free(path)
            folder.check_way(path)
            return "file_created", (self.model.head + 1, path, text)

        self.drive(
            STREAM,
            drawn,
            lambda **options: self.files.create(path, text, **options),
            lambda options, _: self.model.note(STREAM, ("create", path, text), decide, options),
        )

    @drawn_rule("edit_file")
    def edit_file(self, place: int, path: str, old: str, new: str, line: int | None, drawn: Drawn) -> None:
        held = self.files.list()
        path = held[place % len(held)].path if held and place % 5 else path
        asked = ("str_replace", path, old, new) if line is None else ("insert", path, line, new)

        def call(**options: Any) -> str:
            if line is None:
                return self.files.str_replace(path, old, new, **options)
            return self.files.insert(path, line, new, **options)

        def decide(folder: Folder) -> Any:
            node_id, text, seq = folder.file(path)
            after = _inserted(text, line, new) if line is not None else _replaced(text, old, new)
            return None if after == text else ("file_edited", (node_id, after), (seq,))

        self.drive(STREAM, drawn, call, lambda options, _: self.model.note(STREAM, asked, decide, options))

    @drawn_rule("remove_path")
    def remove_path(self, path: str, drawn: Drawn) -> None:
        def decide(folder: Folder) -> Any:
            if path not in folder.nodes:
                raise NotFound(path)
            return "path_removed", (folder.ids(path), path)

        self.drive(
            STREAM,
            drawn,
            lambda **options: self.files.delete(path, **options),
            lambda options, _: self.model.note(STREAM, ("delete", path), decide, options),
        )

    @drawn_rule("move_path")
    def move_path(self, old: str, new: str, drawn: Drawn) -> None:
        def decide(folder: Folder) -> Any:
            folder.check_free(new)
            if old not in folder.nodes:
                raise NotFound(old)
            if (new + "/").startswith(old + "/"):
                raise InvalidInput(new)
            folder.check_way(new)
            return "path_moved", (self.model.head + 1, folder.ids(old), old, new)

        self.drive(
            STREAM,
            drawn,
            lambda **options: self.files.rename(old, new, **options),
            lambda options, _: self.model.note(STREAM, ("rename", old, new), decide, options),
        )


def _replaced(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise InvalidInput(old)
    return text.replace(old, new)


def _inserted(text: str, line: int, new: str) -> str:
    lines = text.removesuffix("\n").split("\n") if text else []
    if not 0 <= line <= len(lines):
        raise InvalidInput(line)
    return "\n".join([*lines[:line], new, *lines[line:]]).removesuffix("\n") + "\n"


def check_files(files: Files, folder: Folder) -> None:
    """Reads a tree in every way and compares."""
    told = {path: text for path, (_, text, _) in sorted(folder.nodes.items()) if text is not None}
    entries = files.list()
    assert {entry.path: files.read(entry.path) for entry in entries} == told
    assert [entry.path for entry in entries] == list(told)
    near = [path for path in folder.nodes if path.count("/") <= 3]
    assert len(files.view(ROOT).split("\n")) == 2 + len(near)
