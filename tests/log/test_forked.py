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


USING = """
import asyncio, os, sys
from refold import Closed, Memory, RefoldError, StoreBusy
path = sys.argv[1]
memory = {opening}
chat = memory.conversation("c")
chat.append("user", "one")
asyncio.run(memory.aio.flush())
asyncio.run(memory.aio.conversation("c").append("user", "two"))
child = os.fork()
if not child:
    def awaited(call):
        async def wait():
            return await call()
        return asyncio.run(asyncio.wait_for(wait(), 60))
    on_loop = memory.aio.conversation("c")
    uses = [chat.window, lambda: chat.append("user", "x"), lambda: memory.why(2), memory.flush]
    uses += [lambda: awaited(lambda: on_loop.append("user", "x")), lambda: awaited(lambda: memory.aio.why(2))]
    uses += [lambda: awaited(memory.aio.flush)]
    if os.path.exists(path):
        uses += [lambda: Memory(path), lambda: Memory(path, readonly=True)]
    for close in (lambda: None, memory.close, lambda: awaited(memory.aio.close)):
        close()
        for use in uses:
            try:
                use()
            except (Closed, StoreBusy) as error:
                assert "the process that forked this one" in str(error), error
                assert "; fork before it is opened, or start processes with 'spawn'" in str(error), error
                assert "again" not in str(error), error
            else:
                os._exit(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
chat.append("user", "three")
assert asyncio.run(memory.aio.conversation("c").append("user", "four")).seq == memory.head
memory.close()
print("done")
"""


@pytest.mark.parametrize("opening", ["Memory(path)", "Memory(path, durability='delayed')", "Memory()"])
def test_every_error_in_the_child_gives_the_advice_that_works(tmp_path: Path, opening: str) -> None:
    command = [sys.executable, "-c", USING.replace("{opening}", opening), str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


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


BUSY = """
import os, sys, threading, time, warnings
from refold import Closed, Memory
warnings.simplefilter("ignore")
memory = Memory(sys.argv[1])
project, chat = memory.project("p"), memory.conversation("c")
with memory.batch():
    for number in range(50):
        project.add(f"fact {number}")
errors, is_over = [], False
def work(verbs):
    while not is_over:
        for verb in verbs:
            try:
                verb()
            except Exception as error:
                errors.append(repr(error))
READS = [lambda: project.search("fact"), lambda: memory.search_messages("hey"), lambda: memory.why("hey"), chat.window]
READS += [lambda: memory.context(chat, query="hey"), lambda: repr(memory), lambda: memory.head, memory.flush]
WRITES = [lambda: chat.append("user", "hey"), lambda: project.add(f"fact {time.time_ns()}")]
ALL = READS + WRITES
for verb in ALL:
    verb()  # Modules are loaded before the fork: a child may not inherit Python's own lock of one.
threads = [threading.Thread(target=work, args=(verbs,)) for verbs in (READS, READS, WRITES, WRITES)]
for thread in threads:
    thread.start()
for place in range(40):
    child = os.fork()
    if not child:
        for verb in ALL:
            try:
                verb()
            except Closed:
                continue
            except BaseException as error:
                print(place, repr(error), flush=True)
                os._exit(1)
            if verb is not READS[5]:
                print(place, ALL.index(verb), "was not refused", flush=True)
                os._exit(2)
        os._exit(0)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            break
        time.sleep(0.005)
    else:
        print("the child hangs", place, flush=True)
        os.kill(child, 9)
        os.waitpid(child, 0)
        break
is_over = True
for thread in threads:
    thread.join()
print("done", errors)
"""


@pytest.mark.slow
def test_a_child_of_a_busy_parent_is_refused_at_once_and_does_it_no_harm(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BUSY, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.returncode) == ("done []\n", 0), done.stderr
