"""The pages of the reference, made of the docstrings and signatures of the public names.

`python tools/reference.py` writes them; with `--check` it says which are not as they would be written.
"""

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from refold.memory.memory import Shortcut
from refold.memory.options import Options

DOCS: Final = Path(__file__).resolve().parent.parent / "engine" / "docs"
_LINE_CHARS_MAX: Final = 96
_DIGITS_MAX: Final = 4
# Where names are imported from; what lives elsewhere is only given to users.
_HOMES: Final = "refold refold.agent refold.embedders refold.event refold.index.ranking refold.memory refold.mirror "
# Types that have a short name in the source.
_TYPES: Final = {
    "dates": "datetime",
    "Attributes": "Mapping[str, str | bool | int | float]",
    "CompleteJson": "JsonProvider | Callable[[list[dict[str, Any]], dict[str, Any]], Any]",
    "Entries": "list[Entry]",
    "Events": "list[Recorded]",
    "Hook": "Callable[..., Any]",
    "ManyHits": "list[Hits]",
    "MemoryCommand": "RememberCommand | ForgetCommand | RecallCommand | WithholdCommand",
    "NamedSkill": "tuple[str, str, float]",
    "Numbers": "Sequence[float] | NDArray[Any] | None",
    "Progress": "Callable[[int, int], None] | None",
    "SkillInjector": "Callable[[HookContext, str], str | None]",
    "SkillSource": "Skills",
    "Subscriber": "Callable[[Recorded], Any]",
    "Vectors": "NDArray[float32]",
    "Write": "Callable[[Sequence[Any]], object]",
}
_HOMES_OF_USERS: Final = frozenset((_HOMES + "refold.opentelemetry refold.results refold.skills refold.text").split())

_HEAD: Final = """\
Handles, results and errors. Contexts, tools, agents and skills are on [the next page](reference-agent.md).

`**options` of a verb are the three that every verb that writes takes:

- `expected`: the version that the stream has to have, else `WrongVersion`; or `ANY` (the default), `EXISTS` or
  `NO_STREAM`.
- `request_id`: a text of yours. The same call under the same id is done once, and returns its first result again;
  another call under it is `InvalidInput`.
- `sources`: the seqs, or the results, that it was derived from. Erasing one of them erases what was derived.

A call that fails changes nothing. Where an argument is a time, it takes nanoseconds since 1970 in UTC or an aware
`datetime`. The bounds that are named in capitals are in `refold.limits`.
"""


class Page(NamedTuple):
    """A page: its title, what it says first, and by section the names on it, each behind the module that has it."""

    title: str
    head: str
    sections: Mapping[str, str]


PAGES: Final = {
    "reference.md": Page(
        "Reference: the memory",
        _HEAD,
        {
            "A memory": "refold Memory move recover ANY EXISTS NO_STREAM",
            "Conversations": (
                "refold Conversation refold.memory Scratchpad refold.memory.handles ScopedState refold.memory "
                "SessionMemory refold Message Snapshot Step refold.results SessionSummary"
            ),
            "Projects": (
                "refold Project Entry Episode Hits Hit Upserted Outcome refold.results ProjectStats "
                "refold.index.ranking Ranking refold RANKINGS"
            ),
            "Scenarios and watches": (
                "refold.memory Scenario ScenarioDiff WindowDifference RecallDifference Regret Watch Departure"
            ),
            "Profile, journal, files, tables, board and settings": (
                "refold Profile Journal Note refold.memory Files FileEntry Table TableItem refold Board "
                "refold.memory Settings"
            ),
            "Events and the store": (
                "refold Recorded refold.event Event Stamp refold.memory Subscription refold Change Receipt Report "
                "refold.memory Why Reason Revision Influence Exposure "
                "refold.results Finding Stats Health Backup Moved Recovered Loaded Reembedded "
                "refold.opentelemetry instrument"
            ),
            "Embedders and token counters": (
                "refold.embedders Embedder HashedEmbedder MiniLmEmbedder WordLlamaEmbedder OpenAIEmbedder "
                "refold.text TokenCounter ByteClassCounter"
            ),
            "Mirrors": "refold.mirror Mirror MirrorReport MirrorEdit MirrorConflict MirrorProblem",
            "Errors": (
                "refold RefoldError InvalidInput NotFound LimitExceeded WrongVersion ReadOnly Closed "
                "EmbeddingMismatch EmbedderFailed StoreError StoreBusy StoreFull StoreCorrupt StoreVersion "
                "StoreUnreachable"
            ),
        },
    ),
    "reference-agent.md": Page(
        "Reference: agents and skills",
        "What a model is shown and may call, and what happens around it. Handles on the memory itself, and the\n"
        "`**options` of verbs that write, are on [the first page](reference.md).\n",
        {
            "Contexts": "refold Context refold.agent ContextPart ContextBudget Rebuilt",
            "Tools": (
                "refold.agent ToolRegistry ToolContext ToolResult Tool FunctionTool ToolDefinition files_tool "
                "ToolFailed ToolRefused"
            ),
            "The loop": "refold.agent AgentLoop Turn Model Reply Call Usage rerun",
            "What happens around a turn": (
                "refold.agent default_hooks Hooks HookContext UserMessageResult BeforeLlmResult AfterLlmResult "
                "BeforeToolResult AfterToolResult Blocked"
            ),
            "Extraction and providers": (
                "refold.agent extract extract_idle Extracted JsonProvider HttpProvider CallableProvider JsonResult "
                "Quirks PROVIDERS NoJson ProviderFailed detect_memory_command RememberCommand ForgetCommand "
                "RecallCommand WithholdCommand"
            ),
            "Skills in use": (
                "refold.skills skills_of Skills SkillRoots SkillLibrary library_of skill_tool SelectionPolicy "
                "SkillMatch SkillVerdict Selector inject_skills inject_message inject_into_messages RestrictedRegistry "
                "Generation refold.views.skills LearnedSkill SkillUsage Selection refold.skills.selection "
                "DetectedSkill refold.skills.skills Overview"
            ),
            "Skill files": (
                "refold.skills Skill SkillSummary Detection Diagnostic parse_skill validate_skill render_skill "
                "SkillLoader SkillIndex RefreshStats"
            ),
        },
    ),
}


def names_of(section: str) -> Iterator[str]:
    """Yield the dotted names of a section: each word behind the module that has it."""
    home = ""
    for word in section.split():
        if word.startswith("refold"):
            home = word
        else:
            yield f"{home}.{word}"


def page(name: str) -> str:
    """Render a page."""
    title, head, sections = PAGES[name]
    parts = [f"# {title}\n", "<!-- Made by tools/reference.py of the docstrings; change those. -->\n", head]
    parts.append("\n".join(_contents(section, names_of(names)) for section, names in sections.items()) + "\n")
    for section, names in sections.items():
        parts += [f"## {section}\n", *(part for each in names_of(names) for part in _entry(each))]
    return "\n".join(parts)


def _contents(section: str, names: Iterable[str]) -> str:
    links = ", ".join(f"[`{_short(name)}`](#{_short(name).lower()})" for name in names)
    anchor = re.sub(r"[^\w -]", "", section.lower()).replace(" ", "-")
    return f"- [{section}](#{anchor}): {links}"


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def value_of(name: str) -> Any:
    """Import the value of a dotted name."""
    home, _, short = name.rpartition(".")
    return getattr(importlib.import_module(home), short)


def _entry(name: str) -> Iterator[str]:
    home, _, short = name.rpartition(".")
    value = value_of(name)
    lines = [f"from {home} import {short}", ""] if home in _HOMES_OF_USERS else []
    yield f"### {short}\n"
    if inspect.isclass(value):
        yield from _class(short, value, lines)
    elif inspect.isfunction(value):
        yield _code(*lines, _signature(short, value))
        yield markdown(value)
    else:
        yield _code(*lines[:1])
        yield _paragraphs(_said_of_constant(name))


def _class(short: str, kind: type, lines: list[str]) -> Iterator[str]:
    fields = list(_fields(kind))
    if fields or issubclass(kind, Exception):
        bases = ", ".join(base.__name__ for base in kind.__bases__)
        lines += [*([""] if lines and fields else []), f"class {short}({bases}){':' if fields else ''}", *fields]
    elif _is_made_by_users(kind):
        lines.append(_signature(short, kind.__init__))
    if lines:
        yield _code("\n".join(lines).rstrip())
    yield markdown(kind)
    members = list(members_of(kind))
    properties = [(name, member) for name, member in members if isinstance(member, property)]
    if properties:
        yield "\n".join(_property(name, member) for name, member in properties) + "\n"
    for name, member in members:
        if not isinstance(member, property):
            signature = _signature(f"{short}.{name}", member)
            is_short = "\n" not in signature
            yield f"#### `{signature}`\n" if is_short else f"#### `{short}.{name}`\n\n{_code(signature)}"
            yield markdown(member)


def _is_made_by_users(kind: type) -> bool:
    """Tell a class that users make values of from handles, which others give them, and from protocols."""
    made = inspect.getattr_static(kind, "__init__")
    is_plain = inspect.isfunction(made) and not getattr(kind, "_is_protocol", False)
    return is_plain and inspect.signature(made).parameters.keys().isdisjoint({"core", "hub"})


def members_of(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public verbs and properties of a class, in the order of its source, inherited ones first."""
    bases = [base for base in reversed(kind.__mro__) if base.__module__.startswith("refold")]
    for name in dict.fromkeys(name for base in bases for name in vars(base) if not name.startswith("_")):
        static, member = inspect.getattr_static(kind, name), getattr(kind, name, None)
        is_own = not isinstance(static, Shortcut) and (isinstance(member, property) or inspect.isroutine(member))
        if is_own and (member.fget if isinstance(member, property) else member).__module__.startswith("refold"):
            yield name, member


def _property(name: str, member: property) -> str:
    returns = _function_node(member.fget).returns
    shown = "" if returns is None or _type(returns) == "Any" else f": {_type(returns)}"
    return f"- `{name}{shown}`. {_inline(inspect.getdoc(member) or '')}"


def _fields(kind: type) -> Iterator[str]:
    """Yield the lines of the source that declare the fields of a result, with what they say behind them."""
    if not hasattr(kind, "__struct_fields__") and not hasattr(kind, "_fields"):
        return
    defaults = {field.name: field.default for field in msgspec.structs.fields(kind)} if issubclass(kind, Struct) else {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("refold"):
            continue
        source = textwrap.dedent(inspect.getsource(base))
        lines, (node,) = source.splitlines(), ast.parse(source).body
        assert isinstance(node, ast.ClassDef), node
        for each, after in pairwise([*node.body, ast.Pass()]):
            if not isinstance(each, ast.AnnAssign) or "ClassVar" in ast.unparse(each.annotation):
                continue
            for line in lines[each.lineno - 1 : each.end_lineno]:
                is_named = isinstance(each.value, ast.Name | ast.Tuple)
                yield f"{line.partition(' = ')[0]} = {_shown(defaults[ast.unparse(each.target)])}" if is_named else line
            if isinstance(after, ast.Expr):
                yield from lines[after.lineno - 1 : after.end_lineno]


def _signature(name: str, function: Any) -> str:
    """Render a signature, with the types as the source has them; the options of all that write are one."""
    node = _function_node(function)
    types = {each.arg: each.annotation for each in ast.walk(node.args) if isinstance(each, ast.arg)}
    shown: list[str] = []
    for each in inspect.signature(function).parameters.values():
        if each.name == "self" or (each.name in Options._fields and each.name not in types):
            continue
        if each.kind is each.KEYWORD_ONLY and not any(other.startswith("*") for other in shown):
            shown.append("*")
        stars = "*" * (each.kind is each.VAR_POSITIONAL) + "**" * (each.kind is each.VAR_KEYWORD)
        type_ = types[each.name]
        text = f"{stars}{each.name}" if type_ is None else f"{stars}{each.name}: {_type(type_)}"
        shown.append(text if each.default is each.empty else f"{text} = {_shown(each.default)}")
    if "MutationOptions" in ast.unparse(node.args):
        shown.append("**options")
    returns = "" if node.returns is None or node.name == "__init__" else f" -> {_type(node.returns)}"
    returns = returns.removesuffix(" -> Any")
    line = f"{name}({', '.join(shown)}){returns}"
    if len(line) <= _LINE_CHARS_MAX:
        return line
    return "\n".join([f"{name}(", *(f"    {each}," for each in shown), f"){returns}"])


def _function_node(function: Any) -> ast.FunctionDef | ast.AsyncFunctionDef:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef), node
    return node


def _shown(value: object) -> str:
    text = getattr(value, "__name__", repr(value)).replace("'", '"')
    return f"{value:_}" if text.isdecimal() and len(text) > _DIGITS_MAX else text


def _type(annotation: ast.expr) -> str:
    """Render an annotation: without the quotes of what is imported later, and short names of types written out."""
    text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    text = re.sub(r"^Unpack\[(.*)\]$", r"\1", str(text))
    text = re.sub(r"\b\w+\b", lambda match: _TYPES.get(match[0], match[0]), text).replace("'", '"')
    return text if "Literal" in text else text.replace('"', "")


def _said_of_constant(name: str) -> str:
    """Return the text below the assignment of a constant."""
    home, _, short = name.rpartition(".")
    module = importlib.import_module(home)
    module = importlib.import_module(getattr(module, "_HOME_OF", {}).get(short, home))
    body = ast.parse(inspect.getsource(module)).body
    for node, after in pairwise(body):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == short and isinstance(after, ast.Expr):
            return inspect.cleandoc(ast.literal_eval(after.value))
    raise ValueError(f"{name} says nothing of itself; write a docstring below its assignment")


def markdown(value: Any) -> str:
    """Render a docstring: its paragraphs, and its examples as code."""
    return _paragraphs(inspect.getdoc(value) or "")


def _paragraphs(text: str) -> str:
    parts: list[str] = []
    for paragraph in re.split(r"\n\n+", text.strip()):
        is_example = paragraph.startswith(">>> ")
        parts.append(f"```pycon\n{paragraph}\n```\n" if is_example else _inline(paragraph, "\n") + "\n")
    return "\n".join(parts)


def _inline(text: str, newline: str = " ") -> str:
    return text.replace("``", "`").replace("\n", newline)


def _code(*lines: str) -> str:
    return "\n".join(["```python", *lines, "```\n"])


def main(arguments: list[str]) -> int:
    """Write the pages, or with `--check` say which are not as they would be written; return the exit code."""
    stale = [
        name for name in PAGES if not (DOCS / name).exists() or (DOCS / name).read_text(encoding="utf-8") != page(name)
    ]
    for name in stale:
        if arguments == ["--check"]:
            print(f"{name} is not what the docstrings say; run `python tools/reference.py`", file=sys.stderr)
        else:
            (DOCS / name).write_text(page(name), encoding="utf-8")
            print(f"wrote {name}")
    return 1 if stale and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
