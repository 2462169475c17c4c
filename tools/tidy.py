"""The rules of this repository that no linter has: `python tools/tidy.py` names each place and what to do instead.

A rule takes the tree and yields findings; RULES lists them. What ruff, vulture or a test of the running code sees
has no rule here. tests/test_tidy.py runs the rules over this tree, and shows for each a violation that it catches.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeAlias

MODULE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70

# Users import these by themselves; the modules of [project.scripts] come on top.
ADAPTERS = "refold.adapters."  # Each is imported by those who use its framework.
ENTRY_POINTS = frozenset({"refold", "refold.__main__", "refold.index.vectors"})

# The last word of a limit's name is its unit, or a bound behind the unit: MESSAGE_TOKENS_MAX, PAGE_EVENTS.
UNITS = frozenset(
    {"BYTES", "CHARS", "COUNT", "DATABASES", "DAYS", "DEPTH", "DIMENSIONS", "ENTRIES", "EVENTS", "FILES", "LINES"}
    | {"MESSAGES", "MS", "NS", "RATIO", "READERS", "ROWS", "SCORE", "SECONDS", "STATES", "TOKENS", "VECTORS", "WEIGHT"}
)
BOUNDS = frozenset({"DEFAULT", "MAX", "MIN"})

# The last word of an event's name ends in "ed", or is one of these.
IRREGULAR_PAST = frozenset({"Begun", "Built", "Given", "Made", "Put", "Read", "Said", "Sent", "Set", "Shown", "Taken"})

# Words that end like a gerund and are nouns.
NOUNS = frozenset({"embedding", "heading", "mapping", "ranking", "setting", "string"})

# A function is named by a verb or a noun: these single words are no participles, or are names that users see.
VERBS = frozenset({"bound", "embed", "exceed", "need", "proceed", "reembed", "reseed", "seed", "shed"})
SEEN_NAMES = frozenset({"compacted", "unfinished"})  # A hook, and a check of `refold doctor`.
IRREGULAR_PARTICIPLES = frozenset(
    {"brought", "done", "drawn", "found", "given", "gone", "heard", "held", "kept", "known", "left", "lost", "made"}
    | {"meant", "said", "seen", "sent", "shown", "sought", "taken", "then", "told", "written"}
)

# Built from parts, so that this file does not hold what it bans.
BANNED_TEXTS = {
    "/" + "work/": "a path relative to the repository",
    "/" + "tmp/bash": "a path relative to the repository",
    "pypi" + ".org": "the package's name alone",
    "python" + "hosted.org": "the package's name alone",
    "registry." + "npmjs": "the package's name alone",
    "deb." + "debian": "the package's name alone",
}


class Finding(NamedTuple):
    """One place that breaks a rule, and the way out."""

    path: Path
    line: int
    rule: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.advice}"


class Module(NamedTuple):
    """One source file under engine/, parsed."""

    path: Path
    name: str
    text: str
    syntax: ast.Module


class Tree:
    """The repository as the rules see it, each file read once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def modules(self) -> list[Module]:
        """Every Python file under engine/, in the order of their paths."""
        modules = []
        for path in sorted((self.root / "engine").rglob("*.py")):
            parts = path.relative_to(self.root / "engine").with_suffix("").parts
            text = path.read_text(encoding="utf-8")
            name = ".".join(parts).removesuffix(".__init__")
            modules.append(Module(path.relative_to(self.root), name, text, ast.parse(text, str(path))))
        return modules

    @cached_property
    def texts(self) -> list[tuple[Path, str]]:
        """Every text file that is committed or about to be; of a tree outside of git, every file not hidden."""
        command = ["git", "-C", str(self.root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listing = subprocess.run(command, capture_output=True, text=True, check=False)
        names = {Path(name) for name in listing.stdout.split("\0") if name} or {
            path.relative_to(self.root) for path in self.root.rglob("[!.]*")
        }
        texts = []
        for path in sorted(path for path in names if (self.root / path).is_file()):
            try:
                texts.append((path, (self.root / path).read_text(encoding="utf-8")))
            except UnicodeDecodeError:
                continue
        return texts


def sizes(tree: Tree) -> Iterator[Finding]:
    """A module and a function have bounded numbers of lines; those of a function's docstring are not counted."""
    for module in tree.modules:
        lines = module.text.count("\n")
        if lines > MODULE_LINES_MAX:
            advice = f"{lines} lines, at most {MODULE_LINES_MAX}: split it at a seam that has a name"
            yield Finding(module.path, 1, "module-length", advice)
        for node in ast.walk(module.syntax):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = _lines(node) - (_lines(node.body[0]) if ast.get_docstring(node) else 0)
                if lines > FUNCTION_LINES_MAX:
                    advice = f"{node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}: name its parts as functions"
                    yield Finding(module.path, node.lineno, "function-length", advice)


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def file_names(tree: Tree) -> Iterator[Finding]:
    """A file is named by a noun of the field, not by a gerund."""
    for module in tree.modules:
        last_word = module.path.stem.rpartition("_")[2]
        if last_word.endswith("ing") and last_word not in NOUNS:
            advice = "name it after what it holds; a noun that ends like a gerund belongs into NOUNS"
            yield Finding(module.path, 1, "file-name", advice)


def limit_units(tree: Tree) -> Iterator[Finding]:
    """Every limit says its unit last."""
    for module in tree.modules:
        for node in module.syntax.body if module.path.stem == "limits" else []:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                name = ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])
                words = name.split("_")
                if (words[-2] if words[-1] in BOUNDS and len(words) > 1 else words[-1]) not in UNITS:
                    advice = f"{name}: end it with a unit, or a unit and MAX, MIN or DEFAULT"
                    yield Finding(module.path, node.lineno, "limit-unit", advice)


def events(tree: Tree) -> Iterator[Finding]:
    """An event is named as something that has happened, and its tag is a number that one class owns for ever."""
    owners: dict[str, str] = {}
    for module in tree.modules:
        for node in ast.walk(module.syntax):
            tags = [word.value for word in node.keywords if word.arg == "tag"] if isinstance(node, ast.ClassDef) else []
            if (
                not isinstance(node, ast.ClassDef)
                or not tags
                or not re.search(r"Event|ed$", ast.unparse(node.bases[0]))
            ):
                continue
            if not re.search("ed$|(?:" + "|".join(IRREGULAR_PAST) + ")$", node.name):
                advice = f"{node.name}: end in the past tense; an irregular form belongs into IRREGULAR_PAST"
                yield Finding(module.path, node.lineno, "event-name", advice)
            tag = ast.unparse(tags[0])
            if not tag.isdecimal() or owners.setdefault(tag, node.name) != node.name:
                advice = f"{node.name}: tag {tag} is not a free number ({owners.get(tag)}); take the next that is free"
                yield Finding(module.path, node.lineno, "event-tag", advice)


def class_names(tree: Tree) -> Iterator[Finding]:
    """A class has a name of its own in the whole package; an underscore does not make it another one."""
    homes: dict[str, Module] = {}
    for module in tree.modules:
        for node in ast.walk(module.syntax):
            if isinstance(node, ast.ClassDef) and homes.setdefault(node.name.lstrip("_"), module) is not module:
                advice = f"{node.name} is a class of {homes[node.name.lstrip('_')].name}, too: say what is special here"
                yield Finding(module.path, node.lineno, "class-name", advice)


def function_names(tree: Tree) -> Iterator[Finding]:
    """A function is named by what it does or returns, not by a participle alone: `find_row`, not `found`."""
    nodes = [(module, node) for module in tree.modules for node in ast.walk(module.syntax)]
    handlers = {node.name.lower() for _, node in nodes if isinstance(node, ast.ClassDef)}  # Each folds one event.
    for module, node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.decorator_list:
            continue
        name = node.name.lstrip("_")
        is_participle = (name.endswith("ed") and name.isalpha()) or name in IRREGULAR_PARTICIPLES
        if is_participle and name not in VERBS | SEEN_NAMES | handlers:
            advice = f"{node.name}: name it by a verb with its object, or by the noun of what it returns"
            yield Finding(module.path, node.lineno, "function-name", advice)


def orphans(tree: Tree) -> Iterator[Finding]:
    """Every module is imported by another one, or is a way in."""
    settings = tomllib.loads((tree.root / "pyproject.toml").read_text(encoding="utf-8"))
    scripts = settings.get("project", {}).get("scripts", {}).values()
    reached = ENTRY_POINTS | {target.partition(":")[0] for target in scripts}
    reached |= {name for module in tree.modules for name in _imports(module) if name != module.name}
    for module in tree.modules:
        is_way_in = module.name in reached or module.name.startswith(ADAPTERS)
        if module.path.name != "__init__.py" and not is_way_in:
            advice = f"nothing imports {module.name}: import it where it is needed, or remove it"
            yield Finding(module.path, 1, "orphan", advice)


def _imports(module: Module) -> Iterator[str]:
    """Yield the modules, and the names in them, that a module imports; also what a table of lazy imports names."""
    package = module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]
    for node in ast.walk(module.syntax):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*parents, *([node.module] if node.module else [])])
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield f"{package}{node.value}" if node.value.startswith(".") else node.value


def banned_texts(tree: Tree) -> Iterator[Finding]:
    """No committed file depends on one machine or names the place that packages came from."""
    for path, text in tree.texts:
        for number, line in enumerate(text.splitlines(), start=1):
            for banned, instead in BANNED_TEXTS.items():
                if banned in line:
                    yield Finding(path, number, "banned-text", f"replace {banned!r} by {instead}")


Rule: TypeAlias = Callable[[Tree], Iterator[Finding]]
RULES: tuple[Rule, ...] = (
    sizes,
    file_names,
    limit_units,
    events,
    class_names,
    function_names,
    orphans,
    banned_texts,
)


def findings(root: Path) -> list[Finding]:
    """Return everything that breaks a rule in the repository at this root."""
    tree = Tree(root)
    return [finding for rule in RULES for finding in rule(tree)]


def main() -> int:
    """Print what breaks a rule in this repository; return 1 if there is anything."""
    found = findings(Path(__file__).resolve().parent.parent)
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
