"""Files of a model under ``/memories``: the commands of Anthropic's memory tool, on top of the log."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from msgspec import Struct

from refold import checks
from refold.errors import InvalidInput, LimitExceeded, NotFound
from refold.event import Event, Recorded
from refold.fold import State
from refold.memory.core import Core, Handle
from refold.memory.options import MutationOptions, mutation
from refold.views.files import (
    FILES,
    PATH_BYTES_MAX,
    PATH_DEPTH_MAX,
    PATH_NAME_BYTES_MAX,
    ROOT,
    SUSPICIOUS,
    FileCreated,
    FileDeleted,
    FileEdited,
    FileNode,
    FileRenamed,
    Tree,
)

if TYPE_CHECKING:
    from refold.memory.reasons import Revision
    from refold.results import Receipt

T = TypeVar("T")

# Paths of files as a model gives them: one canonical form for each place, and nothing outside of ``/memories``.
#
# These paths never touch a disk. Names that other programs might follow to the outside are refused although they are
# harmless here, because a mirror or an export may bring them to a file system one day.


def clean_path(path: object, what: str = "path") -> str:
    """Return a path in canonical form: it begins with the root, without ``.``, ``..``, empty names or a final slash.

    Raises ``InvalidInput`` for a path that does not begin with the root, that leads out of it, or that contains
    backslashes, control characters or encoded dots and slashes; ``LimitExceeded`` for one that is too long or too deep.
    """
    given = checks.text(path, what, PATH_BYTES_MAX, "PATH_BYTES_MAX")
    if given != ROOT and not given.startswith(f"{ROOT}/"):
        raise InvalidInput(f"Path must start with {ROOT}, got: {given}")
    match = SUSPICIOUS.search(given)
    if match is not None:
        checks.invalid(f"{what} {checks.brief(given)} holds {match.group()!r}; use plain names between slashes")
    names = _split_path(given)
    if len(names) > PATH_DEPTH_MAX:
        raise LimitExceeded(
            f"{what} is {len(names)} names deep, over PATH_DEPTH_MAX = {PATH_DEPTH_MAX}; use fewer directories"
        )
    for name in names:
        checks.text(name, f"a name in {what}", PATH_NAME_BYTES_MAX, "PATH_NAME_BYTES_MAX")
    return "/".join((ROOT, *names))


def _split_path(path: str) -> list[str]:
    """Return the names below the root that a path leads to; it can leave the root on its way, but not end outside."""
    names: list[str] = []
    for name in path.split("/"):
        if name == ".." and names:
            names.pop()
        elif name == "..":
            raise _escape_error(path)
        elif name not in {"", "."}:
            names.append(name)
    if names[:1] != [ROOT[1:]]:
        raise _escape_error(path)
    return names[1:]


def _escape_error(path: str) -> InvalidInput:
    return InvalidInput(f"Path {path} would escape {ROOT} directory")


# The texts that a model gets about its files, and edits of a text; pure.
#
# The texts are a contract: models were trained on them, so they are, letter by letter, those of the reference
# implementation of Anthropic's memory tool.

LINES_COUNT_MAX: Final = 999_999
"""The most lines of a file that can be shown: line numbers have six digits."""

OCCURRENCES_COUNT_MAX: Final = 1_000
"""The most lines that an error names if a text is not unique."""

SHOWN_DEPTH: Final = 2
"""Levels of directories that are listed."""

EDITED: Final = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"

_NUMBER_CHARS: Final = len(str(LINES_COUNT_MAX))
_AROUND_LINES: Final = 2
_UNITS: Final = "BKMG"
_UNIT_BITS: Final = 10


def format_size(size_bytes: int) -> str:
    """Return a human-readable size: ``0B``, ``1.5K``, ``2M``."""
    if size_bytes == 0:
        return "0B"
    place = min((size_bytes.bit_length() - 1) // _UNIT_BITS, len(_UNITS) - 1)
    scaled = size_bytes / (1 << (_UNIT_BITS * place))
    return f"{scaled:.0f}{_UNITS[place]}" if scaled == int(scaled) else f"{scaled:.1f}{_UNITS[place]}"


def format_file(path: str, text: str, view_range: Sequence[int] | None) -> str:
    """Return the lines of a file with their numbers; raise ``LimitExceeded`` if there are too many to number."""
    lines = text.split("\n")
    if len(lines) > LINES_COUNT_MAX:
        raise LimitExceeded(f"File {path} exceeds maximum line limit of {LINES_COUNT_MAX:,} lines.")
    begin, end = 0, len(lines)
    if view_range is not None and len(view_range) == 2:  # noqa: PLR2004 - its first line and its last
        begin = max(1, view_range[0]) - 1
        end = len(lines) if view_range[1] == -1 else view_range[1]
    return f"Here's the content of {path} with line numbers:\n{_number_lines(lines[begin:end], begin + 1)}"


def _number_lines(lines: Sequence[str], first: int) -> str:
    return "\n".join(f"{number:>{_NUMBER_CHARS}}\t{line}" for number, line in enumerate(lines, first))


def format_directory(path: str, tree: Tree, place: str) -> str:
    """Return the contents of a directory, two levels deep, without names that begin with a dot."""
    sizes = {inner: len((tree.nodes[inner].text or "").encode()) for inner in tree.paths_under(place)}
    lines = [f"{format_size(sum(sizes.values()))}\t{path}"]
    for names, node in _list_nodes(tree, place):
        below = "/".join((place, *names))
        size_bytes = sum(sizes[inner] for inner in tree.paths_under(below)) if node.text is None else sizes[below]
        lines.append(f"{format_size(size_bytes)}\t{path}/{'/'.join(names)}{'/' if node.text is None else ''}")
    header = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
    return "\n".join((header, *lines))


def _list_nodes(tree: Tree, place: str) -> Iterator[tuple[list[str], FileNode]]:
    begin = len(place) + 1
    below = sorted(
        (inner[begin:].split("/"), node) for inner, node in tree.nodes.items() if inner.startswith(f"{place}/")
    )
    for names, node in below:
        if len(names) <= SHOWN_DEPTH and not any(name.startswith(".") for name in names):
            yield names, node


def replace_once(path: str, text: str, old_str: str, new_str: str) -> tuple[str, int]:
    """Replace a piece that occurs once; return the new text and the place, or raise ``InvalidInput``."""
    count = text.count(old_str)
    if count == 0:
        raise InvalidInput(f"No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}.")
    if count > 1:
        shown = ", ".join(map(str, _lines_of(text, old_str)))
        problem = f"Multiple occurrences of old_str `{old_str}` in lines: {shown}."
        raise InvalidInput(f"No replacement was performed. {problem} Please ensure it is unique")
    place = text.find(old_str)
    return text[:place] + new_str + text[place + len(old_str) :], place


def _lines_of(text: str, piece: str) -> Iterator[int]:
    """Yield the line of each occurrence, including overlapping ones, up to the number that an error names."""
    line, begin, place = 1, 0, text.find(piece)
    for _ in range(OCCURRENCES_COUNT_MAX):
        if place < 0:
            return
        line += text.count("\n", begin, place)
        yield line
        begin, place = place, text.find(piece, place + 1)


def snippet(text: str, place: int) -> str:
    """Return the first line of an edit, with two lines before and after it."""
    lines = text.split("\n")
    changed = text.count("\n", 0, place)
    begin, end = max(0, changed - _AROUND_LINES), min(len(lines), changed + _AROUND_LINES + 1)
    return f"{EDITED}\n{_number_lines(lines[begin:end], begin + 1)}"


def insert_lines(text: str, insert_line: int, insert_text: str) -> str:
    """Insert a text after a line of another and return the result; raise ``InvalidInput`` for an unknown line."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if not 0 <= insert_line <= len(lines):
        raise InvalidInput(
            f"Invalid `insert_line` parameter: {insert_line}. It should be within the range [0, {len(lines)}]."
        )
    lines.insert(insert_line, insert_text.rstrip("\n"))
    joined = "\n".join(lines)
    return joined if joined.endswith("\n") else f"{joined}\n"


def difference(before: str, after: str) -> tuple[int, int, str]:
    """Return the start of the difference between two texts, the length it replaces, and the replacement."""
    begin = _common_prefix(before, after)
    shorter = min(len(before), len(after)) - begin
    end = _common_prefix(before[::-1][:shorter], after[::-1][:shorter])
    return begin, len(before) - begin - end, after[begin : len(after) - end]


def _common_prefix(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts, by bisection: each comparison runs in C."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least


FILE_CHARS_MAX: Final = 1024 * 1024
"""Characters of one file."""

FILES_CHARS_MAX: Final = 16 * 1024 * 1024
"""Characters of all files of one tree: they are in RAM while it is used."""

FILES_COUNT_MAX: Final = 1_024
"""Files and directories of one tree."""

EDITS_COUNT_MAX: Final = 64
"""Edits of a file after which the next one stores the whole text, which bounds the events a read takes."""

assert FILE_CHARS_MAX < FILES_CHARS_MAX

_FREE: Final = "delete what is no longer needed"


class FileEntry(Struct, frozen=True):
    """A file: its path, its size in UTF-8 bytes, and the seq of its last write, below 0 in an open batch."""

    path: str
    size_bytes: int
    seq: int


class Files(Handle):
    """A handle on a tree of files; its methods return and raise the texts that a model gets.

    >>> from refold import Memory
    >>> files = Memory().files()
    >>> files.create("/memories/plan.md", "Ship it.")
    'File created successfully at: /memories/plan.md'
    """

    __slots__ = ("name",)

    def __init__(self, core: Core, name: str, at: int | None) -> None:
        super().__init__(core, f"files/{name}", at)
        self.name = name

    def __repr__(self) -> str:
        return f"Files({self.name!r}, {self._core.counts(lambda: f'files={len(self.list())}')})"

    # Reading.

    def _look(self, query: Callable[[Tree], T]) -> T:
        return self._read(lambda state: query(state.part(FILES)))

    def list(self) -> list[FileEntry]:
        """Return all files, sorted by path; directories are only in ``view``."""
        nodes = self._look(lambda tree: sorted(tree.nodes.items(), key=lambda item: item[0]))
        return [
            FileEntry(path, len(node.text.encode()), node.chain[-1]) for path, node in nodes if node.text is not None
        ]

    def read(self, path: str) -> str:
        """Return the text of a file; ``NotFound`` if there is none, ``InvalidInput`` for a directory."""
        place = clean_path(path)
        return self._look(lambda tree: _file(tree, path, place).text or "")

    def blame(self, path: str, line: int | None = None) -> "Sequence[Revision]":
        """Return who wrote each line of a file and when, or every text that one ``line`` (from 1) had, oldest first.

        ``revision.key`` is the number of the line. Raises ``NotFound`` if there is no such file.
        """
        from refold.memory.blame import file_revisions  # noqa: PLC0415 - imported on first use

        return file_revisions(self._core, self._stream, clean_path(path), line, self._at)

    def view(self, path: str, view_range: Sequence[int] | None = None) -> str:
        """Return a file with numbered lines, or the contents of a directory, as a model gets them.

        ``view_range`` is the first and the last line; the last can be -1, for the end. Raises ``NotFound`` for a path
        that does not exist.
        """
        place, lines = clean_path(path), _range(view_range)

        def render(tree: Tree) -> str:
            node = None if place == ROOT else _find_node(tree, place, _MISSING.format(path))
            if node is None or node.text is None:
                return format_directory(path, tree, place)
            return format_file(path, node.text, lines)

        return self._look(render)

    def seqs_shown(self, path: str) -> tuple[int, ...]:
        """Return the seqs of the events that ``view(path)`` is made from, to cite as its sources."""
        place = clean_path(path)

        def newest_seqs(tree: Tree) -> tuple[int, ...]:
            node = tree.nodes.get(place)
            if node is None or node.text is None:
                return tuple(each.named for _, each in _list_nodes(tree, place))
            return node.chain[-1:]  # It is derived from the events before it.

        return self._look(newest_seqs)

    # Writing.

    @mutation
    def create(self, path: str, file_text: str, **options: Unpack[MutationOptions]) -> str:
        """Create a file, with its parent directories; raise ``InvalidInput`` if the path exists."""
        place, text = clean_path(path), _text(file_text, "file_text")
        cited, file_id = self._source_seqs(options), self._core.engine.reader.new_id()

        def decide(state: State) -> Event:
            tree = state.part(FILES)
            _refuse_existing(tree, place, f"File {path} already exists")
            _check_parents(tree, place)
            _check_room(tree, place, len(text))
            return FileCreated(cited, file_id, place, text)

        self._write(decide, ("create", place, text), options)
        return f"File created successfully at: {path}"

    @mutation
    def str_replace(self, path: str, old_str: str, new_str: str, **options: Unpack[MutationOptions]) -> str:
        """Replace a text that occurs once in a file, and return the lines around it.

        Raises ``NotFound`` if the file does not exist, ``InvalidInput`` if the text does not occur or occurs more than
        once.
        """
        place, old, new = clean_path(path), _text(old_str, "old_str"), _text(new_str, "new_str")
        cited, shown = self._source_seqs(options), [EDITED]

        def decide(state: State) -> Event | None:
            tree = state.part(FILES)
            node = _file(tree, path, place)
            changed, begin = replace_once(path, node.text or "", old, new)
            shown[:] = [snippet(changed, begin)]
            return _edit(cited, tree, node, changed, (begin, len(old), new))

        noted = self._write(decide, ("str_replace", place, old, new), options)
        return self._snippet_of(noted, old) if shown == [EDITED] else shown[0]

    def _snippet_of(self, noted: Recorded | None, old: str) -> str:
        """Return the answer to a repeated request: the lines as they were after the first one."""
        if noted is None:
            return EDITED
        event, stamp = noted
        assert isinstance(event, FileEdited), event

        def text_at(*, is_before: bool) -> str | None:
            return self._core.read_around(
                self._stream, lambda state: _text_with(state.part(FILES), event.id), stamp, is_before=is_before
            )

        # The old text occurred once; the new one can occur anywhere.
        before, after = text_at(is_before=True), text_at(is_before=False)
        return EDITED if before is None or after is None else snippet(after, before.find(old))

    @mutation
    def insert(self, path: str, insert_line: int, insert_text: str, **options: Unpack[MutationOptions]) -> str:
        """Insert a text after a line of a file; line 0 is its beginning.

        Raises ``NotFound`` if the file does not exist, ``InvalidInput`` for a line that it does not have.
        """
        place, text = clean_path(path), _text(insert_text, "insert_text")
        if type(insert_line) is not int:
            checks.invalid(f"insert_line must be an int, not {type(insert_line).__name__}")
        cited = self._source_seqs(options)

        def decide(state: State) -> Event | None:
            tree = state.part(FILES)
            node = _file(tree, path, place)
            before = node.text or ""
            changed = insert_lines(before, insert_line, text)
            return _edit(cited, tree, node, changed, difference(before, changed))

        self._write(decide, ("insert", place, insert_line, text), options)
        return f"The file {path} has been edited."

    @mutation
    def delete(self, path: str, **options: Unpack[MutationOptions]) -> str:
        """Remove a file, or a directory with everything in it; raise ``NotFound`` if the path does not exist.

        The log keeps it, and ``memory.at`` shows it, until it is erased.
        """
        place, cited = clean_path(path), self._source_seqs(options)
        if place == ROOT:
            raise InvalidInput(f"Cannot delete the {ROOT} directory itself")

        def decide(state: State) -> Event:
            tree = state.part(FILES)
            _find_node(tree, place, f"The path {path} does not exist")
            return FileDeleted(cited, _ids(tree, place), place)

        self._write(decide, ("delete", place), options)
        return f"Successfully deleted {path}"

    @mutation
    def rename(self, old_path: str, new_path: str, **options: Unpack[MutationOptions]) -> str:
        """Move a file, or a directory with everything in it, to a path that does not exist yet.

        Raises ``NotFound`` if the old path does not exist, ``InvalidInput`` if the new one exists or lies inside the
        old one.
        """
        old, new = clean_path(old_path, "old_path"), clean_path(new_path, "new_path")
        cited, move_id = self._source_seqs(options), self._core.engine.reader.new_id()
        if old == ROOT:
            raise InvalidInput(f"Cannot rename the {ROOT} directory itself")

        def decide(state: State) -> Event:
            tree = state.part(FILES)
            _refuse_existing(tree, new, f"The destination {new_path} already exists")
            _find_node(tree, old, f"The path {old_path} does not exist")
            if new.startswith(f"{old}/"):
                checks.invalid(f"Cannot rename {old_path} to {new_path}, which lies inside of it")
            _check_parents(tree, new)
            _check_room(tree, new, 0, count=0)
            _check_lengths(tree, old, new)
            return FileRenamed(cited, move_id, _ids(tree, old), old, new)

        self._write(decide, ("rename", old, new), options)
        return f"Successfully renamed {old_path} to {new_path}"

    def erase(self, *, derived: str = "erase", forks: str = "refuse") -> "Receipt":
        """Erase the bytes of all its events, and its name; return what was reached, and what no store can reach.

        Events derived from it are erased too, unless ``derived="keep"``.
        """
        from refold.memory import store  # noqa: PLC0415 - imported on first use

        return store.erase_stream(self._core, self._stream, self._at, derived, forks)


_MISSING: Final = "The path {} does not exist. Please provide a valid path."


def _text(value: object, what: str) -> str:
    text = checks.text(value, what)
    if len(text) > FILE_CHARS_MAX:
        raise LimitExceeded(
            f"{what} has {len(text):,} characters, over FILE_CHARS_MAX = {FILE_CHARS_MAX:,}; write several files"
        )
    return text


def _range(view_range: Any) -> "list[int] | None":
    if view_range is None:
        return None
    lines: list[Any] = list(view_range) if isinstance(view_range, (list, tuple)) else [None]  # pyright: ignore[reportUnknownArgumentType]
    if any(type(line) is not int for line in lines):
        shown = checks.brief(view_range)  # pyright: ignore[reportUnknownArgumentType]
        checks.invalid(f"view_range is {shown}; give the first and the last line, the last may be -1")
    return lines


def _find_node(tree: Tree, place: str, message: str) -> FileNode:
    node = tree.nodes.get(place)
    if node is None:
        raise NotFound(message)
    return node


def _file(tree: Tree, path: str, place: str) -> FileNode:
    node = None if place == ROOT else _find_node(tree, place, _MISSING.format(path))
    if node is None or node.text is None:
        raise InvalidInput(f"The path {path} is not a file.")
    return node


def _text_with(tree: Tree, file_id: str) -> str | None:
    path = tree.places.get(file_id)
    return None if path is None else tree.nodes[path].text


def _refuse_existing(tree: Tree, place: str, message: str) -> None:
    if place == ROOT or place in tree.nodes:
        raise InvalidInput(message)


def _ids(tree: Tree, place: str) -> tuple[str, ...]:
    return tuple(tree.nodes[inner].id for inner in tree.paths_under(place))


def _parents(place: str) -> "list[str]":
    names = place.split("/")
    return ["/".join(names[:count]) for count in range(3, len(names))]


def _check_parents(tree: Tree, place: str) -> None:
    for parent in _parents(place):
        node = tree.nodes.get(parent)
        if node is not None and node.text is not None:
            checks.invalid(f"The path {parent} is a file, so that nothing can be under it")


def _check_room(tree: Tree, place: str, chars: int, *, count: int = 1) -> None:
    count += len(tree.nodes) + sum(parent not in tree.nodes for parent in _parents(place))
    if count > FILES_COUNT_MAX:
        raise LimitExceeded(f"{count:,} files and directories are over FILES_COUNT_MAX = {FILES_COUNT_MAX:,}; {_FREE}")
    _check_chars(tree, chars)


def _check_chars(tree: Tree, more: int) -> None:
    chars = sum(len(node.text or "") for node in tree.nodes.values()) + more
    if chars > FILES_CHARS_MAX:
        raise LimitExceeded(
            f"the files would have {chars:,} characters, over FILES_CHARS_MAX = {FILES_CHARS_MAX:,}; {_FREE}"
        )


def _check_lengths(tree: Tree, old: str, new: str) -> None:
    """Refuse a move that would make a path too long or too deep, so that no method could name it."""
    for inner in tree.paths_under(old):
        moved = checks.text(new + inner[len(old) :], "a path that is moved along", PATH_BYTES_MAX, "PATH_BYTES_MAX")
        depth = moved.count("/") - 1
        if depth > PATH_DEPTH_MAX:
            message = f"a path that is moved along is {depth} names deep, over PATH_DEPTH_MAX = {PATH_DEPTH_MAX}"
            raise LimitExceeded(f"{message}; use fewer directories")


def _edit(
    cited: tuple[int, ...], tree: Tree, node: FileNode, changed: str, piece: tuple[int, int, str]
) -> FileEdited | None:
    """Return the event that changes a file's text: the changed piece, or the whole text after many edits."""
    before = node.text or ""
    if changed == before:
        return None
    _text(changed, "the edited file")
    _check_chars(tree, len(changed) - len(before))
    derived = (*cited, *(seq for seq in node.chain[-1:] if seq not in cited))
    if len(node.chain) > EDITS_COUNT_MAX:
        return FileEdited(derived, node.id, 0, len(before), changed)
    return FileEdited(derived, node.id, *piece)
