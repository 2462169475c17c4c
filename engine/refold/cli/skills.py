"""Verbs for skills: list, show, validate, select, and the verbs that change them."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from refold.cli import EXIT_ERROR
from refold.cli.output import Line, as_shown, shortened, time_text
from refold.cli.root import Function, Option, Output, cli, reading, verb, writing
from refold.errors import InvalidInput, NotFound
from refold.text import counted

if TYPE_CHECKING:
    from refold.skills import Skill, Skills

# Spelled out, like phases and statuses, so that help loads nothing; a test compares them.
_SOURCES = ("builtin", "external", "user", "project", "generated")
_PHASES = ("planning", "implementation", "retry")
_STATUSES = ("active", "pending_review", "rejected", "archived")
_DESCRIPTION_CHARS = 70
_LINE_CHARS = 200


@cli.group("skills")
def skills_group() -> None:
    """Find, check, select and manage skills.

    Skills are SKILL.md files of a project, of its user and of other sources, and what a memory learned.
    """


# The options that say where to look for skills.
_PLACES = (
    click.option(
        "--project", type=click.Path(exists=True, file_okay=False), default=".", help="The project's directory."
    ),
    click.option("--home", type=click.Path(), help="Whose skills count too.  [default: the user's home]"),
    click.option("--no-home", is_flag=True, help="Leave the user's skills out."),
    click.option("--builtin", type=click.Path(), multiple=True, help="A directory of built-in skills; repeat."),
    click.option("--db", envvar="REFOLD_DB", show_envvar=True, metavar="PATH", help="The store of what is learned."),
    click.option("--library", default="default", show_default=True, metavar="NAME", help="The library in the store."),
)


def _verb(name: str, *options: Option[Any]) -> Callable[[Function], Function]:
    return verb(name, *options, *_PLACES, opens=None, group=skills_group)


@contextmanager
def _skills(places: dict[str, Any], *, writes: bool = False) -> "Generator[Skills]":
    """Open the skills of the given places; without a store, nothing is learned or switched."""
    from refold import Memory
    from refold.skills import SkillRoots, skills_of

    home = None if places["no_home"] else str(places["home"] or Path.home())
    roots = SkillRoots(project=places["project"], home=home, builtin=tuple(places["builtin"]))
    db = places["db"]
    if writes and not db:
        raise click.UsageError("switches, notes and reviews are kept in a store; name one with --db PATH or REFOLD_DB")
    with Memory() if not db else writing(db) if writes else reading(db) as memory:
        yield skills_of(memory, roots, library=places["library"])


def _done(text: str, **document: Any) -> Output:
    return Output(document, [(shortened(text, _LINE_CHARS),)])


@_verb(
    "list",
    click.option("--source", type=click.Choice(_SOURCES), help="Only those of one source."),
    click.option("--enabled", "only_enabled", is_flag=True, help="Only those that are switched on."),
    click.option("--learned", type=click.Choice((*_STATUSES, "any")), help="Those that were learned, by their status."),
)
def list_(source: str | None, learned: str | None, *, only_enabled: bool, **places: Any) -> Output:
    """List skills, the highest priority first.

    A mark shows those that apply to the project (*) and those that are switched off (-). With --learned, lists the
    skills in the store, such as those that wait for review.
    """
    with _skills(places) as skills:
        if learned is not None:
            library = skills.library.list(None if learned == "any" else learned)
            return Output(
                {"learned": library},
                [_skill_line(" ", skill.name, skill.status, skill.description) for skill in library],
            )
        summaries = skills.list(source=source, include_disabled=not only_enabled)
        for problem in skills.diagnostics():
            if problem.severity == "error":
                click.echo(shortened(str(problem), _LINE_CHARS), err=True)
    lines: list[Line] = []
    for skill in summaries:
        mark = "-" if not skill.enabled else "*" if skill.detected else " "
        lines.append(_skill_line(mark, skill.name, f"{skill.source} {skill.priority}", skill.description))
    return Output({"skills": summaries}, lines)


def _skill_line(mark: str, name: str, about: str, description: str) -> Line:
    return f"{mark} ", (shortened(name), "bold"), (f"  {about}  ", "dim"), shortened(description, _DESCRIPTION_CHARS)


@_verb("show", click.argument("name"))
def show(name: str, **places: Any) -> Output:
    """Show a skill whole.

    Shows what its file says, or what was learned, also before its review; how often it was used; the other files of its
    directory; and its hooks, which are never run.
    """
    with _skills(places) as skills:
        skill = skills.find(name)
        status = skills.library.get(skill.name).status if skill.source == "generated" else None
        usage = skills.library.usage(skill.name)
        resources = () if skill.source == "generated" else skills.resources(name)
    fields = {field: getattr(skill, field) for field in skill.__struct_fields__ if field != "front"}
    document = {**fields, "metadata": skill.metadata, "resources": resources}
    document |= {"status": status, "usage": usage, "success_rate": usage.success_rate}
    lines: list[Line] = [((f"{key}: ", "dim"), str(value)) for key, value in _facts(skill, status)]
    if usage.count:
        last = time_text(usage.last_ns)
        text = f"{counted(usage.count, 'time')}, last at {last}, success rate {usage.success_rate:.2f}"
        lines.append((("used: ", "dim"), text))
    lines += [(("file: ", "dim"), resource) for resource in resources]
    return Output(document, [*lines, (), *((line,) for line in skill.body.split("\n"))])


def _facts(skill: "Skill", status: str | None) -> Iterator[tuple[str, Any]]:
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
        "note": skill.note,
        "hooks, never run": "; ".join(_hook_texts(skill)),
    }
    yield from ((field, value) for field, value in facts.items() if value)


def _hook_texts(skill: "Skill") -> list[str]:
    hooks = skill.hooks
    if hooks is None:
        return []
    rules = [("before", rule) for rule in hooks.pre_tool_use] + [("after", rule) for rule in hooks.post_tool_use]
    texts = [f"{when} {rule.matcher}: {action.command}" for when, rule in rules for action in rule.hooks]
    return [*texts, *(f"at the end: {action.command}" for action in hooks.stop)]


@verb("validate", click.argument("paths", nargs=-1, type=click.Path(exists=True)), opens=None, group=skills_group)
def validate(paths: tuple[str, ...]) -> Output:
    """Check files against the specification of Agent Skills.

    Checks each PATH, a file or a directory with all below it; without one, the skills of the project here. The exit
    code is 1 where a file is not valid, and where a PATH holds none.
    """
    from refold.skills.sources import SKILL_DIRECTORIES

    own = [directory for directory in SKILL_DIRECTORIES if Path(directory).is_dir()]
    files_of = {path: _files_of(Path(path)) for path in paths or own}
    results = [_validated(file) for files in files_of.values() for file in files]
    is_valid = all(files_of.values()) and all(result["valid"] for result in results)
    for path, files in files_of.items():
        if not files:
            click.echo(f"there is no skill file in {shortened(path)}", err=True)
    lines: list[Line] = []
    for result in results:
        lines.append(((result["path"], "bold"), "  valid" if result["valid"] else ""))
        lines += [(f"    {reason}",) for reason in (*result["errors"], *result["remarks"])]
    return Output({"valid": is_valid, "files": results}, lines, 0 if is_valid else EXIT_ERROR)


def _files_of(path: Path) -> list[Path]:
    from refold.skills import files
    from refold.skills.sources import is_skill_name

    if path.is_file():
        return [path]
    return [path / seen.path for seen in files.walk(str(path), matches=is_skill_name).files]


def _validated(file: Path) -> dict[str, Any]:
    from refold.skills import files, parse_skill, validate_skill

    content = files.read(str(file))
    path = files.printable(str(file))
    errors = validate_skill(content, files.printable(file.resolve().parent.name))
    remarks = [str(remark) for remark in parse_skill(path, content).diagnostics if remark.reason not in errors]
    return {"path": path, "valid": not errors, "errors": errors, "remarks": remarks}


@_verb(
    "select",
    click.argument("query"),
    click.option("--top-k", type=click.IntRange(min=0), metavar="N", help="At most so many.  [default: as configured]"),
    click.option("--min-score", type=float, metavar="SCORE", help="Which score they need."),
    click.option("--phase", type=click.Choice(_PHASES), help="Only skills for a phase."),
    click.option("--ranking", default="words", metavar="NAME", help="words, seed, hybrid, or any other."),
    click.option("--tag", "include_tags", multiple=True, metavar="TAG", help="Only what has one of these; repeat."),
    click.option(
        "--without-tag", "exclude_tags", multiple=True, metavar="TAG", help="Nothing that has one of these; repeat."
    ),
    click.option("--force", "forced", multiple=True, metavar="NAME", help="Take this one in any case; repeat."),
    click.option("--inject", is_flag=True, help="Show the text for the prompt."),
    click.option("--explain", metavar="NAME", help="Say why this one is selected or not, and which words made it."),
)
def select(
    query: str,
    top_k: int | None,
    phase: str | None,
    forced: tuple[str, ...],
    min_score: float | None,
    ranking: str,
    include_tags: tuple[str, ...],
    exclude_tags: tuple[str, ...],
    explain: str | None,
    *,
    inject: bool,
    **places: Any,
) -> Output | Iterator[Output]:
    """Select skills for a query.

    Shows what would be put before a model for QUERY: what applies to the project first, then what answers best. Nothing
    is recorded. --explain tells of one skill its score, the one that it needs, and the words that made it.
    """
    from msgspec.structs import replace

    from refold.skills import SelectionPolicy, inject_skills
    from refold.skills.selection import with_settings

    given = SelectionPolicy(min_score=min_score, include_tags=include_tags, exclude_tags=exclude_tags, ranking=ranking)
    with _skills(places) as skills:
        policy = with_settings(given, skills.index())
        policy = policy if top_k is None else replace(policy, top_k=top_k)
        if explain is not None:
            verdict = skills.explain(explain, query, policy=policy, phase=phase)
            return Output({"verdict": verdict}, [((shortened(verdict.name), "bold"), f"  {as_shown(str(verdict))}")])
        matches = skills.select(query, policy=policy, phase=phase, forced=forced)
    if inject:  # The text as it is, with --json too.
        click.echo(as_shown(inject_skills(matches, policy)), nl=False)
        return iter(())
    rows = [
        {"score": match.score, "match_reason": match.match_reason, "query": match.query, "skill": match.skill}
        for match in matches
    ]
    lines: list[Line] = [
        ((f"{match.score:8.3f}  {match.match_reason:<13} ", "cyan"), (shortened(match.skill.name), "bold"))
        for match in matches
    ]
    return Output({"query": query, "matches": rows}, lines)


@_verb("search", click.argument("query"))
def search(query: str, **places: Any) -> Output:
    """Find skills by words, those that are switched off too, the best first."""
    with _skills(places) as skills:
        found = skills.search(query)
    lines = [
        _skill_line(" " if skill.enabled else "-", skill.name, f"{skill.source} {skill.priority}", skill.description)
        for skill in found
    ]
    return Output({"query": query, "skills": found}, lines)


@_verb("detect")
def detect(**places: Any) -> Output:
    """Show which skills apply to the project.

    Names the files and the patterns that gave each of them away.
    """
    with _skills(places) as skills:
        detected = skills.detect()
    lines: list[Line] = []
    for skill in detected:
        evidence = shortened(", ".join((*skill.matched_files, *skill.matched_patterns)))
        lines.append(((shortened(skill.name), "bold"), f"  {skill.source} {skill.priority}  {evidence}"))
    return Output({"detected": detected}, lines)


@_verb(
    "new",
    click.argument("name"),
    click.option("--description", required=True, metavar="TEXT", help="What it does, and when to use it."),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="To find it by; repeat."),
    click.option("--body", type=click.File("rb"), metavar="FILE", help="The instructions; - reads them from stdin."),
)
def new(name: str, description: str, tags: tuple[str, ...], body: Any, **places: Any) -> Output:
    """Write a new skill into .skills.

    Writes .skills/NAME/SKILL.md of the project, valid by the specification; nothing is replaced.
    """
    text = f"# {name}\n\n{description}\n" if body is None else _text_of(body)
    with _skills(places) as skills:
        made = skills.create(name, description, text, tags=tags)
    return _done(f"wrote {made.path}", name=made.name, path=made.path)


def _text_of(file: Any) -> str:
    try:
        text: str = file.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the body is not UTF-8 (byte {error.start}); convert it first") from error
    return text


@_verb(
    "edit",
    click.argument("name"),
    click.option("--description", metavar="TEXT", help="What it does, and when to use it."),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="To find it by, in the place of others; repeat."),
    click.option("--body", type=click.File("rb"), metavar="FILE", help="The instructions; - reads them from stdin."),
)
def edit(name: str, description: str | None, tags: tuple[str, ...], body: Any, **places: Any) -> Output:
    """Change a skill.

    Changes its file in .skills where the fields are, or what was learned; what is not given stays as it is. The store
    records the edit, without the text.
    """
    text = None if body is None else _text_of(body)
    with _skills(places, writes=bool(places["db"])) as skills:
        made = skills.edit(name, description=description, body=text, tags=tags or None)
    return _done(f"edited {made.path}", name=made.name, path=made.path)


@_verb("note", click.argument("name"), click.argument("text"))
def note(name: str, text: str, **places: Any) -> Output:
    """Keep a note on a skill.

    Models see TEXT before the text of the skill. It replaces the note before it; an empty one removes that.
    """
    with _skills(places, writes=True) as skills:
        skill = skills.find(name)
        changed = skills.library.note(skill.name, text)
    return _done(
        f"noted on {skill.name}" if text.strip() else f"{skill.name} has no note", name=skill.name, changed=changed
    )


@_verb(
    "toggle",
    click.argument("name"),
    click.option("--on/--off", "enabled", default=None, help="Which of the two.  [default: the other one]"),
)
def toggle(name: str, *, enabled: bool | None, **places: Any) -> Output:
    """Switch a skill on or off.

    What is switched off is listed, and selected only when it is forced.
    """
    with _skills(places, writes=True) as skills:
        skill = skills.get(name)
        is_on = not skill.enabled if enabled is None else enabled
        changed = skills.library.toggle(skill.name, enabled=is_on)
    return _done(f"{skill.name} is {'on' if is_on else 'off'}", name=skill.name, enabled=is_on, changed=changed)


@_verb("review", click.argument("name"), click.argument("status", type=click.Choice(_STATUSES)))
def review(name: str, status: str, **places: Any) -> Output:
    """Decide about a skill that was learned.

    Only those with the STATUS active are offered to a model.
    """
    with _skills(places, writes=True) as skills:
        learned = skills.library.review(name, status)
    return _done(f"{learned.name} is {learned.status}", name=learned.name, status=learned.status)


@_verb("delete", click.argument("name"))
def delete(name: str, **places: Any) -> Output:
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
    return _done(f"deleted {path}", name=name, path=path)


@_verb("overview")
def overview(**places: Any) -> Output:
    """Count the skills, by source and by state."""
    import msgspec

    with _skills(places) as skills:
        counts = skills.overview()
    lines: list[Line] = []
    for key, value in msgspec.to_builtins(counts).items():
        if key == "scanned_ns":
            continue
        named = cast("dict[str, int]", value).items() if isinstance(value, dict) else ()
        items = [f"{name} {count}" for name, count in named] if isinstance(value, dict) else value
        text = str(items) if isinstance(items, int) else ", ".join(items)
        lines.append(((f"{key.replace('_', ' ')}: ", "dim"), text))
    lines.append((("last scan: ", "dim"), time_text(counts.scanned_ns)))
    return Output(counts, lines)


@_verb(
    "export",
    click.argument("name"),
    click.option("--to", type=click.Path(), metavar="DIR", help="Below which directory.  [default: .skills]"),
)
def export(name: str, to: str | None, **places: Any) -> Output:
    """Write a skill as a valid SKILL.md.

    Also one that waits for its review; nothing is replaced.
    """
    with _skills(places) as skills:
        path = skills.export(name, to)
    return _done(f"wrote {path}", name=name, path=path)
