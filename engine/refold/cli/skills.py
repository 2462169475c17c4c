"""Verbs for skills: list, show, validate, select, and the verbs that change them."""

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from refold.cli import EXIT_ERROR
from refold.cli.output import Line, shorten, stdout_text, time_text
from refold.cli.root import Function, Option, Output, cli, open_for_reading, open_for_writing, verb
from refold.errors import InvalidInput, NotFound
from refold.text import pluralize

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

    A skill is a SKILL.md file of the project, the user or another source, or one that a memory has learned.
    """


# The options that say where to look for skills.
_PLACES = (
    click.option(
        "--project", type=click.Path(exists=True, file_okay=False), default=".", help="The directory of the project."
    ),
    click.option("--home", type=click.Path(), help="Include the skills of this home directory.  [default: the user's]"),
    click.option("--no-home", is_flag=True, help="Leave out the user's skills."),
    click.option("--builtin", type=click.Path(), multiple=True, help="A directory of built-in skills; repeatable."),
    click.option(
        "--db",
        envvar="REFOLD_DB",
        show_envvar=True,
        metavar="PATH",
        help="The store that keeps learned skills, switches and notes.",
    ),
    click.option(
        "--library", default="default", show_default=True, metavar="NAME", help="The skill library in the store."
    ),
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
        raise click.UsageError("the store keeps switches, notes and reviews; name one with --db PATH or REFOLD_DB")
    create = f"create one with Memory({db!r}) in Python"
    opened: AbstractContextManager[Memory]
    if not db:
        opened = Memory()
    elif writes:
        opened = open_for_writing(db, advice=create)
    else:
        advice = f"give no --db and no REFOLD_DB to use the skill files alone, or {create}"
        opened = open_for_reading(db, advice=advice)
    with opened as memory:
        yield skills_of(memory, roots, library=places["library"])


def _text_output(text: str, **document: Any) -> Output:
    return Output(document, [(shorten(text, _LINE_CHARS),)])


@_verb(
    "list",
    click.option("--source", type=click.Choice(_SOURCES), help="List only skills of this source."),
    click.option("--enabled", "only_enabled", is_flag=True, help="List only skills that are switched on."),
    click.option(
        "--learned", type=click.Choice((*_STATUSES, "any")), help="List the learned skills with this status instead."
    ),
)
def list_(source: str | None, learned: str | None, *, only_enabled: bool, **places: Any) -> Output:
    """List skills, highest priority first.

    Marks skills that apply to the project with * and skills that are switched off with -. With --learned, lists the
    skills in the store, such as those that wait for a review.
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
                click.echo(shorten(str(problem), _LINE_CHARS), err=True)
    lines: list[Line] = []
    for skill in summaries:
        mark = "-" if not skill.enabled else "*" if skill.detected else " "
        lines.append(_skill_line(mark, skill.name, f"{skill.source} {skill.priority}", skill.description))
    return Output({"skills": summaries}, lines)


def _skill_line(mark: str, name: str, about: str, description: str) -> Line:
    return f"{mark} ", (shorten(name), "bold"), (f"  {about}  ", "dim"), shorten(description, _DESCRIPTION_CHARS)


@_verb("show", click.argument("name"))
def show(name: str, **places: Any) -> Output:
    """Show a skill in full.

    Shows the text of its file, or what was learned, even before its review; how often it was used; the other files in
    its directory; and its hooks, which are never run.
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
        text = f"{pluralize(usage.count, 'time')}, last at {last}, success rate {usage.success_rate:.2f}"
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
        "hooks (never run)": "; ".join(_hook_texts(skill)),
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
    """Check files against the Agent Skills specification.

    Checks each of PATHS, a file or a directory with everything below it; by default, the skills of the project in the
    current directory. Exits with 1 if a file is invalid or a path contains no skill file.
    """
    from refold.skills.sources import SKILL_DIRECTORIES

    own = [directory for directory in SKILL_DIRECTORIES if Path(directory).is_dir()]
    files_of = {path: _files_of(Path(path)) for path in paths or own}
    results = [_validate_file(file) for files in files_of.values() for file in files]
    is_valid = all(files_of.values()) and all(result["valid"] for result in results)
    for path, files in files_of.items():
        if not files:
            click.echo(f"there is no skill file in {shorten(path)}", err=True)
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


def _validate_file(file: Path) -> dict[str, Any]:
    from refold.skills import files, parse_skill, validate_skill

    content = files.read(str(file))
    path = files.printable(str(file))
    errors = validate_skill(content, files.printable(file.resolve().parent.name))
    remarks = [str(remark) for remark in parse_skill(path, content).diagnostics if remark.reason not in errors]
    return {"path": path, "valid": not errors, "errors": errors, "remarks": remarks}


@_verb(
    "select",
    click.argument("query"),
    click.option(
        "--top-k", type=click.IntRange(min=0), metavar="N", help="Select at most N.  [default: as configured]"
    ),
    click.option(
        "--min-score",
        type=float,
        metavar="SCORE",
        help="The score that a skill needs; with words, only the best one needs all of it.",
    ),
    click.option("--phase", type=click.Choice(_PHASES), help="Select only skills for this phase."),
    click.option("--ranking", default="words", metavar="NAME", help="The ranking: words, seed, hybrid, or any other."),
    click.option(
        "--tag", "include_tags", multiple=True, metavar="TAG", help="Select only skills with this tag; repeatable."
    ),
    click.option(
        "--without-tag", "exclude_tags", multiple=True, metavar="TAG", help="Exclude skills with this tag; repeatable."
    ),
    click.option("--force", "forced", multiple=True, metavar="NAME", help="Select this skill in any case; repeatable."),
    click.option("--inject", is_flag=True, help="Print the text for the prompt."),
    click.option("--explain", metavar="NAME", help="Explain why this skill is or is not selected."),
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
    """Select skills for a query, as for a model.

    Shows the skills that a model would see for QUERY: those that apply to the project first, then the best matches.
    Nothing is recorded. --explain shows the score of one skill, the score that it needs, and the words that made it.
    """
    from msgspec.structs import replace

    from refold.skills import SelectionPolicy, inject_skills
    from refold.skills.selection import with_settings

    base = SelectionPolicy(min_score=min_score, include_tags=include_tags, exclude_tags=exclude_tags, ranking=ranking)
    with _skills(places) as skills:
        policy = with_settings(base, skills.index())
        policy = policy if top_k is None else replace(policy, top_k=top_k)
        if explain is not None:
            verdict = skills.explain(explain, query, policy=policy, phase=phase)
            return Output({"verdict": verdict}, [((shorten(verdict.name), "bold"), f"  {stdout_text(str(verdict))}")])
        matches = skills.select(query, policy=policy, phase=phase, forced=forced)
    if inject:  # The text as it is, with --json too.
        click.echo(stdout_text(inject_skills(matches, policy)), nl=False)
        return iter(())
    rows = [
        {"score": match.score, "match_reason": match.match_reason, "query": match.query, "skill": match.skill}
        for match in matches
    ]
    lines: list[Line] = [
        ((f"{match.score:8.3f}  {match.match_reason:<13} ", "cyan"), (shorten(match.skill.name), "bold"))
        for match in matches
    ]
    return Output({"query": query, "matches": rows}, lines)


@_verb("search", click.argument("query"))
def search(query: str, **places: Any) -> Output:
    """Find skills by words, best match first.

    Includes skills that are switched off.
    """
    with _skills(places) as skills:
        results = skills.search(query)
    lines = [
        _skill_line(" " if skill.enabled else "-", skill.name, f"{skill.source} {skill.priority}", skill.description)
        for skill in results
    ]
    return Output({"query": query, "skills": results}, lines)


@_verb("detect")
def detect(**places: Any) -> Output:
    """Show which skills apply to the project, and why.

    Lists the files and patterns that each skill was detected by.
    """
    with _skills(places) as skills:
        detected = skills.detect()
    lines: list[Line] = []
    for skill in detected:
        evidence = shorten(", ".join((*skill.matched_files, *skill.matched_patterns)))
        lines.append(((shorten(skill.name), "bold"), f"  {skill.source} {skill.priority}  {evidence}"))
    return Output({"detected": detected}, lines)


@_verb(
    "new",
    click.argument("name"),
    click.option("--description", required=True, metavar="TEXT", help="What it does, and when to use it."),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag to find it by; repeatable."),
    click.option("--body", type=click.File("rb"), metavar="FILE", help="The instructions; - reads them from stdin."),
)
def new(name: str, description: str, tags: tuple[str, ...], body: Any, **places: Any) -> Output:
    """Create a skill in .skills.

    Writes .skills/NAME/SKILL.md in the project, valid by the specification. Never replaces an existing file.
    """
    text = f"# {name}\n\n{description}\n" if body is None else _text_of(body)
    with _skills(places) as skills:
        skill = skills.create(name, description, text, tags=tags)
    return _text_output(f"wrote {skill.path}", name=skill.name, path=skill.path)


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
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag to replace the old ones; repeatable."),
    click.option("--body", type=click.File("rb"), metavar="FILE", help="The instructions; - reads them from stdin."),
)
def edit(name: str, description: str | None, tags: tuple[str, ...], body: Any, **places: Any) -> Output:
    """Change the fields of a skill.

    Changes its file in .skills, or the learned skill. Fields that are not given stay as they are. The store records the
    edit of a file without its text.
    """
    text = None if body is None else _text_of(body)
    with _skills(places, writes=bool(places["db"])) as skills:
        skill = skills.edit(name, description=description, body=text, tags=tags or None)
    return _text_output(f"edited {skill.path}", name=skill.name, path=skill.path)


@_verb("note", click.argument("name"), click.argument("text"))
def note(name: str, text: str, **places: Any) -> Output:
    """Attach a note to a skill.

    Models see TEXT before the text of the skill. It replaces the previous note; an empty TEXT removes it.
    """
    with _skills(places, writes=True) as skills:
        skill = skills.find(name)
        changed = skills.library.note(skill.name, text)
    return _text_output(
        f"noted on {skill.name}" if text.strip() else f"{skill.name} has no note", name=skill.name, changed=changed
    )


@_verb(
    "toggle",
    click.argument("name"),
    click.option("--on/--off", "enabled", default=None, help="Switch it on or off.  [default: the opposite of now]"),
)
def toggle(name: str, *, enabled: bool | None, **places: Any) -> Output:
    """Switch a skill on or off.

    A skill that is switched off is still listed, but selected only with --force.
    """
    with _skills(places, writes=True) as skills:
        skill = skills.get(name)
        is_on = not skill.enabled if enabled is None else enabled
        changed = skills.library.toggle(skill.name, enabled=is_on)
    return _text_output(f"{skill.name} is {'on' if is_on else 'off'}", name=skill.name, enabled=is_on, changed=changed)


@_verb("review", click.argument("name"), click.argument("status", type=click.Choice(_STATUSES)))
def review(name: str, status: str, **places: Any) -> Output:
    """Set the status of a learned skill.

    Only active skills are offered to models.
    """
    with _skills(places, writes=True) as skills:
        learned = skills.library.review(name, status)
    return _text_output(f"{learned.name} is {learned.status}", name=learned.name, status=learned.status)


@_verb("delete", click.argument("name"))
def delete(name: str, **places: Any) -> Output:
    """Delete a skill.

    Deletes its file in .skills, or the learned skill, which the log keeps. Skills from elsewhere cannot be deleted;
    switch them off instead, with `refold skills toggle`.
    """
    with _skills(places, writes=bool(places["db"])) as skills:
        try:
            path = skills.remove(name)
        except NotFound:
            path = f"library/{skills.library.get(name).id}"
            skills.library.delete(name)
    return _text_output(f"deleted {path}", name=name, path=path)


@_verb("overview")
def overview(**places: Any) -> Output:
    """Count the skills by source and state.

    Also lists the problems of their files.
    """
    import msgspec

    with _skills(places) as skills:
        counts, problems = skills.overview(), skills.diagnostics()
    lines: list[Line] = []
    for key, value in msgspec.to_builtins(counts).items():
        if key == "scanned_ns":
            continue
        named = cast("dict[str, int]", value).items() if isinstance(value, dict) else ()
        items = [f"{name} {count}" for name, count in named] if isinstance(value, dict) else value
        text = str(items) if isinstance(items, int) else ", ".join(items)
        lines.append(((f"{key.replace('_', ' ')}: ", "dim"), text))
        if key == "diagnostics":
            lines += [(f"    {shorten(str(problem), _LINE_CHARS)}",) for problem in problems]
    lines.append((("last scan: ", "dim"), time_text(counts.scanned_ns)))
    return Output({**msgspec.structs.asdict(counts), "problems": problems}, lines)


@_verb(
    "export",
    click.argument("name"),
    click.option("--to", type=click.Path(), metavar="DIR", help="Write it below this directory.  [default: .skills]"),
)
def export(name: str, to: str | None, **places: Any) -> Output:
    """Write a skill as a valid SKILL.md file.

    Also exports a skill that waits for its review. Never replaces an existing file.
    """
    with _skills(places) as skills:
        path = skills.export(name, to)
    return _text_output(f"wrote {path}", name=name, path=path)
