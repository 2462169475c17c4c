"""Injection: selected skills as text for a model, none of which can end its own part or begin another's. Pure."""

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

from refold import checks
from refold.tools.delimiting import inert, marked
from refold.tools.skills.selecting import SelectionPolicy, SkillMatch
from refold.tools.skills.skill import Skill, SkillSummary

_HEAD: Final = "## Framework-Specific Best Practices"
_LEAD: Final = "The following guidelines apply based on detected frameworks:"
_RULE: Final = re.compile(r"^[ \t]{0,3}(?:(?:-[ \t]*+){3,}+|(?:=[ \t]*+){3,}+)$")
_HEADING: Final = re.compile(r"^([ \t]{0,3})(#{1,3})(?=[ \t]|$)")
_SOURCE: Final = re.compile(r"^([ \t]{0,3})\*(?=Source:)")
_TAG: Final = re.compile(r"<(?=\s*(?:/\s*)?(?:skill|available_skills))", re.IGNORECASE)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def inject_skills(matches: Sequence[SkillMatch], policy: SelectionPolicy | None = None) -> str:
    """Return skills as a section of a prompt, each cut to so many lines and characters; nothing for none.

    A line that would end a skill, or begin another one, is written so that it is text: rules as ``* * *``, headings
    one to three levels lower.
    """
    if not matches:
        return ""
    bounds = SelectionPolicy() if policy is None else policy
    parts = [_section(match.skill, match.body, bounds) for match in matches]
    return "\n".join((_HEAD, "", _LEAD, "", *parts))


def _section(skill: SkillSummary, body: str, bounds: SelectionPolicy) -> str:
    source = f"{skill.source_name} ({skill.source})" if skill.source_name else skill.source
    about = f"*Source: {_line(source)} | Priority: {skill.priority}*"
    shown = truncated(_as_text(body), bounds.max_content_lines, bounds.max_chars)
    return f"### {_line(skill.name)}\n{about}\n\n{shown}\n\n---\n"


def _line(text: str) -> str:
    """Return a text on one line, as a title."""
    return " ".join(_CONTROLS.sub(" ", text).split())


def _as_text(body: str) -> str:
    """Return a body whose lines are neither rules nor headings of the section around it."""
    lines: list[str] = []
    for line in _CONTROLS.sub("", body).strip().splitlines():
        if _RULE.match(line):
            lines.append("* * *")
            continue
        lowered = _HEADING.sub(lambda found: f"{found[1]}###{found[2]}", line)
        lines.append(_SOURCE.sub(r"\1\\*", lowered))
    return "\n".join(lines)


def truncated(text: str, lines_max: int, chars_max: int) -> str:
    r"""Return a text cut to so many lines and characters, with a note that says how much is missing.

    >>> truncated("a\nb\nc", 2, 100)
    'a\nb\n\n*... (truncated, 1 more lines)*'
    """
    lines = text.splitlines()
    ends = accumulate(len(line) + 1 for line in lines[:lines_max])
    kept = [line for line, end in zip(lines, ends, strict=False) if end - 1 <= chars_max]
    if len(kept) == len(lines):
        return text
    if not kept and lines_max and chars_max:
        kept = [lines[0][:chars_max]]
    return "\n".join((*kept, "", f"*... (truncated, {len(lines) - len(kept)} more lines)*")).lstrip("\n")


def inject_message(text: str, matches: Sequence[SkillMatch], policy: SelectionPolicy | None = None) -> str:
    """Return a user's message with skills before it, each between ``[skill:NAME]`` and ``[/skill]``.

    Each body is cut to ``max_chars``; a bracket in it that would open or close a skill becomes a parenthesis.
    """
    bounds = SelectionPolicy() if policy is None else policy
    parts = [f"{marked(match.skill.name, inert(match.body)[: bounds.max_chars])}\n\n" for match in matches]
    return "".join((*parts, checks.text(text, "text")))


def inject_into_messages(
    messages: Sequence[dict[str, Any]], matches: Sequence[SkillMatch], policy: SelectionPolicy | None = None
) -> list[dict[str, Any]]:
    """Return messages, as providers take them, with skills before the text of the last one of the user.

    Nothing of what was given is changed; without skills, or without a user's text, the messages are returned as a list.
    """
    changed = list(messages)
    for place in range(len(changed) - 1, -1, -1):
        if changed[place].get("role") == "user" and matches:
            changed[place] = changed[place] | {"content": _content(changed[place].get("content"), matches, policy)}
            break
    return changed


def _content(content: Any, matches: Sequence[SkillMatch], policy: SelectionPolicy | None) -> Any:
    if isinstance(content, str):
        return inject_message(content, matches, policy)
    if not isinstance(content, list):
        return content
    parts: list[Any] = list(content)  # pyright: ignore[reportUnknownArgumentType] - what others wrote may be anything
    for place, part in enumerate(parts):
        if isinstance(part, dict) and part.get("type") == "text":  # pyright: ignore[reportUnknownMemberType]
            given: dict[str, Any] = part  # pyright: ignore[reportUnknownVariableType]
            parts[place] = given | {"text": inject_message(str(given.get("text", "")), matches, policy)}
            break
    return parts


# For models that choose skills themselves.


def catalog(skills: Iterable[SkillSummary | Skill]) -> str:
    """Return the skills that a model may call for, with names, descriptions and places, as XML; nothing for none."""
    entries = [
        f"<skill><name>{_xml(skill.name)}</name><description>{_xml(skill.description)}</description>"
        f"<location>{_xml(skill.path)}</location></skill>"
        for skill in skills
        if skill.model_invocable and skill.enabled
    ]
    return "\n".join(("<available_skills>", *entries, "</available_skills>")) if entries else ""


def activation(skill: Skill, resources: Sequence[str] = ()) -> str:
    """Return a skill that a model called for: its body and the names of the files beside it, wrapped."""
    body = _TAG.sub("&lt;", _CONTROLS.sub("", skill.body).strip())
    files = "".join(f"<file>{_xml(name)}</file>\n" for name in resources)
    listed = f"<skill_resources>\n{files}</skill_resources>\n" if files else ""
    return f"<skill_content name={quoteattr(_line(skill.name))}>\n{body}\n{listed}</skill_content>"


def _xml(text: str) -> str:
    return escape(_line(text))
