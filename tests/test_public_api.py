"""The public face: every name, every signature, as text; a change to one of them has to be made here too."""

import importlib
import inspect
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import refold

STORED = Path(__file__).with_name("public_api.txt")


def described() -> str:
    return "\n".join(line for name in sorted(refold.__all__) for line in lines_of(name)) + "\n"


def lines_of(name: str) -> list[str]:
    value = getattr(refold, name)
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
        if name.startswith("_") or is_inherited(kind, name):
            continue
        member = inspect.getattr_static(kind, name)
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


@pytest.mark.parametrize("name", sorted(refold._HOME_OF))
def test_every_lazy_name_is_found_in_its_home(name: str) -> None:
    home = importlib.import_module(refold._HOME_OF[name])
    assert getattr(refold, name) is getattr(home, name)


def test_what_is_offered_is_what_is_listed() -> None:
    assert set(refold.__all__) == {*refold._HOME_OF, "__version__"}
    assert len(refold.__all__) == len(set(refold.__all__))
    assert sum(map(len, refold._HOMES.values())) == len(refold._HOME_OF)
    assert dir(refold) == sorted(refold.__all__)


def test_what_type_checkers_see_is_what_is_listed() -> None:
    source = Path(str(refold.__file__)).read_text(encoding="utf-8")
    seen = {line.split(" as ")[1] for line in source.splitlines() if line.startswith("    from refold.")}
    assert seen == set(refold._HOME_OF)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'refold' has no attribute 'Absent'"):
        refold.__getattr__("Absent")


def test_a_star_import_brings_every_name() -> None:
    namespace: dict[str, object] = {}
    exec("from refold import *", namespace)  # noqa: S102 - there is no other way to ask for a star import
    assert set(refold.__all__) <= set(namespace)


def test_importing_the_package_loads_nothing_else() -> None:
    program = "import sys, refold; print(sorted(name for name in sys.modules if name.split('.')[0] in "
    program += "{'refold', 'lmdb', 'msgspec', 'numpy', 'hnswlib', 'click', 'rich'}))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['refold']"


def test_a_memory_in_ram_needs_no_lmdb() -> None:
    program = "import sys; from refold import Memory; Memory().conversation('c').append('user', 'x'); "
    program += "print('lmdb' in sys.modules, 'numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False False"


@pytest.mark.parametrize(
    "name", sorted(set(refold.__all__) - {"ANY", "EXISTS", "NO_STREAM", "PROVIDERS", "RANKINGS", "__version__"})
)
def test_everything_public_says_what_it_is(name: str) -> None:
    value = getattr(refold, name)
    assert (value.__doc__ or "").strip().split("\n")[0].endswith("."), name
    for member_name, member in inspect.getmembers(value):
        if not member_name.startswith("_") and inspect.isfunction(member) and member.__module__.startswith("refold"):
            assert (member.__doc__ or "").strip(), f"{name}.{member_name}"
