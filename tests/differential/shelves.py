"""What the contract says of the files of a model, and of the library of learned skills."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from refold import InvalidInput, NotFound
from tests.differential.chats import State, Values
from tests.differential.log import Change, Options, Row, drop, put
from tests.differential.projects import Projects

NodeId = tuple[int, int]
"""The seq of the row that made a file or a directory, and how deep a directory lies that was made on the way."""

Node = tuple[NodeId, str | None, int]
"""An id, a text, which a directory lacks, and the seq of the text."""


@dataclass
class Tree(State):
    """The files and directories by path."""

    nodes: dict[str, Node] = field(default_factory=dict)

    def plain(self) -> Any:
        return {path: text for path, (_, text, _) in self.nodes.items()}

    def under(self, path: str) -> list[str]:
        """A path and all below it."""
        return [held for held in self.nodes if (held + "/").startswith(path + "/")]

    def check_free(self, path: str) -> None:
        """Nothing may be there, and no file on the way."""
        if path in self.nodes or any(self.nodes.get(each, (0, None))[1] is not None for each in parents(path)):
            raise InvalidInput(path)

    def found(self, path: str) -> Node:
        """A node that has to be there."""
        if path not in self.nodes:
            raise NotFound(path)
        return self.nodes[path]

    def hang(self, path: str, node: Node, maker: int) -> None:
        """Put a node there, in the place of what an erasure left behind, and make the directories on the way."""
        for depth, parent in enumerate(parents(path), 1):
            if self.nodes.get(parent, (0, "none"))[1] is not None:
                self.cut(parent)
                self.nodes[parent] = ((maker, depth), None, 0)
        self.cut(path)
        self.nodes[path] = node

    def cut(self, path: str) -> None:
        """Remove a path and all below it."""
        for held in self.under(path) if path in self.nodes else ():
            del self.nodes[held]

    def cut_ids(self, ids: list[NodeId]) -> None:
        """Remove what has one of the ids, and all below it."""
        for path in [path for path, (node_id, _, _) in self.nodes.items() if node_id in ids]:
            self.cut(path)


def parents(path: str) -> list[str]:
    names = path.split("/")
    return ["/".join(names[:count]) for count in range(3, len(names))]


@dataclass(frozen=True)
class Lesson:
    """A learned skill."""

    id: str
    name: str
    description: str
    body: str
    kind: str = "generated"
    status: str = "pending_review"
    seq: int = 0
    created_ns: int = 0
    updated_ns: int = 0


@dataclass
class Shelf(State):
    """Learned skills by id; switches, notes, (count, rated, succeeded, time) by name; (seq, query) by conversation."""

    learned: dict[str, Lesson] = field(default_factory=dict)
    switches: Values = field(default_factory=dict)
    notes: Values = field(default_factory=dict)
    uses: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    selections: dict[str, tuple[int, str]] = field(default_factory=dict)

    def hashed(self) -> Any:
        return [*self.learned.values()], self.switches, self.notes, self.uses, [*self.selections.items()]

    def plain(self) -> Any:
        learned = {key: replace(held, seq=0, created_ns=0, updated_ns=0) for key, held in self.learned.items()}
        uses = {name: counts[:3] for name, counts in self.uses.items()}
        values = [{name: value for name, (value, _) in held.items()} for held in (self.switches, self.notes)]
        return learned, *values, uses, [*self.selections]

    def named(self, skill: str) -> Lesson:
        """The skill of an id or a name."""
        for held in self.learned.values():
            if skill in {held.id, held.name}:
                return held
        raise NotFound(skill)


class Shelves(Projects):
    """The verbs of files and of the library."""

    EMPTY: ClassVar = Projects.EMPTY | {"files": Tree, "skills": Shelf}

    def _file(self, where: str, asked: tuple[Any, ...], decide: Callable[[Tree], Change | None], options: Any) -> Any:
        self.note(f"files/{where}", asked, decide, Options(**options))
        return ...

    def files_create(self, where: str, path: str, text: str, **options: Any) -> Any:
        def decide(tree: Tree) -> Change:
            tree.check_free(path)

            def effect(now: Tree, row: Row) -> None:
                if not row.erased:
                    now.hang(path, ((row.seq, 0), text, row.seq), row.seq)

            return Change(effect)

        return self._file(where, ("create", path, text), decide, options)

    def _edit(self, where: str, path: str, asked: tuple[Any, ...], edit: Callable[[str], str], options: Any) -> Any:
        def decide(tree: Tree) -> Change | None:
            node_id, text, seq = tree.found(path)
            if text is None:
                raise InvalidInput(path)
            after = edit(text)

            def effect(now: Tree, row: Row) -> None:
                for held in [held for held, node in now.nodes.items() if node[0] == node_id]:
                    if row.erased:
                        now.cut(held)
                    else:
                        now.nodes[held] = (node_id, after, row.seq)

            return None if after == text else Change(effect, None, (seq,))

        return self._file(where, asked, decide, options)

    def files_str_replace(self, where: str, path: str, old: str, new: str, **options: Any) -> Any:
        def edit(text: str) -> str:
            if text.count(old) != 1:
                raise InvalidInput(old)
            return text.replace(old, new)

        return self._edit(where, path, ("str_replace", path, old, new), edit, options)

    def files_insert(self, where: str, path: str, line: int, new: str, **options: Any) -> Any:
        def edit(text: str) -> str:
            lines = text.removesuffix("\n").split("\n") if text else []
            if not 0 <= line <= len(lines):
                raise InvalidInput(line)
            return "\n".join([*lines[:line], new, *lines[line:]]).removesuffix("\n") + "\n"

        return self._edit(where, path, ("insert", path, line, new), edit, options)

    def files_delete(self, where: str, path: str, **options: Any) -> Any:
        def decide(tree: Tree) -> Change:
            tree.found(path)
            ids = [tree.nodes[held][0] for held in tree.under(path)]
            return Change(lambda now, row: now.cut_ids(ids) if row.erased else now.cut(path))

        return self._file(where, ("delete", path), decide, options)

    def files_rename(self, where: str, old: str, new: str, **options: Any) -> Any:
        def decide(tree: Tree) -> Change:
            if new in tree.nodes:
                raise InvalidInput(new)
            tree.found(old)
            if (new + "/").startswith(old + "/"):
                raise InvalidInput(new)
            tree.check_free(new)
            ids = [tree.nodes[held][0] for held in tree.under(old)]

            def effect(now: Tree, row: Row) -> None:
                if row.erased:
                    now.cut_ids(ids)
                    return
                moved = [(path, now.nodes[path]) for path in now.under(old) if old in now.nodes]
                now.cut(old)
                for path, node in moved:
                    now.hang(new + path[len(old) :], node, row.seq)

            return Change(effect)

        return self._file(where, ("rename", old, new), decide, options)

    # The library.

    def _skill(self, asked: tuple[Any, ...], decide: Callable[[Shelf], Change | None], options: Any) -> Row | None:
        return self.note("skills/default", asked, decide, Options(**options))

    def skilllibrary_learn(
        self, _: None, name: str, description: str, body: str, *, status: str, **options: Any
    ) -> Any:
        lesson = Lesson(self.new_ids[0] if self.new_ids else "", name, description, body, status=status)

        def decide(shelf: Shelf) -> Change:
            if name in {each for held in shelf.learned.values() for each in (held.id, held.name)}:
                raise InvalidInput(name)
            return teaching(lesson)

        self._skill(("learn", name, description, body, status), decide, options)
        return ...

    def skilllibrary_refine(self, _: None, skill: str, *, body: str, **options: Any) -> Any:
        def decide(shelf: Shelf) -> Change | None:
            held = shelf.named(skill)
            if (held.body, held.status) == (body, "pending_review"):
                return None
            return teaching(replace(held, body=body, kind="refined", status="pending_review"), (held.seq,))

        if self._skill(("refine", skill, body), decide, options) is None:
            self.state("skills/default").named(skill)
        return ...

    def skilllibrary_review(self, _: None, skill: str, status: str, **options: Any) -> Any:
        def decide(shelf: Shelf) -> Change | None:
            held = shelf.named(skill)

            def effect(now: Shelf, row: Row) -> None:
                if held.id in now.learned:
                    known = now.learned[held.id]
                    now.learned[held.id] = replace(known, status=status, updated_ns=row.clock_ns)

            return None if held.status == status else Change(effect)

        if self._skill(("review", skill, status), decide, options) is None:
            self.state("skills/default").named(skill)
        return ...

    def skilllibrary_approve(self, _: None, skill: str, **options: Any) -> Any:
        return self.skilllibrary_review(None, skill, "active", **options)

    def skilllibrary_reject(self, _: None, skill: str, **options: Any) -> Any:
        return self.skilllibrary_review(None, skill, "rejected", **options)

    def skilllibrary_delete(self, _: None, skill: str, **options: Any) -> None:
        def decide(shelf: Shelf) -> Change:
            held = shelf.named(skill)
            return Change(lambda now, _: now.learned.pop(held.id, None))

        self._skill(("delete", skill), decide, options)

    def skilllibrary_toggle(self, _: None, name: str, *, enabled: bool, **options: Any) -> bool:
        def decide(shelf: Shelf) -> Change | None:
            is_on, prior = shelf.switches.get(name, (True, 0))
            change = Change(
                lambda now, row: put(now.switches, row, name, enabled, prior), "replaced" if prior else None
            )
            return None if is_on == enabled else change

        return self._skill(("toggle", name, enabled), decide, options) is not None

    def skilllibrary_note(self, _: None, name: str, text: str, **options: Any) -> bool:
        note = text.strip()

        def decide(shelf: Shelf) -> Change | None:
            old, prior = shelf.notes.get(name, ("", 0))

            def effect(now: Shelf, row: Row) -> None:
                if note:
                    put(now.notes, row, name, note, prior)
                else:
                    drop(now.notes, row, name, prior)

            return None if old == note else Change(effect, "replaced" if prior else None)

        return self._skill(("note", name, note), decide, options) is not None

    def skilllibrary_use(self, _: None, name: str, *, succeeded: bool | None, **options: Any) -> None:
        def effect(shelf: Shelf, row: Row) -> None:
            if not row.erased:
                count, rated, good, _ = shelf.uses.get(name, (0, 0, 0, 0))
                counts = (count + 1, rated + (succeeded is not None), good + (succeeded is True))
                shelf.uses[name] = (*counts, row.clock_ns)

        self._skill(("use", name, succeeded), lambda _: Change(effect), options)
        if not self.is_repeated:
            self.settings_count_usage(None, "skill_used", 1)

    def skilllibrary_record(self, _: None, __: Any, *, query: str, conversation: str, **options: Any) -> Any:
        def decide(shelf: Shelf) -> Change:
            prior = shelf.selections.get(conversation, (0, ""))[0]

            def effect(now: Shelf, row: Row) -> None:
                kept = {
                    name: held
                    for name, held in now.selections.items()
                    if (held[0] != prior if row.erased else name != conversation)
                }
                now.selections = kept if row.erased else kept | {conversation: (row.seq, query)}

            return Change(effect, "replaced" if prior else None)

        self._skill(("record", query, conversation), decide, options)
        return ...


def teaching(lesson: Lesson, sources: tuple[int, ...] | None = None) -> Change:
    """A skill gets its content; one whose content was erased is gone, so that nothing old comes back."""

    def effect(shelf: Shelf, row: Row) -> None:
        held = shelf.learned.get(lesson.id)
        created_ns = held.created_ns if held else row.clock_ns
        new = replace(lesson, seq=row.seq, created_ns=created_ns, updated_ns=row.clock_ns)
        shelf.learned |= {lesson.id: new}
        if row.erased:
            del shelf.learned[lesson.id]

    return Change(effect, None, sources)
