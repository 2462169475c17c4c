"""The verb that serves a store to others: mcp."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from refold.faces.commands.root import cli, db_option
from refold.faces.embedding import embedder_option
from refold.faces.reproducible import opened, reading

if TYPE_CHECKING:
    from refold import Embedder, Memory

_PORT_MAX = 65_535


@cli.command("mcp")
@click.option(
    "--http", type=click.IntRange(0, _PORT_MAX), metavar="PORT", help="Serve HTTP on 127.0.0.1; 0 takes a free port."
)
@click.option("--conversation", metavar="ID", help="The one conversation that is served.  [default: one per session]")
@click.option("--project", metavar="NAME", help="The one project that is served.  [default: the conversation's]")
@click.option("--profile", default="default", show_default=True, metavar="NAME", help="The profile that is served.")
@click.option("--journal", default="default", show_default=True, metavar="NAME", help="The journal that is served.")
@click.option("--skills", is_flag=True, help="Offer the skills of this directory and of the user as a tool, too.")
@click.option("--readonly", is_flag=True, help="Offer only what leaves no trace.")
@click.option("--conversation-by-model", is_flag=True, help="Let the model name the conversation of a call.")
@embedder_option
@db_option
def mcp_command(
    *,
    http: int | None,
    conversation: str | None,
    project: str | None,
    profile: str,
    journal: str,
    skills: bool,
    readonly: bool,
    conversation_by_model: bool,
    embedder: "Embedder | None",
    db: str,
) -> None:
    """Serve a store by the Model Context Protocol.

    Serves tools, resources and prompts to one client over stdin and stdout, or with --http to any number of them on
    this machine. The store is created if it is not there. Which conversation is meant says this command or the session,
    never the model, unless --conversation-by-model lets it. Clients that speak the protocol of 2026 over HTTP have no
    sessions and share one conversation, unless their hosts name others in _meta.
    """
    from refold.faces.mcp import check_installed, serve
    from refold.faces.mcp.binding import Binding

    check_installed()  # Before a store is made that nobody could serve.
    with (reading if readonly else opened)(db, embedder=embedder) as memory:
        if skills:
            _offer_skills(memory)
        binding = Binding(
            memory,
            conversation=conversation,
            project=project,
            profile=profile,
            journal=journal,
            readonly=readonly,
            asks_model=conversation_by_model,
        )
        serve(binding, http_port=http)


def _offer_skills(memory: "Memory") -> None:
    """Register the tool that lets a model call for a skill, where there is any."""
    from refold.tools.skills import SkillRoots, skills_of
    from refold.tools.skills.tool import skill_tool

    tool = skill_tool(skills_of(memory, SkillRoots(project=".", home=str(Path.home()))))
    if tool is not None:
        memory.tools.register(tool)
