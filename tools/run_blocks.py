"""Runs the Python blocks of Markdown files, so that no documented example can rot.

    python tools/run_blocks.py README.md ...

The blocks of one file run in order and share their names, as a reader would type them. A block with `>>>` prompts is
also compared with the output that it shows. Everything happens in an empty folder that is thrown away afterwards.
"""

import contextlib
import doctest
import re
import sys
import tempfile
from pathlib import Path

FENCED_BLOCK = re.compile(r"^```(?:python|pycon)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class BlockFailedError(Exception):
    """A block showed other output than the one written below its prompts."""


def run_file(path: Path) -> int:
    """The number of blocks in the file, after all of them ran."""
    text = path.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "__main__"}
    blocks = list(FENCED_BLOCK.finditer(text))
    for block in blocks:
        line = text.count("\n", 0, block.start(1))
        run_block(block[1], namespace, path, line)
    return len(blocks)


def run_block(source: str, namespace: dict[str, object], path: Path, line: int) -> None:
    """Runs one block, which begins after that many lines of the file."""
    if ">>>" in source:
        run_prompts(source, namespace, path, line)
    else:
        # Blank lines ahead of the source let a traceback name the line of the Markdown file.
        exec(compile("\n" * line + source, str(path), "exec"), namespace)  # noqa: S102


def run_prompts(source: str, namespace: dict[str, object], path: Path, line: int) -> None:
    """Runs the prompts and compares their output; doctest prints what differs."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
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
