"""Two processes run agents on one store at once: neither is refused for what the other one wrote."""

from pathlib import Path

import pytest

from refold import Memory
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
