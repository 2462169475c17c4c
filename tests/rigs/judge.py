"""What must hold of any store, whatever was done to it: every rig adds what it knows of its own workload.

Each check returns what is wrong, in words; none returns at once what it could still look at.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from refold import Memory
from refold.log.disk import SITE_SUFFIX
from refold.log.lmdb_file import CLEAN

LOCKS: Final = frozenset({"lock.mdb", "turn.lock"})
"""Files that nobody writes texts to; who closes LMDB's own gives up its locks, so it is not opened here."""


def unsound(memory: Memory) -> list[str]:
    """Compare every state, from checkpoints and tail, with the replay from the first event, then verify all of it."""
    findings = [] if memory.state_hash() == memory.replay_hash() else ["the state is not the replay of the log"]
    return findings + [f"verify found {finding}" for finding in memory.verify().findings]


def unwritable(memory: Memory, head: int) -> list[str]:
    """Append to the store, which must take it behind the head and stay sound; asked again, it says the same."""
    request = f"written behind {head}"
    seq = memory.conversation(request).append("user", "Is anybody there?", request_id=request).seq
    findings = [] if seq == head + 2 else [f"opening a conversation at seq {head} gave its message seq {seq}"]
    return findings + [f"after a write {finding}" for finding in unsound(memory)]


def remains(path: Path, erased: Iterable[tuple[str, bytes]]) -> Iterator[str]:
    """Look in every file of a store for texts that were erased, each with a word on what it was."""
    files = [file for file in path.rglob("*") if file.is_file() and file.name not in LOCKS]
    content = {file.relative_to(path): file.read_bytes() for file in files}
    for what, text in erased:
        yield from (f"{what} said before it was erased stands in {name}" for name in content if text in content[name])
    if any(path.rglob(CLEAN)):
        yield f"{CLEAN} is left in the store, and holds what the file held"


def beside(path: Path, acknowledged: Iterable[str]) -> tuple[list[Path], list[str]]:
    """Return the finished directories beside a store, and what is wrong with the names that are there."""
    there = {found.name for found in path.parent.iterdir() if found.is_dir()} - {path.name}
    findings = [f"{name} is gone, and it was acknowledged" for name in sorted(set(acknowledged) - there)]
    hidden = [name for name in sorted(there) if name.startswith(".")]
    findings += [
        f"{name} does not say what it is"
        for name in hidden
        if not name.endswith(SITE_SUFFIX) and not name.startswith(f".{path.name}.")
    ]
    return [path.with_name(name) for name in sorted(there) if not name.startswith(".")], findings


def mismatched(path: Path) -> list[str]:
    """Compare a backup with its manifest: the bytes of its file, and the state that they hold."""
    try:
        manifest = json.loads((path / "backup.json").read_text())
        content = (path / "data.mdb").read_bytes()
        with Memory(path, readonly=True) as memory:
            state = memory.state_hash()
    except Exception as error:  # noqa: BLE001 - whatever opening or reading raises is what a user would see
        return [f"it is not whole: {error}"]
    findings = [] if manifest["sha256"] == hashlib.sha256(content).hexdigest() else ["its file is not the manifest's"]
    return findings + ([] if manifest["state_hash"] == state else ["its state is not the manifest's"])
