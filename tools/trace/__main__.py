"""Print which functions of refold one call passes, in which files and how deep, on a store of one conversation.

python tools/trace                 the path of chat.append, as a tree
python tools/trace set search      those of other calls
python tools/trace --counts        their counts alone

A generator expression or a comprehension is part of the function that it stands in.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import refold
from refold import Memory

PACKAGE: Final = str(Path(refold.__file__).parent) + os.sep


class Call(NamedTuple):
    """A function of refold that was called, and how many others it was called through."""

    depth: int
    file: str
    function: str


class Trace:
    """The calls of functions of refold, in order."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._frames: list[FrameType] = []

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call or a return."""
        if event == "return" and self._frames and self._frames[-1] is frame:
            self._frames.pop()
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.endswith("expr>"):
            if code.co_name in {"<listcomp>", "<setcomp>", "<dictcomp>"}:
                return
            self._frames.append(frame)
            self.calls.append(Call(len(self._frames), code.co_filename.removeprefix(PACKAGE), code.co_qualname))

    def counts(self) -> tuple[int, int, int]:
        """Return how many functions there are, in how many files, and the depth of the deepest."""
        functions = {(call.file, call.function) for call in self.calls}
        return len(functions), len({file for file, _ in functions}), max(call.depth for call in self.calls)


def traced(call: Callable[[], Any]) -> Trace:
    """Return the calls that a call comes to; it was made before, so that everything is loaded and open."""
    trace = Trace()
    sys.setprofile(trace.profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return trace


def calls(memory: Memory) -> dict[str, Callable[[], Any]]:
    """Return what can be traced, by name; each has been made once."""
    chat, project, profile = memory.conversation("chat"), memory.project("project"), memory.profile()
    numbers = iter(range(10**9))
    found: dict[str, Callable[[], Any]] = {
        "append": lambda: chat.append("user", "Which port does the server use?"),
        "set": lambda: profile.set("key", f"value {next(numbers)}"),
        "at": lambda: chat.at(memory.head - 3).window(),
        "add": lambda: project.add(f"The server listens on port {8000 + next(numbers)}."),
        "search": lambda: project.search("Which port?"),
    }
    for _ in range(3):
        for call in found.values():
            call()
    return found


def main() -> None:
    """Trace what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="CALL", help="append (the default), set, at, add, search")
    parser.add_argument("--counts", action="store_true", help="print counts without the trees")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Memory(Path(directory, "store")) as memory:
        found = calls(memory)
        for name in options.names or ["append"]:
            if name not in found:
                parser.error(f"{name} is no call; give some of {', '.join(found)}")
            trace = traced(found[name])
            if not options.counts:
                for depth, file, function in trace.calls:
                    print(f"{'  ' * depth}{function}  ({file})")
            functions, files, depth = trace.counts()
            print(f"{name}: {functions} functions in {files} files, {depth} deep")


if __name__ == "__main__":
    main()
