"""What an older revision and this tree write and read, held against each other."""

import argparse
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb
from oracle import workload

ROOT: Final = Path(__file__).resolve().parents[2]
REVISION: Final = "6027fe9fbf748cebb2e2fa80b17958d27cdc6f97"
QUICK: Final = ("verbs", "agent", "renewed")
PARTS: Final = (*QUICK, "large", "commands", "machine", "imported")
BREAKS: Final = {
    "the name of an event": (r"\bNoteAdded\b", "NoteAddition"),
    "one byte of a record": (r"(class NoteAdded\(.*tag=)7\b", r"\g<1>97"),
    "a text that a model is shown": (r"\[Working Memory\]", "[Working memory]"),
}
"""What the self-test changes in a copy of this tree; each has to be seen."""

LOCAL: Final = ("lock.mdb", "owner.lock", "writer.lock", "turn.lock", "ballast", "verbs.witness")
"""Files that say something of processes or nothing, and one that lags behind its store by some time."""

MIRROR: Final = ".refold-mirror"
UNSTORED: Final = ("own", "beside", "former", "copies_erased_count")
"""What a mirror records of the copies that an erasure edits in the old, and deletes in the new."""

NEW_FIELDS: Final = {"deleted"}
"""Fields of results that the old has not: of a mirror's report, the copies that an erasure deleted."""

SHOWN: Final = 10
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - stores there cost no disk flush; a folder of its own is made inside
_CHARS: Final = 160
_TAG: Final = slice(76, 80)


class Side(NamedTuple):
    """A refold: the folder that Python imports it from, and the tree that its tests lie in."""

    path: Path
    tree: Path


def built(revision: str) -> Side:
    """Return the wheel of a revision, installed in a folder of its own."""
    commit = output("git", "rev-parse", "--verify", f"{revision}^{{commit}}").strip()
    folder = ROOT / "build" / "oracle" / commit
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "tree").mkdir(parents=True)
        output("git", "archive", "--output", str(folder / "tree.tar"), commit)
        output("tar", "-xf", str(folder / "tree.tar"), "-C", str(folder / "tree"))
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
        output(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(folder / "tree"))
        output(*pip, "install", "--no-deps", "--target", str(folder / "wheel"), *map(str, folder.glob("*.whl")))
        (folder / "done").touch()
    return Side(folder / "wheel", folder / "tree")


def mirror_record(path: Path) -> Any:
    """Return what a mirror has recorded, without what it knows of copies."""

    def known(fields: dict[str, Any]) -> dict[str, Any]:
        recent = {"recent": [change[:2] for change in fields["recent"]]} if "recent" in fields else {}
        return {key: value for key, value in fields.items() if key not in UNSTORED} | recent

    return json.loads(path.read_bytes().partition(b"\n")[2], object_hook=known)


def output(*command: str) -> str:
    """Return what a command prints; one that fails ends the run."""
    return subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout


def child(path: str, verb: str, *given: str) -> int:
    """Write or read with the refold that lies in a folder, and print what that gave."""
    refold = importlib.import_module("refold")
    assert str(refold.__file__).startswith(path + os.sep), f"{refold.__file__} does not lie in {path}"
    if verb == "write":
        tree, records, data, *parts = given
        print(json.dumps(workload.write(Path(tree), Path(records), Path(data), parts)))
    else:
        print(json.dumps(workload.read([*given])))
    return 0


def rows(store: Path) -> dict[str, dict[str, str]]:
    """Return every row of every table of a store, in hex, and the tables' flags."""
    with lmdb.open(str(store), readonly=True, lock=False, max_dbs=64) as environment, environment.begin() as main:
        found: dict[str, dict[str, str]] = {}
        for name, _ in main.cursor():
            table = environment.open_db(name, main, create=False)
            found[name.decode()] = {key.hex(): row.hex() for key, row in main.cursor(table)}
            found[name.decode()]["flags"] = str(table.flags())
    return found


def differences(a: Any, b: Any, path: str = "") -> Iterator[str]:
    """Return where two JSON values differ, and how; the order of keys counts, and so do the types of numbers."""
    texts = [json.dumps(value, ensure_ascii=False) for value in (a, b)]
    if texts[0] == texts[1]:
        return
    if isinstance(a, dict) and isinstance(b, dict) and (a.keys() != b.keys() or [*a] == [*b]):
        for key in sorted(a.keys() | b.keys() - NEW_FIELDS):
            yield from differences(a.get(key, "nothing"), b.get(key, "nothing"), f"{path} > {key}")
    elif isinstance(a, list) and isinstance(b, list):
        for place, (left, right) in enumerate(zip_longest(a, b, fillvalue="nothing")):
            about = left[0] if isinstance(left, list) and left and isinstance(left[0], str) else place
            yield from differences(left, right, f"{path} > {about}")
    else:
        alike = next((place for place, (one, other) in enumerate(zip(*texts, strict=False)) if one != other), 0)
        shown = [text[max(alike - _CHARS // 3, 0) :][:_CHARS] for text in texts]
        yield f"{path}\n    a {shown[0]}\n    b {shown[1]}"


class Comparison:
    """Two sides that write and read below a folder: what was compared, and what differs."""

    def __init__(self, old: Side, new: Side, folder: Path) -> None:
        self.sides, self.folder = {"old": old, "new": new}, folder
        self.counts, self.found = Counter[str](), list[str]()
        self.unlike = "nothing"
        """What begins the names of stores that the two sides wrote by rules of their own."""

    def run(self, parts: list[str], data: Path) -> None:
        """Let both sides write, let each read what both wrote and go on there, and compare all of it."""
        records = self.sides["old"].tree / "tests" / "golden"
        a, b = self.children(lambda name: ("write", self.sides[name].tree, records, data, *parts), "{}")
        if a is None or b is None:
            return
        self.equal("golden records", len(a["golden"]["written"]), a["golden"], b["golden"], "golden")
        self.equal("golden records", 0, a["golden"]["problems"], [], "golden")
        if a["results"].get("machine") != b["results"].get("machine"):
            self.unlike = "machine-"
            print("machine: the rules of the sides drew differently; what one wrote is not compared with the other's")
            a["results"]["machine"] = b["results"]["machine"] = []
        for part in parts:
            self.equal("results of verbs", len(a["results"][part]), a["results"][part], b["results"][part], part)
        tags = self.stores("old", "new")
        self.counts["events"], self.counts["types of events"] = tags.total(), len(tags)
        missing = set(a["golden"]["tags"]) - set(tags) if {*QUICK} <= {*parts} else set()
        self.found += [f"no event with tag {tag} was written; add its verb to script.txt" for tag in sorted(missing)]
        self.read()

    def read(self) -> None:
        """Compare what both sides read of what each wrote, and what they wrote there."""
        stores = [str(path.parent.relative_to(self.folder)) for path in sorted(self.folder.glob("*/*/data.mdb"))]
        for reader in self.sides:
            for writer in self.sides:
                shutil.copytree(self.folder / writer, self.folder / f"{reader}-reads" / writer)
        a, b = self.children(lambda _: ("read", *stores), "{}-reads")
        if a is None or b is None:
            return
        for store in stores:
            self.counts["searches"] += sum("search" in question for question, _ in a[store])
            self.equal("answers", len(a[store]), a[store], b[store], f"{store}, read by both")
        for writer in self.sides:
            self.stores(f"old-reads/{writer}", f"new-reads/{writer}")

    def children(self, words_of: Callable[[str], Sequence[object]], place: str) -> list[Any]:
        """Return what a child of each side prints, in a folder of its own; ``None`` for one that failed."""
        with ThreadPoolExecutor() as pool:
            return list(pool.map(lambda name: self.child(name, place.format(name), *words_of(name)), self.sides))

    def child(self, name: str, place: str, *words: object) -> Any:
        """Return what a child of a side prints."""
        path, tree = self.sides[name]
        known = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "REFOLD_CLOCK_NS": str(10**18)}
        known["PYTHONPATH"] = os.pathsep.join((str(path), str(tree)))
        command = [sys.executable, str(Path(__file__).parent), "--child", str(path), *map(str, words)]
        (folder := self.folder / place).mkdir(exist_ok=True)
        done = subprocess.run(command, cwd=folder, env=os.environ | known, text=True, check=False, capture_output=True)
        if done.returncode:
            self.found.append(f"the {name} side cannot {words[0]}:\n{done.stderr[-2000:].strip()}")
        return None if done.returncode else json.loads(done.stdout)

    def equal(self, kind: str, count: int, a: Any, b: Any, about: str) -> None:
        """Compare two values that stand for so many of a kind."""
        self.counts[kind] += count
        self.found += differences(a, b, about)

    def stores(self, first: str, second: str) -> Counter[int]:
        """Compare two folders of stores and files; return how often each tag stands in the logs of the first."""
        tags, sides = Counter[int](), [self.folder / first, self.folder / second]
        files = {path.relative_to(side) for side in sides for path in side.rglob("*") if path.is_file()}
        unlike = self.unlike if (first, second) == ("old", "new") else "nothing"
        for name in sorted(name for name in files if name.name not in LOCAL and not str(name).startswith(unlike)):
            both = [side / name for side in sides]
            if not all(path.exists() for path in both):
                self.found.append(f"{name} is missing in {second if both[0].exists() else first}")
            elif name.name == "data.mdb":
                left, right = (rows(path.parent) for path in both)
                tags += Counter(int(row[_TAG], 16) for key, row in left["log"].items() if key != "flags")
                count = sum(map(len, left.values())) - len(left)
                self.equal("rows", count, left, right, f"{name.parent} of {first}|{second}")
            elif name.name == MIRROR:
                left, right = map(mirror_record, both)
                self.equal("files", 1, left, right, f"{name} of {first}|{second}")
            else:
                a, b = (workload.without_layout(path.read_bytes().decode("latin-1")) for path in both)
                self.equal("files", 1, a.splitlines(), b.splitlines(), f"{name} of {first}|{second}")
        return tags


def main(arguments: list[str]) -> int:
    """Compare, say what differs and what was compared; return the exit code."""
    if arguments[:1] == ["--child"]:
        return child(*arguments[1:])
    parser = argparse.ArgumentParser("tools/oracle", description=__doc__)
    parser.add_argument("--revision", default=REVISION, help="the revision to hold this tree against")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be repeated")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="recorded sessions")
    parser.add_argument("--selftest", action="store_true", help="break copies of this tree, which has to be seen")
    given = parser.parse_args(arguments)
    old, parts = built(given.revision), list(given.part or (QUICK if given.quick else PARTS))
    if given.selftest:
        return selftest(old)
    if "imported" in parts and not given.data.is_dir():
        parts.remove("imported")
        print(f"imported: skipped, there is no folder {given.data}; --data names another one")
    return bool(compared(old, Side(ROOT / "engine", ROOT), parts, given.data.resolve()))


def compared(old: Side, new: Side, parts: list[str], data: Path) -> list[str]:
    """Compare two sides, print the outcome, and return the differences."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        comparison = Comparison(old, new, Path(folder))
        comparison.run(parts, data)
    for found in comparison.found[:SHOWN]:
        print(found)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in comparison.counts.items())
    print(f"{len(comparison.found)} differences in {counts}; {time.monotonic() - begin:.0f} s")
    return comparison.found


def selftest(old: Side) -> int:
    """Break copies of this tree; return 0 if all of it is seen."""
    unseen: list[str] = []
    for about, (pattern, replacement) in BREAKS.items():
        with tempfile.TemporaryDirectory() as place:
            shutil.copytree(ROOT / "engine", engine := Path(place) / "engine")
            texts = {path: path.read_text(encoding="utf-8") for path in engine.rglob("*.py")}
            broken = {path: re.sub(pattern, replacement, text) for path, text in texts.items()}
            assert broken != texts, f"{about}: nothing matches {pattern}; say in BREAKS how it is written now"
            for path, text in broken.items():
                path.write_text(text, encoding="utf-8")
            print(f"broken: {about}")
            unseen += [] if compared(old, Side(engine, ROOT), ["verbs"], ROOT) else [about]
    print(f"not seen: {', '.join(unseen)}" if unseen else f"all {len(BREAKS)} were seen")
    return bool(unseen)
