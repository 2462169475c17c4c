"""Two processes run agents on one store at once: neither is refused for what the other one wrote."""

import pickle
from pathlib import Path

import pytest

from refold import Context, InvalidInput, LimitExceeded, Memory
from refold.agent import AgentLoop, Reply, default_hooks
from tests.support.memories import Child, assert_sound

OTHER = """
import sys
from refold import Memory
from tests.agent.test_processes import talk
with Memory(sys.argv[1]) as memory:
    print("ready", flush=True)
    sys.stdin.readline()
    talk(memory, "other", 40)
    print("done", flush=True)
"""


class Agreeing:
    def reply(self, _messages: object, _tools: object) -> Reply:
        return Reply("ok")


def talk(memory: Memory, name: str, turns: int) -> None:
    default_hooks(memory)
    loop = AgentLoop(memory, memory.conversation(name, project="home"), Agreeing())
    for number in range(turns):
        assert loop.run(f"Remember that item {name} {number} is the number {number * 3}.").text == "ok"


@pytest.mark.slow
def test_agents_in_two_processes_share_a_project(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        with Child(OTHER, str(tmp_path / "store")) as child:
            assert child.read() == "ready"
            child.write("go")
            talk(memory, "own", 40)
            assert child.read() == "done"
        assert {len(memory.conversation(name).window()) for name in ("own", "other")} == {80}
        assert_sound(memory)


COUNTS = """
import sys
from refold import Memory
with Memory(sys.argv[1]) as memory:
    memory.settings.count_usage("memory_injected", 2)
    print("counted", flush=True)
"""


def test_uses_are_counted_in_a_batch_while_another_process_counts(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.settings.count_usage("memory_injected")
        with memory.batch():
            memory.settings.count_usage("memory_injected", 4)
            with Child(COUNTS, str(tmp_path / "store")) as child:
                assert child.read() == "counted"
        assert memory.stats().usage["memory_injected"] == 7


WRITES = """
import sys
from refold import Memory
with Memory(sys.argv[1]) as memory:
    print(memory.conversation("c").append("user", "The cat is called Mo.").seq, flush=True)
    sys.stdin.readline()
"""

BUILDS = """
import pickle, sys
from refold import Memory
with Memory(sys.argv[1]) as memory:
    memory.conversation("c").append("user", "What is the cat called?")
    print(pickle.dumps(memory.context(memory.conversation("c"))).hex(), flush=True)
    sys.stdin.readline()
"""


def test_what_a_model_read_in_another_process_is_recorded(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        session = memory.conversation("c").session
        with Child(WRITES, str(tmp_path / "store")) as child:
            seq = int(child.read())
            session.record_extraction("model", ["id"], [], seq=seq)
            child.write("go")
        assert session.extracted_seq() == seq
        with pytest.raises(LimitExceeded, match="over the head"):
            session.record_extraction("model", ["id"], [], seq=memory.head + 1)


def test_a_context_of_another_process_is_shown(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory, Child(BUILDS, str(tmp_path / "store")) as child:
        context: Context = pickle.loads(bytes.fromhex(child.read()))  # noqa: S301 - from the child that this test began
        seq = memory.show(context)
        child.write("go")
        assert memory.rebuild(seq).matches
    with Memory(None) as other, pytest.raises(InvalidInput, match="this log has no seq 2"):
        other.show(context)
