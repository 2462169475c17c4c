"""Break the engine in some forty small ways, one at a time, and see whether the tests of that part go red.

    python tools/mutants.py              every mutant, each as killed or SURVIVED; exits with 1 if any survived
    python tools/mutants.py window fold  those whose file or text has one of the words
    python tools/mutants.py --differential [WORDS]
                                         those that the differential test has to catch, each in 3 minutes of CPU time

Each changes one text of a copy of the package. A mutant whose text is gone is stale: write it anew for today's code.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SECONDS_MAX = 600
NO_TESTS = 5
CPU_SECONDS_MAX = 180
BASELINE_EXAMPLES = 20


class Mutant(NamedTuple):
    """A text of a file of the package, what is put in its place, and the tests that have to notice."""

    file: str
    old: str
    new: str
    tests: str


MUTANTS = [
    # Views: what a handler, a row and a digest leave out.
    Mutant("views/window.py", "while tokens > limit and queue", "while tokens >= limit and queue", "views"),
    Mutant("views/window.py", "self.gone.add(member.event.id)", "self.gone.discard(member.event.id)", "views"),
    Mutant("views/window.py", "not event.call_ids and not event.pinned and", "not event.call_ids and", "views"),
    Mutant(
        "views/window.py",
        "event.answers is not None or event.call_ids or event.pinned:",
        "event.answers is not None or event.call_ids:",
        "views",
    ),
    Mutant("views/window.py", "window.origin = stamp.seq", "window.origin = 0", "views memory/test_snapshot_bytes.py"),
    Mutant("views/scratchpad.py", "if not stamp.erased:", "if True:", "views"),
    Mutant("views/scratchpad.py", "entries.rows(sorted(entries.values))", "entries.rows(entries.values)", "views"),
    Mutant("views/state.py", "return key.startswith(TEMP)", "return False", "views"),
    Mutant(
        "views/profile.py",
        "if first_day <= day <= last_day",
        "if first_day < day <= last_day",
        "views/test_journal.py memory/test_edges.py agent/test_tools.py",
    ),
    Mutant("views/facts.py", "if not is_outdated:", "if is_outdated:", "memory/test_reembed.py"),
    Mutant(
        "views/facts.py",
        "status=event.status",
        "status=entry.status",
        "memory/test_project.py memory/test_maintenance.py",
    ),
    # Fold: what binds an event to its place.
    Mutant(
        "fold.py",
        "if any(seq < 0 for seq in getattr(event, field)):",
        "if not getattr(event, field):",
        "engine/test_batch.py",
    ),
    Mutant("fold.py", "begin += count", "begin += 1", "views"),
    # Transactions: whom a write has to wait for, and whom it is refused.
    Mutant("engine/conflicts.py", "NO_STREAM: actual == 0", "NO_STREAM: actual >= 0", "memory/test_verbs.py"),
    Mutant("engine/conflicts.py", "EXISTS: actual > 0", "EXISTS: actual >= 0", "memory/test_verbs.py"),
    Mutant("engine/conflicts.py", "if actual != version:", "if actual < version:", "engine/test_batch.py"),
    Mutant(
        "engine/transaction.py",
        "if event.prior != prior or getattr(",
        "if event.prior > prior or getattr(",
        "engine/test_batch_keys.py",
    ),
    Mutant(
        "engine/transaction.py",
        "(actual := self._prior(entry_key)) != expected",
        "(actual := expected) != expected",
        "engine/test_batch_keys.py",
    ),
    Mutant(
        "engine/transaction.py",
        "not transaction.is_current():",
        "transaction.is_current is None:",
        "engine/test_branches.py engine/test_batch_edges.py memory/test_time.py memory/test_maintenance.py",
    ),
    Mutant(
        "engine/transaction.py",
        "(count := erased_count(reader)) != before",
        "(count := erased_count(reader)) < before",
        "memory/test_board_scopes.py memory/test_maintenance.py",
    ),
    # Writer and reader: what is durable, and as of when.
    Mutant("engine/writer.py", "after_ns=reader.time_ns", "after_ns=0", "memory/test_time.py"),
    Mutant("engine/writer.py", "packer.keep_base(stream)", "None", "engine/test_replay.py engine/test_verify.py"),
    Mutant(
        "engine/streams.py",
        "stream.seqs += [stamp.seq for stamp in stamps]",
        "stream.seqs += [stamp.seq - 1 for stamp in stamps]",
        "engine/test_replay.py",
    ),
    Mutant(
        "engine/writer.py",
        "if len(stream.seqs) >= (stream.due",
        "if len(stream.seqs) < (stream.due",
        "engine/test_replay.py",
    ),
    Mutant("engine/reader.py", "if record.time_ns <= time_ns:", "if record.time_ns < time_ns:", "memory/test_time.py"),
    Mutant("engine/reader.py", "if not request.fits(row):", "if row == b'':", "memory/test_options.py"),
    Mutant(
        "engine/reader.py",
        "if at is None or at >= stream.seq",
        "if at is None or at >= stream.seq - 1",
        "memory/test_time.py",
    ),
    # Erasure and verify: what would never be missed until it is needed.
    Mutant("engine/erasure.py", "if dependents and not forks:", "if dependents and forks:", "engine/test_erasure.py"),
    Mutant(
        "engine/erasure.py", "for base in plan.bases if base.base_seq}", "for base in ()}", "engine/test_erasure.py"
    ),
    Mutant(
        "engine/erasure.py",
        "mentioned | _derived_seqs(",
        "mentioned or _derived_seqs(",
        "engine/test_erasure.py agent/test_provenance.py",
    ),
    Mutant("engine/markers.py", '.strip(b"\\0")) >= MARKER', '.strip(b"\\0")) > MARKER', "engine/test_markers.py"),
    Mutant(
        "engine/verify.py",
        "elif seen.commands[first - 1] != seen.commands[last - 1]:",
        "elif first > last:",
        "engine/test_verify.py",
    ),
    Mutant("engine/fold_check.py", " and self._holds(stream, row):", ":", "engine/test_verify.py engine/test_walk.py"),
    Mutant("engine/history.py", "if name != STORE_STREAM for", "if name for", "memory/test_time.py"),
    # Log and index.
    Mutant(
        "engine/transaction.py",
        "stream.seq, stream.branch) for",
        "stream.seq, stream.branch and 1) for",
        "engine/test_branches.py",
    ),
    Mutant(
        "log/record.py",
        "StreamHead(number, version + added, last[owner], branch)",
        "StreamHead(number, version + 1, last[owner], branch)",
        "engine/test_batch.py engine/test_verify.py",
    ),
    Mutant("log/record.py", "origin=record.covered_digest(),", "origin=record.digest(),", "rigs/test_dictionary.py"),
    Mutant(
        "engine/erasure.py",
        "places, fold.strip_body, salt)",
        "places, fold.strip_body, record.salt)",
        "rigs/test_dictionary.py",
    ),
    Mutant(
        "engine/erasure.py",
        "end = bisect_right(seqs, record.last_seq)",
        "end = begin + 1",
        "engine/test_erasure.py",
    ),
    Mutant("engine/walk.py", "if self.proved.get(last) != digest)", "if digest == b'')", "rigs/test_tamper.py"),
    Mutant(
        "index/ranking.py",
        'name="seed", cosine=0.40, keywords=0.25',
        'name="seed", cosine=0.41, keywords=0.24',
        "index/test_ranking.py",
    ),
    Mutant(
        "index/search.py",
        "top_k]) - 2 * self.margin",
        "top_k]) + 2 * self.margin",
        "index/test_exactness.py index/test_vectors.py",
    ),
]

DIFFERENTIAL = [
    # One message too many is evicted.
    Mutant(
        "views/window.py",
        "while tokens > limit and queue",
        "while tokens >= limit and queue",
        "",
    ),
    # The answers of a pinned call are evicted.
    Mutant(
        "views/window.py",
        "elif self.owners.get(message_id, message_id) in self.pinned:",
        "elif message_id in self.pinned:",
        "",
    ),
    # What was removed is counted still.
    Mutant("views/window.py", "self.tokens = self.pinned_tokens = 0", "self.pinned_tokens = 0", ""),
    # A restore that keeps the budget takes the old one.
    Mutant("memory/conversation.py", "if keep_budget:", "if False:", ""),
    # A fork has what its parent said later.
    Mutant("memory/snapshot.py", "base = pointer(core, parent, seq)", "base = pointer(core, parent, None)", ""),
    # The whole is restored, and what was born later stays.
    Mutant(
        "memory/store.py",
        "for stream in sorted(engine.reader.differing_streams(now, base)):",
        "for stream in sorted(engine.reader.differing_streams(now, base)):\n"
        "        if not memory_snapshot.pointer(elder, stream, base.seq)[1]:\n"
        "            continue",
        "",
    ),
    # The value that an erased one had replaced comes back.
    Mutant(
        "views/base.py",
        'self.drop_at(event.prior, getattr(event, "place", 0))\n        else:\n            self.put(',
        "pass\n        else:\n            self.put(",
        "",
    ),
    # A request id answers for another request.
    Mutant("engine/reader.py", "if not request.fits(row):", "if row == b'':", ""),
    # The past is one event too young.
    Mutant(
        "engine/reader.py",
        "if at is None or at >= stream.seq",
        "if at is None or at >= stream.seq - 1",
        "",
    ),
    # A stream without an event exists.
    Mutant("engine/conflicts.py", "EXISTS: actual > 0", "EXISTS: actual >= 0", ""),
    # A merge keeps the other text.
    Mutant(
        "memory/facts.py",
        'return other if contains(other, text) else f"{text} | {other}"',
        'return other if contains(other, text) else f"{other} | {text}"',
        "",
    ),
    # A day that was counted is counted again.
    Mutant("memory/maintenance.py", "since_ns = max(known)", "since_ns = entry.accessed_ns", ""),
    # What lasts a round lasts for ever.
    Mutant("views/state.py", "return key.startswith(TEMP)", "return False", ""),
    # A clock that goes back takes the log along.
    Mutant("engine/writer.py", "after_ns=reader.time_ns", "after_ns=0", ""),
]
"""What only a comparison with the contract tells; none of them needs a test of its own."""


def survived(tree: Path, examples: int = 10_000) -> str:
    """Run the differential test until it finds something or its CPU time is over; return what became of the mutant."""
    script = "from hypothesis import Phase; from tests.differential.machine import main; "
    script += f"main(0, {examples}, 30, phases=(Phase.generate,))"
    environment = os.environ | {"PYTHONPATH": f"{tree}{os.pathsep}{ROOT}", "OPENBLAS_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MAX, CPU_SECONDS_MAX)),
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if done.returncode in {-signal.SIGXCPU, -signal.SIGKILL, 0}:
        return "SURVIVED"
    error = next((line for line in reversed(done.stderr.splitlines()) if "Error" in line), "")
    return f"killed after {seconds:.0f} s of CPU time: {error[:100]}"


def outcome(mutant: Mutant, tree: Path) -> str:
    """Return what became of a mutant: killed, SURVIVED or stale."""
    file = tree / "refold" / mutant.file
    text = file.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        return f"stale, the text is there {text.count(mutant.old)} times"
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    if not mutant.tests:
        try:
            return survived(tree)
        finally:
            file.write_text(text, encoding="utf-8")
    paths = [f"tests/{name}" for name in mutant.tests.split()]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow and not soak",
        *paths,
    ]
    environment = os.environ | {"PYTHONPATH": str(tree), "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return "killed, it hangs"
    finally:
        file.write_text(text, encoding="utf-8")
    failed = next((line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    if done.returncode == NO_TESTS or (done.returncode and not failed):
        return f"stale, no test ran: {done.stdout[-200:]}{done.stderr[-200:]}"
    return f"killed by {failed.split(' - ')[0].partition(' ')[2]}" if failed else "SURVIVED"


def main(words: list[str]) -> int:
    """Try the mutants, and print a line for each."""
    found: list[str] = []
    is_differential = "--differential" in words
    words = [word for word in words if word != "--differential"]
    with tempfile.TemporaryDirectory() as place:
        tree = Path(shutil.copytree(ROOT / "engine", Path(place) / "engine"))
        # A test that fails without any mutant would kill them all.
        if is_differential and (failure := survived(tree, BASELINE_EXAMPLES)) != "SURVIVED":
            print(f"the differential test fails without any mutant: {failure}")
            return 1
        for mutant in DIFFERENTIAL if is_differential else MUTANTS:
            if words and not any(word in f"{mutant.file} {mutant.old}" for word in words):
                continue
            begun = time.monotonic()
            found.append(outcome(mutant, tree))
            print(f"{mutant.file}: {mutant.old.strip()} -> {mutant.new.strip()}")
            print(f"    {found[-1]}, {time.monotonic() - begun:.0f} s", flush=True)
    killed = sum(each.startswith("killed") for each in found)
    print(f"{len(found)} mutants, {killed} killed, {found.count('SURVIVED')} survived")
    return 0 if killed == len(found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
