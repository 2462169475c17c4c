"""A process that forks: the store is its own, whatever becomes of the child."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import gc, os, sys
from refold import Memory, RefoldError
memory = Memory(sys.argv[1])
chat = memory.conversation("c")
chat.append("user", "one", tokens=1)
child = os.fork()
if not child:
    {child}
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
assert chat.token_count() == 1
chat.append("user", "two", tokens=1)
assert memory.verify().ok
memory.close()
with Memory(sys.argv[1]) as memory:
    print(memory.conversation("c").token_count())
"""

CHILDREN = {
    "exits": "pass",
    "closes": "memory.close()",
    "drops": "del chat, memory; gc.collect()",
    "opens": """
    for readonly in (False, True):
        try:
            Memory(sys.argv[1], readonly=readonly)
        except RefoldError as error:
            assert "process that forked this one" in str(error), error
        else:
            sys.exit(1)
""",
    "opens another": """
    with Memory(sys.argv[1] + "-2") as other:
        other.conversation("c").append("user", "x", tokens=1)
""",
}


@pytest.mark.parametrize("child", CHILDREN)
def test_the_parent_goes_on(tmp_path: Path, child: str) -> None:
    command = [sys.executable, "-c", PROGRAM.replace("{child}", CHILDREN[child]), str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("2\n", 0), done.stderr


OPENING = """
import os, sys, threading
from refold import Memory
Memory(sys.argv[1]).close()  # Else the fork may meet Python's own lock of a module that is just being loaded.
is_over = False
def open_and_close():
    while not is_over:
        Memory(sys.argv[1]).close()
thread = threading.Thread(target=open_and_close)
thread.start()
for place in range(40):
    child = os.fork()
    if not child:
        Memory(f"{sys.argv[1]}-{place}").close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
is_over = True
thread.join()
print("done")
"""


def test_a_child_opens_another_store_though_a_thread_was_opening_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPENING, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
