"""`refold mcp` as a command: what it refuses before it serves anybody, and the skills that it offers."""

import asyncio
import os
import socket
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from refold import Memory
from refold.skills import skills_of
from tests.mcp.servers import command
from tests.support.command import Run, running
from tests.support.memories import remembering

SKILL = """---
name: release-notes
description: Write the notes of a release.
---
One line a change.
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    return running(monkeypatch, capfd)


def test_a_port_that_is_taken_is_said(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run("mcp", "--db", tmp_path / "store", "--http", taken.getsockname()[1])
    assert (ended.code, ended.out) == (1, "")
    assert "in use" in ended.err


def test_a_port_that_is_none_is_wrong_usage(run: Run, tmp_path: Path) -> None:
    ended = run("mcp", "--db", tmp_path / "store", "--http", "70000")
    assert (ended.code, ended.out) == (2, "")
    assert not (tmp_path / "store").exists()


def test_what_only_reads_creates_nothing(run: Run, tmp_path: Path) -> None:
    ended = run("mcp", "--db", tmp_path / "store", "--readonly")
    assert (ended.code, ended.out) == (1, "")
    assert "there is no store" in ended.err
    assert not (tmp_path / "store").exists()


def test_a_name_that_is_none_is_refused_before_anybody_is_served(run: Run, tmp_path: Path) -> None:
    for option in ("--conversation", "--project", "--profile", "--journal"):
        ended = run("mcp", "--db", tmp_path / "store", option, "x" * 500)
        assert (ended.code, ended.out) == (1, ""), option
        assert "NAME_BYTES_MAX" in ended.err


def test_without_the_sdk_the_command_says_what_to_install(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold.mcp.find_spec", lambda _: None)
    ended = run("mcp", "--db", tmp_path / "store")
    assert (ended.code, ended.out) == (1, "")
    assert "pip install 'refold[mcp]'" in ended.err
    assert not (tmp_path / "store").exists()


@pytest.mark.slow
def test_the_skills_of_the_directory_are_a_tool(tmp_path: Path) -> None:
    folder = tmp_path / "work" / ".skills" / "release-notes"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    store, library = str(tmp_path / "store"), "acme"
    program, *rest = command("--db", store, "--skills", "--library", library, "--conversation", "chat-42")
    environment = {**os.environ, "HOME": str(tmp_path)}
    target = StdioServerParameters(command=program, args=rest, env=environment, cwd=tmp_path / "work")

    async def use() -> None:
        async with Client(target) as client:
            (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "skill_use"]
            assert tool.input_schema["properties"]["name"]["enum"] == ["release-notes"]
            result = await client.call_tool("skill_use", {"name": "release-notes"})
            assert not result.is_error
            assert "One line a change." in str(result.content[0])

    asyncio.run(use())
    with remembering(tmp_path / "store") as memory:
        assert isinstance(memory, Memory)
        assert skills_of(memory, library=library).library.usage("release-notes").count == 1
        assert memory.skills.library.usage("release-notes").count == 0


def test_a_library_without_skills_is_refused(run: Run, tmp_path: Path) -> None:
    ended = run("mcp", "--db", tmp_path / "store", "--library", "acme")
    assert (ended.code, ended.out) == (2, "")
    assert "give --skills" in ended.err
    assert not (tmp_path / "store").exists()
