"""What a person reads of a skill on the command line."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.tools.skills import Skill


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
