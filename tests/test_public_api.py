"""The public face: every name, every signature, as text; a change to one of them has to be made here too."""

import importlib
import inspect
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import refold
from refold import memory
from refold.memory.conversation import FormerMethod

STORED = Path(__file__).with_name("public_api.txt")


PUBLIC = {
    *("Memory", "Conversation", "Project", "Profile", "Journal", "Board", "Snapshot"),
    *("Message", "Entry", "Episode", "Note", "Hit", "Hits", "Recorded", "Step", "Upserted", "Outcome", "Receipt"),
    *("Report", "Change", "Context"),
    *("RefoldError", "InvalidInput", "NotFound", "LimitExceeded", "WrongVersion", "Closed", "ReadOnly"),
    *("StoreError", "StoreFull", "StoreCorrupt", "StoreVersion", "StoreBusy", "StoreUnreachable"),
    *("EmbeddingMismatch", "EmbedderFailed"),
    *("ANY", "NO_STREAM", "EXISTS", "RANKINGS"),
    *("move", "recover"),
}
"""The public face: what ``import refold`` offers beside its version."""

HOMES = (
    *("agent", "embedders", "event", "index.ranking", "mcp", "memory", "mirror", "opentelemetry", "results", "skills"),
    "text",
)
"""Where everything else is that a user may name."""

MOVED = refold._by_name(refold._ELSEWHERE)


def described() -> str:
    """Return the public face, and what the homes offer of what once was part of it."""
    moved = [line for name, home in sorted(MOVED.items()) for line in lines_of(name, importlib.import_module(home))]
    return "\n".join([*(line for name in sorted(refold.__all__) for line in lines_of(name, refold)), *moved]) + "\n"


def lines_of(name: str, home: ModuleType) -> list[str]:
    value = getattr(home, name)
    if home is not refold:
        name = f"{home.__name__.removeprefix('refold.')}.{name}"
    if inspect.isfunction(value):
        return [f"{name}({parameters_of(value)})"]
    if isinstance(value, Mapping):
        return [f"{name}[{key!r}]" for key in value]
    if not inspect.isclass(value):
        return [f"{name} = {value!r}"] if name != "__version__" else [name]
    bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
    return [f"class {name}({bases})", *(f"    {line}" for line in members_of(value))]


def members_of(kind: type) -> list[str]:
    lines = [f"__init__({parameters_of(kind)})"] if has_signature(kind) else []
    for name in sorted(dir(kind)):
        member = inspect.getattr_static(kind, name)
        if name.startswith("_") or is_inherited(kind, name) or isinstance(member, FormerMethod):
            continue
        if isinstance(member, property):
            lines.append(f"{name} (property)")
        elif callable(getattr(kind, name)) and not isinstance(getattr(kind, name), type):
            lines.append(f"{name}({parameters_of(getattr(kind, name))})")
        else:
            lines.append(name)
    return lines


def parameters_of(call: Callable[..., object]) -> str:
    """Return the parameters with their defaults; annotations look different under every version of Python."""
    shown: list[str] = []
    for parameter in inspect.signature(call).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        default = getattr(parameter.default, "__name__", repr(parameter.default))
        shown.append(parameter.name if parameter.default is inspect.Parameter.empty else f"{parameter.name}={default}")
    return ", ".join(shown)


def is_inherited(kind: type, name: str) -> bool:
    return any(name in vars(base) for base in (BaseException, tuple) if issubclass(kind, base))


def has_signature(kind: type) -> bool:
    return not issubclass(kind, BaseException) and kind.__name__ not in {"Embedder", "Event", "TokenCounter"}


def test_names_and_signatures_are_those_that_are_written_down() -> None:
    assert described() == STORED.read_text(encoding="utf-8"), (
        f"the public face has changed; if that is meant, write it down in {STORED.name}"
    )


def test_the_public_face_has_exactly_these_names() -> None:
    assert set(refold.__all__) == {*PUBLIC, "__version__"}
    assert len(refold.__all__) == len(PUBLIC) + 1 == 43
    assert dir(refold) == sorted(refold.__all__)


@pytest.mark.parametrize("package", [refold, memory], ids=lambda package: package.__name__)
def test_every_lazy_name_is_found_in_its_home(package: Any) -> None:
    for name, home in package._HOME_OF.items():
        assert getattr(package, name) is getattr(importlib.import_module(home), name)


@pytest.mark.parametrize("package", [refold, memory], ids=lambda package: package.__name__)
def test_what_type_checkers_see_is_what_is_listed(package: Any) -> None:
    source = Path(package.__file__).read_text(encoding="utf-8")
    seen = {line.split(" as ")[1] for line in source.splitlines() if line.startswith("    from refold.")}
    assert seen == set(package._HOME_OF)
    assert set(package.__all__) - {"__version__"} == set(package._HOME_OF)


@pytest.mark.parametrize(("name", "home"), sorted(MOVED.items()))
def test_a_name_that_lives_elsewhere_is_an_error_that_says_where(name: str, home: str) -> None:
    assert home.removeprefix("refold.") in HOMES
    assert name in dir(importlib.import_module(home))
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; import it from {home}$"):
        getattr(refold, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    for package in (refold, memory):
        with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Absent'$"):
            package.__getattr__("Absent")


def test_a_star_import_brings_every_name() -> None:
    namespace: dict[str, object] = {}
    exec("from refold import *", namespace)  # noqa: S102 - there is no other way to ask for a star import
    assert set(refold.__all__) <= set(namespace)


def test_importing_the_package_loads_nothing_else() -> None:
    program = "import sys, refold, {}; print(sorted(name for name in sys.modules if name.split('.')[0] in "
    program += "{{'refold', 'lmdb', 'msgspec', 'numpy', 'hnswlib', 'click', 'rich'}}))"
    for name in ("refold", "refold.memory"):
        command = [sys.executable, "-c", program.format(name)]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
        assert found.stdout.strip() == str(sorted({"refold", name}))


def test_a_memory_in_ram_needs_no_lmdb() -> None:
    program = "import sys; from refold import Memory; Memory().conversation('c').append('user', 'x'); "
    program += "print('lmdb' in sys.modules, 'numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False False"


@pytest.mark.parametrize(
    ("name", "home"),
    sorted({**dict.fromkeys(PUBLIC - {"ANY", "EXISTS", "NO_STREAM", "RANKINGS"}, "refold"), **MOVED}.items()),
)
def test_everything_public_says_what_it_is(name: str, home: str) -> None:
    value = getattr(importlib.import_module(home), name)
    if name == "PROVIDERS":
        return
    assert (value.__doc__ or "").strip().split("\n")[0].endswith("."), name
    for member_name, member in inspect.getmembers(value):
        if not member_name.startswith("_") and inspect.isfunction(member) and member.__module__.startswith("refold"):
            assert (member.__doc__ or "").strip(), f"{name}.{member_name}"
