"""The engine does what the model says: quickly here, in child processes for longer, and in a soak with random seeds."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase

from refold.cli.cluster import server_program
from tests.differential.machine import DifferentialMachine, main
from tests.differential.model import Model
from tests.differential.operations import OPERATIONS
from tests.support.paths import ROOT
from tests.support.postgres_server import programs as postgres_programs
from tests.support.sizes import sizes
from tests.support.verbs import VERBS

STEPS = 30
ENVIRONMENTS = [(hash_seed, zone) for hash_seed in ("0", "1") for zone in ("UTC", "Asia/Kathmandu")]

RULES = {
    "act": "Memory.acting",
    "carry_away": "Memory.backup Memory.context Memory.export Memory.flush Memory.load Memory.mirror Memory.rebuild "
    "Memory.reembed Memory.show",
    "enter_batch": "Memory.batch",
    "erase": "Memory.erase",
    "erase_all": "Board.erase Conversation.erase Project.erase Table.erase Profile.erase Journal.erase Files.erase",
    "fork": "Memory.fork",
    "listen": "Board.subscribe Board.subscribe_settings Memory.subscribe Subscription.close",
    "look_back": "Board.at Conversation.at Conversation.replay Memory.at Memory.diff Project.at",
    "reopen": "Memory.close",
}
"""The verbs that rules of the machine drive, beside the operations."""

READS = {
    "Board": "bundle events get get_settings node place project session to_dict to_json version",
    "Conversation": "embed events eviction history message messages place project scratchpad search token_count "
    "version window window_tokens",
    "Files": "list read view",
    "Journal": "day recent",
    "Memory": "board boards conversation conversations event events files forks head health journal journals profile "
    "profiles project projects replay_hash search search_messages settings skills snapshots state_hash stats table "
    "tables verify",
    "Profile": "get items",
    "Project": "count events get history list place search search_episodes search_many stats",
    "ScopedState": "get items keys values",
    "Scratchpad": "get items keys notes to_dict to_json",
    "SessionMemory": "calls extracted_seq files findings summary task to_text",
    "Settings": "get items",
    "Table": "count get get_many history item keys scan seqs",
    "SkillLibrary": "disabled_names get is_enabled last_selection list notes usage",
}
"""What is read after the steps."""

UNDRIVEN = {
    "Conversation.rate": "memory/test_eviction.py",
    "Conversation.recall": "memory/test_eviction.py",
    "Conversation.summarize": "memory/test_eviction.py",
    "Conversation.bisect": "memory/test_bisection.py",
    "Memory.bisect": "memory/test_bisection.py",
    "Memory.refresh": "log/test_replica.py",
    "Memory.sweep": "memory/test_scenario.py",
    "Memory.watch": "memory/test_watch.py",
    "Memory.what_if": "memory/test_scenario.py",
    **dict.fromkeys(("Memory.why", "Memory.influence"), "memory/test_why.py"),
    **dict.fromkeys(
        (f"{kind}.blame" for kind in ("Memory", "Scratchpad", "ScopedState", "Profile", "Settings", "Board", "Files")),
        "memory/test_blame.py",
    ),
    "Memory.add": "Project.add, of the default project",
    "Memory.hooks": "agent/test_hooks.py",
    "Memory.recall": "Project.recall, of the default project",
    "Memory.tools": "agent/test_tools.py",
    "Memory.transact": "memory/test_transact.py",
    "Memory.upsert": "Project.upsert, of the default project",
    "ScopedState.pop": "ScopedState.delete, as a mapping has it",
    "ScopedState.setdefault": "ScopedState.set, as a mapping has it",
    "ScopedState.update": "ScopedState.set, as a mapping has it",
    **dict.fromkeys(("SessionMemory.provenance", "Files.seqs_shown", "Board.seqs_shown"), "agent/test_provenance.py"),
    **{name.partition("/")[0]: "files beside the store: skills" for name in VERBS if name.startswith("Skills.")},
}
"""The verbs that the machine does not call: what does it instead, or which tests do."""

DRIVEN = {*OPERATIONS, *" ".join(RULES.values()).split(), *(f"{k}.{n}" for k in READS for n in READS[k].split())}


def public_verbs() -> set[str]:
    """The verbs of the table of all verbs, one of which is called by another there."""
    return {name.partition("/")[0] for name in VERBS if "." in name} | {"Memory.rebuild"}


def test_every_public_verb_is_driven_or_is_tested_elsewhere() -> None:
    assert public_verbs() == DRIVEN | UNDRIVEN.keys()
    assert not DRIVEN & UNDRIVEN.keys()
    assert all((ROOT / "tests" / why).exists() for why in UNDRIVEN.values() if why.endswith(".py"))


def test_every_operation_is_a_verb_of_the_model_and_every_rule_exists() -> None:
    assert all(hasattr(Model, verb.replace(".", "_").lower()) for verb in OPERATIONS)
    assert all(hasattr(DifferentialMachine, rule) for rule in RULES)


def recorder(called: set[str], name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
    """The verb, which says that it was called."""

    def recording(*args: Any, **options: Any) -> Any:
        called.add(name)
        return verb(*args, **options)

    return recording


def watch(monkeypatch: pytest.MonkeyPatch, called: set[str]) -> set[str]:
    """Let every public method and property say that it was called; return the names of all that can."""
    kinds = {name.partition(".")[0]: verb.kind for name, verb in VERBS.items() if verb.kind is not None}
    watched: set[str] = set()
    for full_name in public_verbs():
        kind, _, name = full_name.partition(".")
        owner = next((each for each in getattr(kinds.get(kind), "__mro__", ()) if name in vars(each)), None)
        attribute = vars(owner)[name] if owner else None
        if isinstance(attribute, property) and attribute.fget is not None:
            monkeypatch.setattr(kinds[kind], name, property(recorder(called, full_name, attribute.fget)))
        elif callable(attribute):
            monkeypatch.setattr(kinds[kind], name, recorder(called, full_name, attribute))
        else:
            continue
        watched.add(full_name)
    return watched


@pytest.mark.slow
def test_every_verb_that_is_driven_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    called: set[str] = set()
    wanted = watch(monkeypatch, called) & DRIVEN
    for number in range(16):  # The first find nearly all of them; what one draws depends on more than its number.
        main(number, 20, STEPS, phases=(Phase.generate,))
        if called >= wanted:
            break
    assert wanted - called == set()
    assert len(wanted) > 150


def test_a_quick_run_finds_nothing() -> None:
    """What fails here is made small by ``python -m tests.differential.machine 0 16 30``."""
    main(0, 16, STEPS, phases=(Phase.generate,))


def run_in_child(directory: Path, number: int, examples: int, hash_seed: str, zone: str, *log: str) -> None:
    """Run the machine in a process with a hash seed and a time zone of its own."""
    command = [sys.executable, "-W", "error", "-m", "tests.differential.machine"]
    command += [str(number), str(examples), str(STEPS), *log]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed, "TZ": zone}
    result = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}{result.stderr}"


@sizes("examples", slow=30, soak=5_000)
@pytest.mark.parametrize(("hash_seed", "zone"), ENVIRONMENTS)
def test_the_machine_finds_nothing(tmp_path: Path, examples: int, hash_seed: str, zone: str) -> None:
    """Each environment sees other examples, and each soak; a command that failed is printed with its seed."""
    number = 1 + ENVIRONMENTS.index((hash_seed, zone)) if examples < 1_000 else int.from_bytes(os.urandom(4))
    run_in_child(tmp_path, number, examples, hash_seed, zone)


@sizes("examples", slow=10, soak=500)
@pytest.mark.parametrize(("log", "is_there"), [("postgres", postgres_programs), ("nats", server_program)])
def test_the_machine_finds_nothing_over_a_log_on_a_server(
    tmp_path: Path, examples: int, log: str, is_there: Callable[[], object]
) -> None:
    if not is_there():
        pytest.skip(f"no server for {log} is installed")
    number = 11 if examples < 100 else int.from_bytes(os.urandom(4))
    run_in_child(tmp_path, number, examples, "0", "UTC", log)
