"""Verbs on skills: list, show, validate, select, and what changes them."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from refold.cli import EXIT_ERROR
from refold.cli.output import Console, print_json, shortened, time_text
from refold.cli.root import FunctionType, cli, json_option, reading, writing
from refold.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from refold.skills import Skill, Skills, SkillSummary


# What a person reads of a skill on the command line.


def facts_of(skill: "Skill", status: str | None) -> dict[str, Any]:
    """Return what a person reads of a skill, without what is not there."""
    hooks = () if skill.hooks is None else hook_texts(skill)
    state = f"{'' if status is None else f', {status}'}{'' if skill.enabled else ', switched off'}"
    facts = {
        "id": skill.id,
        "name": skill.name,
        "description": skill.description,
        "source": f"{skill.source_label}, priority {skill.priority}{state}",
        "path": skill.path,
        "version": skill.version,
        "license": skill.license,
        "tags": ", ".join(skill.tags),
        "allowed tools": ", ".join(skill.allowed_tools),
        "phases": ", ".join(skill.inject_into),
        "hooks, never run": "; ".join(hooks),
    }
    return {field: value for field, value in facts.items() if value}


def hook_texts(skill: "Skill") -> list[str]:
    """Return the commands of a skill's hooks and when they ask to be run."""
    assert skill.hooks is not None, "asked for the hooks of a skill without any"
    rules = {"before": skill.hooks.pre_tool_use, "after": skill.hooks.post_tool_use}
    texts = [
        f"{when} {rule.matcher}: {action.command}" for when in rules for rule in rules[when] for action in rule.hooks
    ]
    return [*texts, *(f"at the end: {action.command}" for action in skill.hooks.stop)]


def printable(text: str) -> str:
    """Return a text without what could steer a terminal, on its own lines."""
    return "".join(character if character.isprintable() or character in "\n\t" else "?" for character in text)


def counted(value: Any) -> str:
    """Return a number, the items of a list, or the counts of a dict, on one line."""
    if isinstance(value, int):
        return str(value)
    items: dict[str, Any] | list[str] = value
    return ", ".join(f"{key} {items[key]}" for key in items) if isinstance(items, dict) else ", ".join(items)


_SOURCES = ("builtin", "external", "user", "project", "generated")
"""Written out, as are phases and statuses, so that the help loads nothing; a test compares."""

_PHASES = ("planning", "implementation", "retry")
_STATUSES = ("active", "pending_review", "rejected", "archived")
_DESCRIPTION_CHARS = 70


@cli.group("skills")
def skills_group() -> None:
    """Find, check, select and manage skills.

    Skills are SKILL.md files of a project, of its user and of other sources, and what a memory learned.
    """


def _places(function: FunctionType) -> FunctionType:
    """Add the options that say where skills are looked for."""
    for option in (
        click.option(
            "--project",
            type=click.Path(exists=True, file_okay=False),
            default=".",
            show_default=True,
            help="The project's directory.",
        ),
        click.option("--home", type=click.Path(), help="Whose skills count too.  [default: the user's home]"),
        click.option("--no-home", is_flag=True, help="Leave the user's skills out."),
        click.option("--builtin", type=click.Path(), multiple=True, help="A directory of built-in skills; repeat."),
        click.option(
            "--db", envvar="REFOLD_DB", show_envvar=True, metavar="PATH", help="The store of what is learned."
        ),
    ):
        function = option(function)
    return json_option(function)


@contextmanager
def _skills(places: dict[str, Any], *, writes: bool = False) -> "Generator[Skills]":
    """Give the skills of the places; without a store, there is nothing learned and nothing can be switched."""
    from refold import Memory
    from refold.skills import SkillRoots, skills_of

    home = None if places["no_home"] else str(places["home"] or Path.home())
    roots = SkillRoots(project=places["project"], home=home, builtin=tuple(places["builtin"]))
    db = places["db"]
    if writes and not db:
        raise click.UsageError("what is switched or reviewed is kept in a store; name one with --db PATH or REFOLD_DB")
    with Memory() if not db else writing(db) if writes else reading(db) as memory:
        yield skills_of(memory, roots)


@skills_group.command("list")
@click.option("--source", type=click.Choice(_SOURCES), help="Only those of one source.")
@click.option("--enabled", "only_enabled", is_flag=True, help="Only those that are switched on.")
@click.option("--learned", type=click.Choice((*_STATUSES, "any")), help="Those that were learned, by their status.")
@_places
def list_command(*, source: str | None, only_enabled: bool, learned: str | None, as_json: bool, **places: Any) -> None:
    """List skills, the highest priority first.

    A mark shows those that apply to the project (*) and those that are switched off (-). With --learned, lists what is
    in the store, such as what waits for its review.
    """
    if learned is not None:
        _list_learned(None if learned == "any" else learned, places, as_json=as_json)
        return
    with _skills(places) as skills:
        found = skills.list(source=source, include_disabled=not only_enabled)
        _tell_problems(skills)
    if as_json:
        print_json({"skills": found})
        return
    console = Console()
    for skill in found:
        _print_summary(console, skill)


def _list_learned(status: str | None, places: dict[str, Any], *, as_json: bool) -> None:
    with _skills(places) as skills:
        found = skills.library.list(status)
    if as_json:
        print_json({"learned": found})
        return
    console = Console()
    for skill in found:
        about = shortened(skill.description, _DESCRIPTION_CHARS)
        console.line("  ", (shortened(skill.name), "bold"), (f"  {skill.status}  ", "dim"), about)


def _print_summary(console: Console, skill: "SkillSummary") -> None:
    mark = "-" if not skill.enabled else "*" if skill.detected else " "
    console.line(
        f"{mark} ",
        (shortened(skill.name), "bold"),
        (f"  {skill.source} {skill.priority}  ", "dim"),
        shortened(skill.description, _DESCRIPTION_CHARS),
    )


def _tell_problems(skills: "Skills") -> None:
    """Say on stderr what kept files from being loaded."""
    for said in skills.diagnostics():
        if said.severity == "error":
            click.echo(shortened(str(said), 200), err=True)


@skills_group.command("show")
@click.argument("name")
@_places
def show_command(*, name: str, as_json: bool, **places: Any) -> None:
    """Show a skill whole.

    Shows what its file says, or what was learned, also before its review; how often it was used; the files beside it;
    and its hooks, which are never run.
    """
    with _skills(places) as skills:
        skill = skills.find(name)
        status = skills.library.get(skill.name).status if skill.source == "generated" else None
        usage = skills.library.usage(skill.name)
        resources = () if skill.source == "generated" else skills.resources(name)
    if as_json:
        fields = {field: getattr(skill, field) for field in skill.__struct_fields__ if field != "front"}
        used = {"status": status, "usage": usage, "success_rate": usage.success_rate}
        print_json({**fields, "metadata": skill.metadata, "resources": resources, **used})
        return
    console = Console()
    for field, value in facts_of(skill, status).items():
        console.line((f"{field}: ", "dim"), printable(str(value)))
    if usage.count:
        last = time_text(usage.last_ns)
        console.line(("used: ", "dim"), f"{usage.count} times, last at {last}, success rate {usage.success_rate:.2f}")
    for resource in resources:
        console.line(("file: ", "dim"), printable(resource))
    console.line(f"\n{printable(skill.body)}")


@skills_group.command("validate")
@click.argument("paths", nargs=-1, type=click.Path(exists=True))
@json_option
@click.pass_context
def validate_command(context: click.Context, *, paths: tuple[str, ...], as_json: bool) -> None:
    """Check files against the specification of Agent Skills.

    Checks each PATH, a file or a directory with all below it; without one, the skills of the project here. The exit
    code is 1 where a file is not valid, and where a PATH holds none.
    """
    found = {path: _files_of(Path(path)) for path in paths or _own_directories()}
    checked = [_checked(file) for files in found.values() for file in files]
    is_valid = all(found.values()) and all(entry["valid"] for entry in checked)
    for path, files in found.items():
        if not files:
            click.echo(f"there is no skill file in {shortened(path)}", err=True)
    if as_json:
        print_json({"valid": is_valid, "files": checked})
    else:
        console = Console()
        for entry in checked:
            console.line((printable(entry["path"]), "bold"), "  valid" if entry["valid"] else "")
            for reason in (*entry["errors"], *entry["remarks"]):
                console.line(f"    {printable(reason)}")
    if not is_valid:
        context.exit(EXIT_ERROR)


def _own_directories() -> list[str]:
    from refold.skills.sources import SKILL_DIRECTORIES

    return [directory for directory in SKILL_DIRECTORIES if Path(directory).is_dir()]


def _files_of(path: Path) -> list[Path]:
    from refold.skills import files
    from refold.skills.sources import is_skill_name

    if path.is_file():
        return [path]
    return [path / seen.path for seen in files.walk(str(path), matches=is_skill_name).files]


def _checked(file: Path) -> dict[str, Any]:
    from refold.skills import files, parse_skill, validate_skill

    content = files.read(str(file))
    path = files.printable(str(file))
    errors = validate_skill(content, files.printable(file.resolve().parent.name))
    remarks = [str(said) for said in parse_skill(path, content).diagnostics if said.reason not in errors]
    return {"path": path, "valid": not errors, "errors": errors, "remarks": remarks}


@skills_group.command("select")
@click.argument("query")
@click.option("--top-k", type=click.IntRange(min=0), metavar="N", help="At most so many.  [default: as configured]")
@click.option("--min-score", type=float, metavar="SCORE", help="Which score they need.")
@click.option("--phase", type=click.Choice(_PHASES), help="Only what is meant for a phase.")
@click.option("--ranking", default="seed", show_default=True, metavar="NAME", help="seed, words, hybrid, or any other.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only what has one of these; repeat.")
@click.option("--without-tag", "without", multiple=True, metavar="TAG", help="Nothing that has one of these; repeat.")
@click.option("--force", "forced", multiple=True, metavar="NAME", help="Take this one in any case; repeat.")
@click.option("--inject", is_flag=True, help="Show what would stand in the prompt.")
@_places
def select_command(
    *,
    query: str,
    top_k: int | None,
    min_score: float | None,
    phase: str | None,
    ranking: str,
    tags: tuple[str, ...],
    without: tuple[str, ...],
    forced: tuple[str, ...],
    inject: bool,
    as_json: bool,
    **places: Any,
) -> None:
    """Select skills for a query.

    Shows what would be put before a model for QUERY: what applies to the project first, then what answers best. Nothing
    is recorded.
    """
    from msgspec.structs import replace

    from refold.skills import SelectionPolicy, inject_skills
    from refold.skills.selection import with_settings

    given = SelectionPolicy(min_score=min_score, include_tags=tags, exclude_tags=without, ranking=ranking)
    with _skills(places) as skills:
        policy = with_settings(given, skills.index())
        policy = policy if top_k is None else replace(policy, top_k=top_k)
        matches = skills.select(query, policy=policy, phase=phase, forced=forced)
    if inject:
        click.echo(inject_skills(matches, policy), nl=False)
    elif as_json:
        shown = [
            {"score": match.score, "match_reason": match.match_reason, "query": match.query, "skill": match.skill}
            for match in matches
        ]
        print_json({"query": query, "matches": shown})
    else:
        console = Console()
        for match in matches:
            console.line(
                (f"{match.score:8.3f}  {match.match_reason:<13} ", "cyan"), (shortened(match.skill.name), "bold")
            )


@skills_group.command("detect")
@_places
def detect_command(*, as_json: bool, **places: Any) -> None:
    """Show which skills apply to the project.

    Names the files and the patterns that gave each of them away.
    """
    with _skills(places) as skills:
        found = skills.detect()
    if as_json:
        print_json({"detected": found})
        return
    console = Console()
    for detected in found:
        evidence = ", ".join((*detected.matched_files, *detected.matched_patterns))
        console.line(
            (shortened(detected.name), "bold"), f"  {detected.source} {detected.priority}  {shortened(evidence)}"
        )


@skills_group.command("new")
@click.argument("name")
@click.option("--description", required=True, metavar="TEXT", help="What it does, and when to use it.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="To find it by; repeat.")
@click.option("--body", type=click.File("rb"), metavar="FILE", help="The instructions; - reads them from stdin.")
@_places
def new_command(*, name: str, description: str, tags: tuple[str, ...], body: Any, as_json: bool, **places: Any) -> None:
    """Write a new skill into .skills.

    Writes .skills/NAME/SKILL.md of the project, valid by the specification; nothing is replaced.
    """
    text = f"# {name}\n\n{description}\n" if body is None else _decoded(body.read())
    with _skills(places) as skills:
        made = skills.create(name, description, text, tags=tags)
    _say({"name": made.name, "path": made.path}, f"wrote {made.path}", as_json=as_json)


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the body is not UTF-8 (byte {error.start}); convert it first") from error


@skills_group.command("toggle")
@click.argument("name")
@click.option("--on/--off", "enabled", default=None, help="Which of the two.  [default: the other one]")
@_places
def toggle_command(*, name: str, enabled: bool | None, as_json: bool, **places: Any) -> None:
    """Switch a skill on or off.

    What is switched off is listed, and selected only when it is forced.
    """
    with _skills(places, writes=True) as skills:
        skill = skills.get(name)
        wanted = not skill.enabled if enabled is None else enabled
        changed = skills.library.toggle(skill.name, enabled=wanted)
    state = "on" if wanted else "off"
    _say({"name": skill.name, "enabled": wanted, "changed": changed}, f"{skill.name} is {state}", as_json=as_json)


@skills_group.command("review")
@click.argument("name")
@click.argument("status", type=click.Choice(_STATUSES))
@_places
def review_command(*, name: str, status: str, as_json: bool, **places: Any) -> None:
    """Decide about a skill that was learned.

    Only those with the STATUS active are offered to a model.
    """
    with _skills(places, writes=True) as skills:
        learned = skills.library.review(name, status)
    _say({"name": learned.name, "status": learned.status}, f"{learned.name} is {learned.status}", as_json=as_json)


@skills_group.command("delete")
@click.argument("name")
@_places
def delete_command(*, name: str, as_json: bool, **places: Any) -> None:
    """Delete a skill.

    Deletes its file in .skills, or what was learned; the log keeps that. What comes from elsewhere is switched off
    instead.
    """
    with _skills(places, writes=bool(places["db"])) as skills:
        try:
            path = skills.remove(name)
        except NotFound:
            path = f"library/{skills.library.get(name).id}"
            skills.library.delete(name)
    _say({"name": name, "path": path}, f"deleted {path}", as_json=as_json)


@skills_group.command("overview")
@_places
def overview_command(*, as_json: bool, **places: Any) -> None:
    """Count the skills, by source and by state."""
    import msgspec

    with _skills(places) as skills:
        overview = skills.overview()
    if as_json:
        print_json(overview)
        return
    console = Console()
    fields: dict[str, Any] = msgspec.to_builtins(overview)
    for field, value in fields.items():
        console.line((f"{field.replace('_', ' ')}: ", "dim"), counted(value))


@skills_group.command("export")
@click.argument("name")
@click.option("--to", type=click.Path(), metavar="DIR", help="Below which directory.  [default: .skills]")
@_places
def export_command(*, name: str, to: str | None, as_json: bool, **places: Any) -> None:
    """Write a skill as a valid SKILL.md.

    Also one that waits for its review; nothing is replaced.
    """
    with _skills(places) as skills:
        path = skills.export(name, to)
    _say({"name": name, "path": path}, f"wrote {path}", as_json=as_json)


def _say(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        Console().line(shortened(text, 200))
