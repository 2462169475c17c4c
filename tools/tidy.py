"""The rules of this repository that no linter has: `python tools/tidy.py` names each place and what to do instead.

A rule is a function that takes the whole tree and yields findings; RULES lists them. tests/test_tidy.py runs them over
this tree, and shows for each rule a violation that it catches. A remark that a review makes twice becomes a rule here.
"""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias, TypeVar

MODULE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70

# Users import these by themselves; every other module has to be imported by one of ours, or is dead. The modules of
# [project.scripts] come on top.
ENTRY_POINTS = frozenset({"refold", "refold.__main__", "refold.index.vectors", "refold.testing"})

# The last word of a limit's name is its unit, or a bound behind the unit: MESSAGE_TOKENS_MAX, PAGE_EVENTS.
UNITS = frozenset(
    {"BYTES", "CHARS", "COUNT", "DATABASES", "DAYS", "DEPTH", "DIMENSIONS", "ENTRIES", "EVENTS", "FILES", "LINES"}
    | {"MESSAGES", "MS", "NS", "RATIO", "READERS", "ROWS", "SCORE", "SECONDS", "STATES", "TOKENS", "VECTORS", "WEIGHT"}
)
BOUNDS = frozenset({"DEFAULT", "MAX", "MIN"})

# An event tells what has happened. Its last word ends in "ed", or is one of the irregular ones.
IRREGULAR_PAST = frozenset({"Begun", "Built", "Given", "Made", "Put", "Read", "Said", "Sent", "Set", "Shown", "Taken"})

# Built from parts, so that this file does not hold what it bans. Each stands beside what to write instead.
BANNED_TEXTS = {
    "/" + "work/": "a path relative to the repository",
    "/" + "tmp/bash": "a path relative to the repository",
    "pypi" + ".org": "the package's name alone",
    "python" + "hosted.org": "the package's name alone",
    "registry." + "npmjs": "the package's name alone",
    "deb." + "debian": "the package's name alone",
}

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Node = TypeVar("Node", bound=ast.AST)
DefinitionNode: TypeAlias = ast.ClassDef | FunctionNode


@dataclass(frozen=True)
class Finding:
    """One place that breaks a rule, and the way out."""

    path: Path
    line: int
    rule: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.advice}"


@dataclass(frozen=True)
class Module:
    """One source file under engine/, parsed."""

    path: Path
    name: str
    text: str
    syntax: ast.Module

    def at(self, line: int, rule: str, advice: str) -> Finding:
        """A finding at a line of this module."""
        return Finding(self.path, line, rule, advice)


class Tree:
    """The repository as the rules see it, each file read once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def modules(self) -> list[Module]:
        """Every Python file under engine/, in the order of their paths."""
        source_root = self.root / "engine"
        return [self._parse(path, source_root) for path in sorted(source_root.rglob("*.py"))]

    def _parse(self, path: Path, source_root: Path) -> Module:
        parts = path.relative_to(source_root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        return Module(path.relative_to(self.root), name, text, ast.parse(text, str(path)))

    @cached_property
    def events(self) -> list[tuple[Module, ast.ClassDef, ast.expr]]:
        """Every class with a `tag=` that descends from Event, with its module and the tag's expression."""
        classes = [(module, node) for module in self.modules for node in definitions(module.syntax, ast.ClassDef)]
        lineage = {"Event"}
        for _ in classes:  # Once for each class reaches every descendant, in whatever order they are written.
            lineage |= {node.name for _, node in classes if lineage & base_names(node)}
        return [
            (module, node, keyword.value)
            for module, node in classes
            if node.name in lineage
            for keyword in node.keywords
            if keyword.arg == "tag"
        ]

    @cached_property
    def texts(self) -> list[tuple[Path, str]]:
        """Every text file that is committed or about to be, with its path inside the repository."""
        found = ((path, self._text_of(path)) for path in self._committed_paths())
        return [(path, text) for path, text in found if text is not None]

    def _committed_paths(self) -> list[Path]:
        command = ["git", "-C", str(self.root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listing = subprocess.run(command, capture_output=True, text=True, check=False)
        if listing.returncode == 0:
            return sorted({Path(name) for name in listing.stdout.split("\0") if name})
        # Not a checkout (an unpacked archive, a test): everything outside hidden folders.
        paths = (path.relative_to(self.root) for path in self.root.rglob("*"))
        return sorted(path for path in paths if not any(part.startswith(".") for part in path.parts))

    def _text_of(self, path: Path) -> str | None:
        full_path = self.root / path
        if not full_path.is_file():  # A folder, or a file that git still lists after its removal.
            return None
        try:
            return full_path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            return None


def definitions(root: ast.AST, kind: type[Node]) -> Iterator[Node]:
    """Every node of this kind under the root."""
    return (node for node in ast.walk(root) if isinstance(node, kind))


def functions(module: Module) -> Iterator[FunctionNode]:
    """Every function of a module, methods and nested ones too."""
    return (node for node in ast.walk(module.syntax) if isinstance(node, FunctionNode))


def base_names(node: ast.ClassDef) -> set[str]:
    """The last names of the bases of a class: `Event` for `Event` and `event.Event`."""
    return {ast.unparse(base).rpartition(".")[2] for base in node.bases}


def snake_case(name: str) -> str:
    """`MessageAppended` as `message_appended`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def module_length(tree: Tree) -> Iterator[Finding]:
    """A module has a bounded number of lines."""
    for module in tree.modules:
        lines = len(module.text.splitlines())
        if lines > MODULE_LINES_MAX:
            advice = f"{lines} lines, at most {MODULE_LINES_MAX}: split it at a seam that has a name"
            yield module.at(1, "module-length", advice)


def function_length(tree: Tree) -> Iterator[Finding]:
    """A function has a bounded number of lines; those of its docstring are not counted."""
    for module in tree.modules:
        for node in functions(module):
            lines = line_count(node) - (line_count(node.body[0]) if ast.get_docstring(node) else 0)
            if lines > FUNCTION_LINES_MAX:
                advice = f"{node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}: name its parts as functions"
                yield module.at(node.lineno, "function-length", advice)


def line_count(node: ast.stmt) -> int:
    """The number of lines that a statement spans."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def ascii_source(tree: Tree) -> Iterator[Finding]:
    """Sources are ASCII, so that what looks alike is alike."""
    for module in tree.modules:
        for number, line in enumerate(module.text.splitlines(), start=1):
            if not line.isascii():
                culprit = next(character for character in line if not character.isascii())
                yield module.at(number, "ascii-source", f"write U+{ord(culprit):04X} as an escape or in ASCII words")


def nothing_left_over(tree: Tree) -> Iterator[Finding]:
    """No marker of unfinished work stays in the engine."""
    marker = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
    for module in tree.modules:
        for number, line in enumerate(module.text.splitlines(), start=1):
            if marker.search(line):
                yield module.at(number, "left-over", "finish it, or file an issue and say here what holds today")


def no_debugging(tree: Tree) -> Iterator[Finding]:
    """Nothing but the command line prints, and nothing stops in a debugger."""
    for module in tree.modules:
        for call in definitions(module.syntax, ast.Call):
            called = ast.unparse(call.func)
            if called == "breakpoint" or (called == "print" and ".cli" not in module.name):
                yield module.at(call.lineno, "debugging", f"remove {called}(); return a value, or print in cli")


def docstrings(tree: Tree) -> Iterator[Finding]:
    """Every module and every public class and function says in one sentence what it is."""
    for module in tree.modules:
        for node, name in documented(module.syntax, module.name):
            text = ast.get_docstring(node)
            line = node.lineno if isinstance(node, DefinitionNode) else 1
            if text is None:
                yield module.at(line, "docstring", f"{name} has none: say what it returns, changes or promises")
            elif not text.splitlines()[0].endswith("."):
                yield module.at(line, "docstring", f"{name}: make the first line a sentence that ends with a full stop")


def documented(node: ast.Module | DefinitionNode, name: str) -> Iterator[tuple[ast.Module | DefinitionNode, str]]:
    """The node and what is public inside it; functions inside functions, overloads and magic methods are not."""
    yield node, name
    if isinstance(node, ast.Module | ast.ClassDef):
        for child in node.body:
            if isinstance(child, DefinitionNode) and not child.name.startswith("_") and not is_overload(child):
                yield from documented(child, child.name)


def is_overload(node: DefinitionNode) -> bool:
    """Whether it is one of several signatures of a function that is documented once."""
    return any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list)


def limit_units(tree: Tree) -> Iterator[Finding]:
    """Every limit says its unit last."""
    for module, name, line in limit_names(tree):
        words = name.split("_")
        unit = words[-2] if words[-1] in BOUNDS and len(words) > 1 else words[-1]
        if unit not in UNITS:
            yield module.at(line, "limit-unit", f"{name}: end it with a unit, or a unit and MAX, MIN or DEFAULT")


def limit_uses(tree: Tree) -> Iterator[Finding]:
    """Every limit bounds something."""
    used = {name for module in tree.modules if not is_limits(module) for name in names_in(module)}
    for module, name, line in limit_names(tree):
        if name not in used:
            yield module.at(line, "limit-unused", f"{name} bounds nothing outside limits.py: use or remove it")


def is_limits(module: Module) -> bool:
    """Whether a module holds limits: those of refold, or those of one of its rooms."""
    return module.name.rpartition(".")[2] == "limits"


def limit_names(tree: Tree) -> Iterator[tuple[Module, str, int]]:
    """The names that limits.py assigns, with their lines."""
    for module in tree.modules:
        for node in module.syntax.body if is_limits(module) else []:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                yield module, ast.unparse(target), node.lineno


def names_in(module: Module) -> set[str]:
    """The names that a module reads or imports, plain or behind a dot."""
    names = {node.id for node in definitions(module.syntax, ast.Name)}
    names |= {node.attr for node in definitions(module.syntax, ast.Attribute)}
    return names | {alias.name for node in definitions(module.syntax, ast.ImportFrom) for alias in node.names}


def event_names(tree: Tree) -> Iterator[Finding]:
    """An event is named as something that has happened; the rule on docstrings asks for its description."""
    for module, node, _ in tree.events:
        last_word = snake_case(node.name).rpartition("_")[2].capitalize()
        if not last_word.endswith("ed") and last_word not in IRREGULAR_PAST:
            advice = f"{node.name}: end in the past tense; an irregular form belongs into IRREGULAR_PAST"
            yield module.at(node.lineno, "event-name", advice)


def event_tags(tree: Tree) -> Iterator[Finding]:
    """A tag is a number that one class owns for ever."""
    owners: dict[int, str] = {}
    for module, node, tag in tree.events:
        if not isinstance(tag, ast.Constant) or type(tag.value) is not int:
            yield module.at(node.lineno, "event-tag", f"{node.name}: write the tag as a plain integer")
        elif tag.value in owners:
            advice = f"{node.name}: tag {tag.value} belongs to {owners[tag.value]}; take the next free number"
            yield module.at(node.lineno, "event-tag", advice)
        else:
            owners[tag.value] = node.name


def event_format(tree: Tree) -> Iterator[Finding]:
    """FORMAT.md names every event beside its tag."""
    path = tree.root / "engine" / "FORMAT.md"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    words_by_line = [set(re.findall(r"\w+", line)) for line in text.splitlines()]
    for module, node, tag in tree.events:
        if not any({node.name, ast.unparse(tag)} <= words for words in words_by_line):
            advice = f"write {node.name} and its tag {ast.unparse(tag)} into one line of engine/FORMAT.md"
            yield module.at(node.lineno, "event-format", advice)


def event_golden(tree: Tree) -> Iterator[Finding]:
    """Every event has bytes on record that must decode for ever, plain and erased."""
    for module, node, _ in tree.events:
        path = Path("tests", "golden", f"{snake_case(node.name)}.json")
        full_path = tree.root / path
        records = json.loads(full_path.read_text(encoding="utf-8")) if full_path.is_file() else {}
        missing = [key for key in ("plain", "erased") if key not in records]
        if missing:
            advice = f"{node.name}: record its bytes as {' and '.join(missing)} in {path.as_posix()}"
            yield module.at(node.lineno, "event-golden", advice)


def no_orphans(tree: Tree) -> Iterator[Finding]:
    """Every module is imported by another one, or is a way in."""
    reached = set(ENTRY_POINTS | script_modules(tree))
    for module in tree.modules:
        reached |= {name for name in mentioned_modules(module) if name != module.name}
    for module in tree.modules:
        if module.name not in reached:
            yield module.at(1, "orphan", f"nothing imports {module.name}: import it where it is needed, or remove it")


def script_modules(tree: Tree) -> set[str]:
    """The modules that installed commands start in."""
    path = tree.root / "pyproject.toml"
    settings = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    targets = settings.get("project", {}).get("scripts", {}).values()
    return set(with_parents(target.partition(":")[0] for target in targets))


def mentioned_modules(module: Module) -> Iterator[str]:
    """The modules that it imports, their parents, and what it may import by a name in a string."""
    is_package = module.path.name == "__init__.py"
    package = module.name if is_package else module.name.rpartition(".")[0]
    for node in ast.walk(module.syntax):
        if isinstance(node, ast.Import):
            yield from with_parents(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*parents, *([node.module] if node.module else [])])
            yield from with_parents(f"{origin}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = f"{package}{node.value}" if node.value.startswith(".") else node.value
            if name.startswith("refold."):
                yield from with_parents([name])


def with_parents(names: Iterator[str] | list[str]) -> Iterator[str]:
    """Each dotted name, and every package on the way to it: importing a module imports those too."""
    for name in names:
        parts = name.split(".")
        yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def banned_texts(tree: Tree) -> Iterator[Finding]:
    """No committed file depends on one machine or names the place that packages came from."""
    for path, text in tree.texts:
        for number, line in enumerate(text.splitlines(), start=1):
            for banned, instead in BANNED_TEXTS.items():
                if banned in line:
                    yield Finding(path, number, "banned-text", f"replace {banned!r} by {instead}")


Rule: TypeAlias = Callable[[Tree], Iterator[Finding]]
RULES: tuple[Rule, ...] = (
    module_length,
    function_length,
    ascii_source,
    nothing_left_over,
    no_debugging,
    docstrings,
    limit_units,
    limit_uses,
    event_names,
    event_tags,
    event_format,
    event_golden,
    no_orphans,
    banned_texts,
)


def findings(root: Path) -> list[Finding]:
    """Everything that breaks a rule in the repository at this root."""
    tree = Tree(root)
    return [finding for rule in RULES for finding in rule(tree)]


def main() -> int:
    """Prints what it found in this repository; 1 if there was anything."""
    found = findings(Path(__file__).resolve().parent.parent)
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
