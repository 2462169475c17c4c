"""Imports in fresh processes, sizes on disk and recorded sessions going in; and that the report itself runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import report
import workloads
from rounds import Job, Measure, Target, alternate, ratio_of
from rows import startup, storage

from refold import Memory

LAZY = "import sys, refold; loaded = {'lmdb', 'msgspec', 'numpy', 'hnswlib'} & set(sys.modules); sys.exit(bool(loaded))"


@pytest.mark.parametrize("name", list(startup.IMPORTS))
def test_import(name: str, measure: Measure, tmp_path: Path) -> None:
    measure(Job(lambda: startup.run_python(startup.IMPORTS[name], tmp_path)))
    startup.run_python(LAZY, tmp_path)


def test_recorded_sessions_go_in(measure: Measure, tmp_path: Path) -> None:
    call = {"id": "call-1", "type": "function", "function": {"name": "list", "arguments": "{}"}}
    said = [
        {"role": "user", "content": "What is open?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "nothing", "tool_call_id": "call-1"},
    ]
    (tmp_path / "two.jsonl").write_bytes(b"".join(json.dumps({"traj": said}).encode() + b"\n" for _ in range(2)))
    with Memory() as memory:
        measure(Job(lambda: storage.imported(memory, storage.files(tmp_path))))
        first, second = memory.conversations()
        assert first != second
        assert memory.conversation(first).messages() == memory.conversation(second).messages() == said


def test_rounds_rotate_and_compare() -> None:
    order: list[str] = []
    jobs = {name: Job(lambda name=name: order.append(name)) for name in "abc"}  # type: ignore[misc]
    samples = alternate(jobs, 3, warm_up=1)
    assert "".join(order) == "cababcbcacab"
    assert [len(values) for values in samples.values()] == [3, 3, 3]
    assert ratio_of([2.0, 4.0, 6.0], [1.0, 2.0, 3.0], "at most").value == pytest.approx(2.0)
    assert ratio_of([2.0, 4.0, 6.0], [1.0, 2.0, 3.0], "at least").value == pytest.approx(0.5)
    assert Target("at most", 1.15).is_met(1.15)
    assert not Target("at least", 0.4).is_met(0.39)


def test_report_has_a_row_for_every_job(tmp_path: Path, sizes: workloads.Sizes) -> None:
    if sizes is workloads.FULL:
        pytest.skip("the report at full size is a command of its own: python benchmarks/report.py")
    command = [
        sys.executable,
        report.__file__,
        "--tiny",
        "--json",
        "--directory",
        str(tmp_path),
        "--data",
        str(tmp_path),
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rows = json.loads(done.stdout)["rows"]
    jobs = {row["job"] for row in rows}
    assert len(jobs) >= len(report.GROUPS)
    assert all(row["ours_ns"] or row["note"] for row in rows)
