"""The reference has every public name, each verb begins with what it does, and those called often have examples."""

import doctest
import inspect
import re
from typing import Any

import pytest
import reference

import refold
from refold import agent, skills

NAMES = [
    name for page in reference.PAGES.values() for names in page.sections.values() for name in reference.names_of(names)
]
ELSEWHERE = {f"{home}.{name}" for home, names in refold._ELSEWHERE.items() for name in names.split()}
PUBLIC = {f"refold.{name}" for name in refold.__all__ if name != "__version__"} | ELSEWHERE
PUBLIC |= {f"{home.__name__}.{name}" for home in (agent, skills) for name in home.__all__}

OFTEN = {
    "refold.Memory": "at batch context conversation diff fork journal profile restore snapshot verify",
    "refold.Conversation": "append at fork messages replay restore search snapshot window",
    "refold.Project": "add list recall search update upsert",
    "refold.Profile": "items set",
    "refold.Journal": "append day",
    "refold.Board": "append_message get",
    "refold.memory.Files": "create",
    "refold.memory.Settings": "get set",
    "refold.memory.Scratchpad": "note set to_json",
    "refold.memory.SessionMemory": "findings note_finding",
    "refold.agent.AgentLoop": "run",
    "refold.agent.ToolRegistry": "execute register",
    "refold.agent.Hooks": "register",
    "refold.skills.Skills": "edit select",
    "refold.skills.SkillLibrary": "learn note",
}
"""The verbs that users call often, each of which has an example of its own or in that of its handle."""


def test_every_public_name_is_on_one_page() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert PUBLIC - set(NAMES) == set()


@pytest.mark.parametrize("name", reference.PAGES)
def test_every_link_of_a_table_of_contents_leads_to_one_heading(name: str) -> None:
    text = reference.page(name)
    anchors = [
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^##+ (.*)$", text, re.MULTILINE)
    ]
    links = re.findall(r"\]\(#([^)]+)\)", text)
    assert {link: anchors.count(link) for link in links if anchors.count(link) != 1} == {}


def verbs() -> list[tuple[str, Any]]:
    """Every public function, and every verb of a public class, by name."""
    values = [(name, reference.value_of(name)) for name in NAMES]
    functions = [(name, value) for name, value in values if inspect.isfunction(value)]
    members = [
        (f"{name}.{verb}", member)
        for name, kind in values
        if inspect.isclass(kind)
        for verb, member in reference.members_of(kind)
    ]
    return functions + [(name, member) for name, member in members if not isinstance(member, property)]


@pytest.mark.parametrize(("name", "verb"), verbs(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_verb_begins_with_what_it_does(name: str, verb: Any) -> None:
    first = (inspect.getdoc(verb) or "").partition("\n\n")[0]
    assert re.match(r"(?!(?:A|An|The|This|Whether|What)\b)[A-Z][a-z]*(?:[^s\W]|ss)\b", first), (name, first)
    assert first.endswith("."), (name, first)


@pytest.mark.parametrize(("name", "verb"), [(name, verb) for name, each in OFTEN.items() for verb in each.split()])
def test_a_verb_that_is_called_often_has_an_example(name: str, verb: str) -> None:
    kind = reference.value_of(name)
    texts = [inspect.getdoc(kind) or "", *(inspect.getdoc(member) or "" for _, member in reference.members_of(kind))]
    examples = [example.source for text in texts for example in doctest.DocTestParser().get_examples(text)]
    assert any(f".{verb}(" in example for example in examples)
