"""Runs the Python blocks of Markdown files, so that no documented example can rot.

    python tools/run_blocks.py README.md ...

The blocks of one file run in order and share their names, as a reader would type them. A block with `>>>` prompts is
compared with the output that it shows, and so is one with comments that begin with `# ->`: each is a line of output,
in which `...` stands for anything. Everything happens in an empty folder that is thrown away afterwards.
"""

import contextlib
import doctest
import io
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
FENCED_BLOCK = re.compile(r"^```(?:python|pycon)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHOWN_LINE = re.compile(r"^ *# ->(?: (.*))?$", re.MULTILINE)
LENIENT = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class BlockFailedError(Exception):
    """A block showed other output than the one written below its prompts."""


def section_at(text: str, place: int) -> str:
    """The heading of the section that a place of a page is in."""
    return "".join(heading[1] for heading in [*HEADING.finditer(text, 0, place)][-1:])


def run_file(
    path: Path, namespace: dict[str, object] | None = None, *, sections: Callable[[str], bool] = lambda _: True
) -> int:
    """The number of blocks in the chosen sections, after all of them ran; what they define is in the namespace."""
    text = path.read_text(encoding="utf-8")
    namespace = {} if namespace is None else namespace
    namespace["__name__"] = "__main__"
    blocks = [block for block in FENCED_BLOCK.finditer(text) if sections(section_at(text, block.start()))]
    for block in blocks:
        line = text.count("\n", 0, block.start(1))
        run_block(block[1], namespace, path, line)
    return len(blocks)


def run_block(source: str, namespace: dict[str, object], path: Path, line: int) -> None:
    """Runs one block, which begins after that many lines of the file."""
    if ">>>" in source:
        run_prompts(source, namespace, path, line)
        return
    # Blank lines ahead of the source let a traceback name the line of the Markdown file.
    program = compile("\n" * line + source, str(path), "exec")
    expected = SHOWN_LINE.findall(source)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(program, namespace)  # noqa: S102
    lines = printed.getvalue().splitlines()
    matches = doctest.OutputChecker().check_output
    if expected and not (len(lines) == len(expected) and all(map(matches, expected, lines, [LENIENT] * len(expected)))):
        raise BlockFailedError(f"{path}: the block at line {line} printed {lines}, and shows {expected}")


def run_prompts(source: str, namespace: dict[str, object], path: Path, line: int) -> None:
    """Runs the prompts and compares their output; doctest prints what differs."""
    runner = doctest.DocTestRunner(optionflags=LENIENT)
    examples = doctest.DocTestParser().get_doctest(source, namespace, path.name, str(path), line)
    outcome = runner.run(examples, clear_globs=False)
    namespace.update(examples.globs)
    if outcome.failed:
        raise BlockFailedError(
            f"{path}: {outcome.failed} of {outcome.attempted} prompts in the block at line {line} failed"
        )


def main(arguments: list[str]) -> None:
    """Runs every file named, each in an empty folder of its own."""
    for path in (Path(argument).resolve() for argument in arguments):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            count = run_file(path)
        print(f"{path.name}: {count} blocks ran")


if __name__ == "__main__":
    main(sys.argv[1:])
