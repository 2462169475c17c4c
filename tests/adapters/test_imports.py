"""An adapter whose framework is not installed says which extra brings it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import refold.adapters

ADAPTERS = sorted(path.stem for path in Path(refold.adapters.__file__).parent.glob("[!_]*.py"))
WITHOUT = {"erasure", "extras", "keys", "media", "openai_agents", "windows"}
"""What imports no framework: the adapter for OpenAI's SDK is given to it, and takes nothing of it."""

EXTRAS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
ABSENT = """
import sys
frameworks = "agent_framework google langchain_core langgraph llama_index ormsgpack pydantic_ai".split()
sys.modules |= dict.fromkeys(frameworks)
import refold.adapters.{name}
"""


@pytest.mark.parametrize("name", ADAPTERS)
def test_without_its_framework_an_adapter_says_what_to_install(name: str) -> None:
    command = [sys.executable, "-c", ABSENT.replace("{name}", name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if name in WITHOUT:
        assert (done.returncode, done.stderr) == (0, "")
        return
    *_, last = done.stderr.splitlines()
    found = re.fullmatch(
        r"ModuleNotFoundError: this adapter needs packages of the extra (.+), which cannot be loaded "
        r"\(.+\); run: pip install 'refold\[(.+)\]'",
        last,
    )
    assert found is not None, last
    assert found[1] == found[2]
    assert found[1] in EXTRAS
    assert found[1].replace("-", "_") in {name, name.partition("_")[0]} or name == "langchain_messages"
