"""The pages without a script: what they show, in which words, what their forms change, what they refuse."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

import pytest
from starlette.testclient import TestClient

from refold import Memory, StoreBusy
from refold.skills import SkillRoots
from refold.web import words
from refold.web.pages import PATHS
from tests.web.site import TOKEN, client_of, filled, site_of

EVIL = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}"
PROJECT = quote("acme/api", safe="")
PAGES_COUNT = len(PATHS) + 4


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory() as made:
        yield filled(made)


@pytest.fixture
def client(memory: Memory) -> TestClient:
    return client_of(memory)


class Page(HTMLParser):
    """What a browser would make of a page: its elements with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def pages_of(memory: Memory, session: str = "trip", project: str = "acme/api") -> list[str]:
    """Return an address of each page."""
    context = next(stamp.seq for event, stamp in memory.events() if type(event).__name__ == "ContextShown")
    one, name = quote(session, safe=""), quote(project, safe="")
    key = memory.conversation(session).scratchpad.keys()[0]
    filled_in = {
        "/sessions/{session}": f"/sessions/{one}?at={memory.head // 2}",
        "/sessions/{session}/moment": f"/sessions/{one}/moment?at=12",
        "/sessions/{session}/diff": f"/sessions/{one}/diff?a=3&b={memory.head}",
        "/sessions/{session}/what-if": f"/sessions/{one}/what-if?window_tokens=40",
        "/sessions/{session}/what-if/sides": f"/sessions/{one}/what-if/sides?window_tokens=40&eviction=least-recalled",
        "/contexts/{seq}": f"/contexts/{context}",
        "/why": f"/why?x=3&session={one}&missing_from=sentence",
        "/blame": f"/blame?key={quote(key, safe='')}&session={one}",
        "/search": f"/search?q=longer+sentence&project={name}&in=messages",
        "/projects/{project}": f"/projects/{name}",
        "/projects/{project}/panel": f"/projects/{name}/panel",
        "/projects/{project}/skill-file": f"/projects/{name}/skill-file?skill={memory.skills.library.list()[0].name}",
        "/board": f"/board?session_id={one}",
        "/board/json": f"/board/json?session_id={one}",
        "/store": "/store?verify=1",
    }
    extra = [f"/projects/{name}?tab=skills", f"/search?q=about&project={name}", f"/sessions/{one}", "/sessions/none"]
    return [*(filled_in.get(path, path) for path in PATHS), *extra]


def is_part(path: str) -> bool:
    """Whether an address is that of a part of a page, and of no page of its own."""
    return any(name in path for name in ("/moment", "/sides", "/json", "/skill-file"))


def shown(client: TestClient, path: str, **options: Any) -> Page:
    answer = client.get(path, **options)
    assert answer.status_code in {200, 404}, answer.text
    return Page(answer.text)


@pytest.mark.parametrize("language", words.LANGUAGES)
@pytest.mark.parametrize("place", range(PAGES_COUNT))
def test_every_page_is_whole_in_every_language(client: TestClient, memory: Memory, place: int, language: str) -> None:
    path = pages_of(memory)[place]
    page = shown(client, path, headers={"accept-language": language})
    assert not [tag for tag, attributes in page.elements if any(name.startswith("on") for name in attributes)]
    assert not [tag for tag, attributes in page.elements if "style" in attributes or tag == "style"]
    assert all(script.get("src", "").startswith("/static/") for script in page.all("script"))  # type: ignore[union-attr]
    if is_part(path):
        return
    assert page.all("html")[0]["lang"] == language
    assert [len(page.all(tag)) for tag in ("h1", "main")] == [1, 1]
    assert client.get(path).text.partition("</head>")[0].count("<title>") == 1
    assert words.word("sessions", language) in page.text
    labelled = len(re.findall("<label", client.get(path).text))
    fields = [each for tag in ("input", "select", "textarea") for each in page.all(tag)]
    named = [each for each in fields if each.get("type") != "hidden" and "aria-label" not in each]
    assert labelled >= len(named)
    for form in page.all("form"):
        assert form["action"], "it goes somewhere"
    posts = sum(form.get("method") == "post" for form in page.all("form"))
    assert posts == sum(each.get("name") == "csrf" for each in page.all("input"))


def test_there_are_so_many_pages(memory: Memory) -> None:
    assert len(pages_of(memory)) == PAGES_COUNT


@pytest.mark.parametrize("place", range(PAGES_COUNT))
def test_no_text_of_a_store_is_a_page(place: int) -> None:
    with Memory() as memory:
        filled(memory, EVIL)
        chat = memory.conversation(EVIL, project=EVIL)
        chat.append("user", EVIL, name="evil", tool_calls=None)
        chat.scratchpad.set(EVIL, EVIL)
        chat.scratchpad.note(EVIL)
        memory.project(EVIL).add(EVIL, keywords=[EVIL], source=EVIL)
        memory.board(session=EVIL).set_working_history(EVIL)
        memory.board(project=EVIL, node=EVIL).set_working_history(EVIL)
        client = client_of(memory)
        for session, project in (("trip", "acme/api"), (EVIL, EVIL)):
            path = pages_of(memory, session, project)[place]
            answer = client.get(path)
            assert answer.status_code in {200, 404}, (path, answer.text)
            if answer.headers["content-type"].startswith("text/html"):
                page = Page(answer.text)
                assert not page.all("img")
                assert all("src" in script for script in page.all("script"))
                assert not [
                    tag for tag, attributes in page.elements if any(name.startswith("on") for name in attributes)
                ]
                assert "49" not in re.findall(r"\{\{7\*7\}\}|onerror=alert\(2\)>\"'&49", page.text)
            else:
                assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_fails_is_shown_without_being_obeyed(client: TestClient) -> None:
    for path in (f"/sessions/{quote(EVIL, safe='')}", f"/?at={quote(EVIL)}", f"/search?q=a&ranking={quote(EVIL)}"):
        page = shown_any(client, path)
        assert not page.all("img")
        assert len(page.all("h1")) == 1


def shown_any(client: TestClient, path: str) -> Page:
    answer = client.get(path)
    assert 400 <= answer.status_code < 500
    return Page(answer.text)


# A session through time.


def test_what_left_is_struck_through_and_what_entered_is_marked(client: TestClient, memory: Memory) -> None:
    step = next(step for step in memory.conversation("trip").replay() if step.evicted)
    html = client.get(f"/sessions/trip?at={step.stamp.seq}").text
    for message in step.evicted:
        assert f'<del class="text">{message.content}</del>' in html
    assert f'class="message entered" id="m{step.stamp.seq}"' in html
    assert f"{step.after.token_count()}<small> / 90" in html


def test_a_session_is_walked_by_links_alone(client: TestClient, memory: Memory) -> None:
    seqs = [stamp.seq for _, stamp in memory.conversation("trip").events()]
    at, walked = seqs[0], [seqs[0]]
    for _ in range(len(seqs) - 1):
        page = shown(client, f"/sessions/trip?at={at}")
        following = next(link["href"] for link in page.all("a") if link.get("rel") == "next")
        at = int(str(following).partition("=")[2])
        walked.append(at)
    assert walked == seqs
    page = shown(client, f"/sessions/trip?at={at}")
    assert next(link["href"] for link in page.all("a") if link.get("rel") == "prev") == f"?at={at - 1}"
    assert "Before the first event." in shown(client, f"/sessions/trip?at={seqs[0] - 1}").text


def test_a_window_is_cut_until_all_of_it_is_wanted(memory: Memory, client: TestClient) -> None:
    chat = memory.conversation("long", window_tokens=100_000)
    with memory.batch():
        for number in range(100):
            chat.append("user", f"message {number}", tokens=1)
    assert "Show 40 older messages" in shown(client, "/sessions/long").text
    assert len(re.findall('<li class="message', client.get("/sessions/long?all=1").text)) == 100


def test_the_fragment_of_a_moment_is_that_of_the_page(client: TestClient) -> None:
    whole, part = client.get("/sessions/trip?at=9").text, client.get("/sessions/trip/moment?at=9").text
    assert part.strip() in whole
    assert "<html" not in part


def test_another_budget_is_tried_beside_what_was_recorded(client: TestClient, memory: Memory) -> None:
    head, at = memory.head, next(step.stamp.seq for step in memory.conversation("trip").replay() if step.evicted)
    html = client.get(f"/sessions/trip/what-if?at={at}&window_tokens=1000").text
    whole = memory.conversation("trip").history(before=at + 1)
    assert html.count('class="message entered"') == len(whole) - len(memory.conversation("trip").at(at).window())
    assert 'class="message left"' in client.get(f"/sessions/trip/what-if?at={at}&window_tokens=40").text
    assert memory.head == head
    assert client.get("/sessions/trip/what-if?window_tokens=x").status_code == 400
    assert client.get("/sessions/trip/what-if?window_tokens=0").status_code == 400
    assert client.get("/sessions/trip/what-if?eviction=best").status_code == 400
    assert client.get("/sessions/none/what-if").status_code == 404


@pytest.mark.parametrize(("budget", "eviction"), [(40, None), (70, "least-recalled"), (1_000, "fifo")])
def test_the_second_track_has_the_differences_of_every_window(
    client: TestClient, memory: Memory, budget: int, eviction: str | None
) -> None:
    chat = memory.conversation("trip")
    chat.restore(chat.at(14).snapshot())
    chat.append("user", "another way from there, which is a long one", tokens=30)
    given = {"window_tokens": budget} | ({} if eviction is None else {"eviction": eviction})
    columns = client.get("/api/sessions/trip/what-if", params=given).json()["columns"]
    scenario = memory.what_if(window_tokens=budget, eviction=eviction)
    assert [each["seq"] for each in columns] == [stamp.seq for _, stamp in chat.events()]
    for each in columns:
        sides = [frozen.at(each["seq"]).conversation("trip") for frozen in (memory, scenario.memory)]
        own, other = ({message.seq for message in side.window()} for side in sides)
        assert [each["tokens"], each["other_tokens"]] == [side.token_count() for side in sides]
        assert (each["missing"], each["added"]) == (len(own - other), len(other - own))
    page = shown(client, f"/sessions/trip/what-if?{urlencode(given)}")
    kinds = {name: sum(rect.get("class") == name for rect in page.all("rect")) for name in ("missing", "added")}
    assert kinds == {name: sum(bool(each[name]) for each in columns) for name in ("missing", "added")}


def test_a_long_session_has_as_many_places_as_fit(client: TestClient, memory: Memory) -> None:
    chat = memory.conversation("long", window_tokens=100)
    with memory.batch():
        for number in range(1_000):
            chat.append("user", f"message {number}", tokens=10)
    columns = client.get("/api/sessions/long/what-if?window_tokens=50").json()["columns"]
    assert 150 < len(columns) <= 181
    assert columns[-1] == {"seq": memory.head, "tokens": 100, "other_tokens": 50, "missing": 5, "added": 0}


def test_what_was_needed_after_it_had_left_is_listed(client: TestClient, memory: Memory) -> None:
    chat = memory.conversation("needy", window_tokens=1_000)
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    chat.append("assistant", None, tool_calls=[call], tokens=20)
    chat.append("tool", "seen", tool_call_id="1", tokens=20)
    for _ in range(5):
        chat.append("user", "something else", tokens=20)
    again = chat.append("assistant", None, tool_calls=[call | {"id": "2"}], tokens=20)
    assert client.get("/api/sessions/needy/what-if?window_tokens=60").json()["regret"] == [
        {"conversation": "needy", "seq": again.seq - 7, "needed_seq": again.seq, "reason": "called again"}
    ]
    text = shown(client, "/sessions/needy/what-if?window_tokens=60").text
    assert "the same tool was called again with the same arguments" in text
    assert "Nothing was needed that had left." in shown(client, "/sessions/needy/what-if?window_tokens=1000").text


def test_branches_are_drawn_on_the_track_and_listed(client: TestClient, memory: Memory) -> None:
    chat = memory.conversation("trip")
    chat.restore(chat.at(14).snapshot())
    html = client.get("/sessions/trip").text
    text = Page(html).text
    back = next(stamp.seq for event, stamp in chat.events() if type(event).__name__ == "Restored")
    assert "↳ trip-2, at 10" in text
    assert f"↩ at {back} back to 14" in text
    assert html.count('class="restored"') == 1
    assert "↰ from trip at 10" in shown(client, "/sessions/trip-2").text
    chat.fork("trip-3", at=12)
    assert "↳ trip-3, at 12" in shown(client, "/sessions/trip").text
    found = client.get("/api/sessions/trip/branches").json()
    assert [(each["session"], each["base_seq"], each["is_fork"]) for each in found["branches"]] == [
        ("trip-2", 10, True),
        ("trip", 14, False),
        ("trip-3", 12, True),
    ]
    assert client.get("/api/sessions/none/branches").status_code == 404


def test_a_fork_is_made_where_one_looks(client: TestClient, memory: Memory) -> None:
    given = {"csrf": TOKEN, "at": "9", "id": "from-9"}
    answer = client.post("/sessions/trip/fork", data=given, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/sessions/from-9")
    assert memory.conversation("from-9").window() == memory.conversation("trip").at(9).window()


def test_the_line_of_what_is_active(client: TestClient, memory: Memory) -> None:
    chat = memory.conversation("trip")
    memory.show(memory.context(chat, query="harbour?", skills=[("harbour-skill", "Body.", 2.0)]))
    text = " ".join(shown(client, "/sessions/trip").text.split())
    assert re.search(r"Active: harbour-skill \| [1-9]\d* memories", text)


def test_a_session_whose_context_was_erased_is_shown(client: TestClient, memory: Memory) -> None:
    chat = memory.conversation("trip")
    memory.show(memory.context(chat, query="harbour?", skills=[("harbour-skill", "Body.", 2.0)]))
    assert "✦" in shown(client, "/sessions/trip").text
    contexts = [stamp.seq for event, stamp in chat.events() if type(event).__name__ == "ContextShown"]
    memory.erase(contexts)
    page = client.get("/sessions/trip")
    assert page.status_code == 200, page.text
    assert "✦" not in page.text
    chat.erase(forks="erase")
    for session in (name for name in memory.conversations() if name.startswith("erased")):
        paths = (f"/sessions/{session}", f"/sessions/{session}/moment", f"/api/sessions/{session}")
        assert [client.get(path).status_code for path in paths] == [200, 200, 200]


def test_a_session_links_to_nothing_from_before_it_began(client: TestClient, memory: Memory) -> None:
    began = next(memory.conversation("trip-2").events()).stamp.seq
    for at in (began - 1, began):
        page = shown(client, f"/sessions/trip-2?at={at}")
        links = [str(link["href"]) for link in page.all("a") if str(link["href"]).startswith("/api/sessions/")]
        assert links == [f"/api/sessions/trip-2?at={at}"] * (at == began)
        assert all(client.get(link).status_code == 200 for link in links)
        assert (f"refold show trip-2 --at {at}" in page.text) == (at == began)
        forks = [str(form["action"]) for form in page.all("form") if str(form["action"]).endswith("/fork")]
        assert forks == ["/sessions/trip-2/fork"] * (at == began)


# Questions.


def test_why_is_a_link_at_every_message_and_value(client: TestClient, memory: Memory) -> None:
    chat = memory.conversation("trip")
    at = next(step for step in chat.replay() if step.evicted).stamp.seq
    asked = {str(link["href"]) for link in shown(client, f"/sessions/trip?at={at}").all("a") if "data-ask" in link}
    for message in chat.at(at).window():
        assert f"/why?x={message.seq}&session=trip&at={at}" in asked
    for key in chat.at(at).scratchpad.keys():  # noqa: SIM118 - a scratchpad is no dict
        assert f"/blame?{urlencode({'key': key, 'of': 'scratchpad', 'session': 'trip', 'at': at})}" in asked
    for path in asked:
        assert client.get(path).status_code == 200, path
    now = {str(link["href"]) for link in shown(client, "/sessions/trip").all("a") if "data-ask" in link}
    note = next(stamp.seq for event, stamp in chat.events() if type(event).__name__ == "NoteAdded")
    assert any(path.startswith(f"/why?x={note}&") for path in now)
    assert any("of=state" in path for path in now)
    assert any("of=board" in path for path in now)
    assert all(client.get(path).status_code == 200 for path in now)


def test_the_chain_of_a_message_is_sentences_with_links(client: TestClient, memory: Memory) -> None:
    chat = memory.conversation("trip")
    step = next(step for step in chat.replay() if step.evicted)
    gone = step.evicted[0]
    page = shown(client, f"/why?x={gone.seq}&session=trip")
    why = memory.why(gone)
    assert "It is not there." in page.text
    assert [step.relation for step in why.steps] == ["came", "left", "shown"], "a question that has no answer stays"
    for each in why.steps:
        assert each.text in page.text
        assert {"class": "number", "href": f"/sessions/trip?at={each.seq}"} in page.all("a")
    before = shown(client, f"/why?x={gone.seq}&session=trip&at={step.stamp.seq - 1}")
    assert "It is there." in before.text
    ranked = shown(client, f"/why?x={gone.seq}&session=trip&missing_from=harbour").text
    assert "not shown" in ranked
    assert "refold why 3 trip --missing-from harbour" in ranked
    assert client.get("/why?x=3&session=none").status_code == 404
    assert client.get("/why?x=1000000000000000").status_code == 404
    assert "0 erased events" in shown(client, "/why?x=never+said").text
    assert [row["href"] for row in shown(client, f"/why?x={memory.project('acme/api').list()[0].id}").all("a")].count(
        "/sessions/trip?at=28"
    ) == 1


def test_words_in_several_places_are_answered_for_place_by_place(client: TestClient, memory: Memory) -> None:
    chat = memory.conversation("c", window_tokens=20)
    chat.append("user", "The port is 6543.", tokens=15)
    chat.append("user", "another thing", tokens=15)
    memory.project("p").add("The port is 6543, Alice says.")
    page = shown(client, "/why?x=port+is+6543").text
    answers = re.findall(r"It is (?:not )?there\.", page)
    assert answers == ["It is there.", "It is there.", "It is not there."], "of all, of the memory, of the message"


def test_blame_lists_every_value_with_its_turn(client: TestClient, memory: Memory) -> None:
    chat = memory.conversation("trip")
    asked = chat.append("user", "Which key?")
    with memory.acting("agent", cause=asked.seq):
        chat.scratchpad.set("key 0 harbour", "another")
        chat.scratchpad.delete("key 0 harbour")
    page = shown(client, "/blame?key=key+0+harbour&session=trip")
    assert page.text.index("harbour 0") < page.text.index("another") < page.text.index("left")
    assert {"href": f"/sessions/trip?at={asked.seq}"} in page.all("a")
    assert "Nothing ever set it." in shown(client, "/blame?key=none&session=trip").text
    assert client.get("/blame?key=x&session=none").status_code == 404
    assert client.get("/blame").status_code == 400
    assert client.get("/blame?key=x&of=scratchpad").status_code == 400
    memory.board(project="P", node="N").set_working_history("of the node")
    assert "of the node" in shown(client, "/blame?key=working_history&of=board&project_id=P&node_id=N").text


# Languages.


@pytest.mark.parametrize(
    ("wanted", "language"),
    [
        ("", "en"),
        ("fr", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("fr, ja;q=0.5, en;q=0.4", "ja"),
        ("en;q=0.1,zh;q=0.2", "zh"),
        ("zh;q=x,ja", "ja"),
        ("*", "en"),
        ("," * 10_000, "en"),
    ],
)
def test_a_browser_chooses_a_language(client: TestClient, wanted: str, language: str) -> None:
    assert shown(client, "/", headers={"accept-language": wanted}).all("html")[0]["lang"] == language


def test_a_hand_chooses_a_language_for_good(client: TestClient) -> None:
    assert shown(client, "/?lang=ja").all("html")[0]["lang"] == "ja"
    assert shown(client, "/store", headers={"accept-language": "zh"}).all("html")[0]["lang"] == "ja"
    assert shown(client, "/?lang=xx").all("html")[0]["lang"] == "ja"
    links = [link["href"] for link in shown(client, "/sessions/trip?at=9").all("a") if link.get("hreflang") == "zh"]
    assert links == ["/sessions/trip?at=9&lang=zh"]


@pytest.mark.parametrize("path", ["//evil.example", "///evil.example/a", "/\\\\evil.example", "/\\evil.example"])
def test_no_link_of_a_page_that_is_not_found_leads_elsewhere(client: TestClient, path: str) -> None:
    page = client.get(f"http://localhost{path}")
    assert page.status_code == 404
    assert not re.search(r'href="[/\\\\]{2}', page.text)


# Memories and skills.


def test_a_memory_is_shown_with_all_that_is_known_of_it(client: TestClient, memory: Memory) -> None:
    entry = memory.project("acme/api").add("Ships on Friday.", importance=0.85, keywords=["ship"], source="trip")
    memory.project("acme/api").recall("friday")
    page = shown(client, f"/projects/{PROJECT}?memory={quote(entry.id)}")
    for text in ("Ships on Friday.", "FACT", "0.85", "ship", "1 time", "trip"):
        assert text in page.text
    assert {"href": "/sessions/trip"} in page.all("a")
    for category, badge in (
        ("preference", "PREF"),
        ("convention", "CONV"),
        ("pattern", "PATN"),
        ("correction", "WARN"),
    ):
        filtered = shown(client, f"/projects/{PROJECT}?category={category}")
        assert badge in filtered.text
        assert "Ships on Friday." not in filtered.text
    assert "Ships on Friday." in shown(client, f"/projects/{PROJECT}?q=friday").text


def test_memories_are_added_changed_and_removed_by_forms(client: TestClient, memory: Memory) -> None:
    project, base = memory.project("acme/api"), f"/projects/{PROJECT}/memories"
    given = {"csrf": TOKEN, "content": "By form.", "category": "pattern", "importance": "0.6", "keywords": "a, b"}
    added = client.post(f"{base}/add", data=given)
    assert "By form." in added.text
    entry = next(each for each in project.list() if each.content == "By form.")
    assert (entry.category, entry.importance, sorted(entry.keywords)) == ("pattern", 0.6, ["a", "b"])
    client.post(f"{base}/update", data=given | {"memory": entry.id, "content": "Changed.", "importance": "0.05"})
    assert (project.get(entry.id) or entry).content == "Changed."
    assert re.search("[1-9] memories are under an importance of 0.2", shown(client, f"/projects/{PROJECT}").text)
    client.post(f"{base}/prune", data={"csrf": TOKEN, "min_importance": "0.2"})
    assert project.get(entry.id) is None
    known = project.list()[0]
    client.post(f"{base}/delete", data={"csrf": TOKEN, "memory": known.id})
    assert project.get(known.id) is None
    client.post(f"{base}/clear", data={"csrf": TOKEN})
    assert project.count() == 0
    assert "No memories yet" in shown(client, f"/projects/{PROJECT}").text
    assert shown_any_post(client, f"{base}/add", given | {"importance": "much"}) == 400
    assert shown_any_post(client, f"{base}/delete", {"csrf": TOKEN, "memory": "none"}) == 404


def shown_any_post(client: TestClient, path: str, given: dict[str, str]) -> int:
    return client.post(path, data=given).status_code


def test_memories_are_paged(client: TestClient, memory: Memory) -> None:
    with memory.batch():
        for number in range(60):
            memory.project("many").add(f"Fact number {number}.")
    page = client.get("/projects/many?limit=25").text
    assert 'href="/projects/many?limit=25&amp;offset=25"' in page
    assert "Fact number 26." in client.get("/projects/many?limit=25&offset=25").text


@pytest.fixture
def skilled(tmp_path: Path) -> SkillRoots:
    """Skills of a project, one of which its files ask for, and one that nothing asks for."""
    (tmp_path / "package.json").write_text('{"dependencies": {"react": "18"}}')
    for name in ("react-guide", "vue-guide", "house-rules"):
        directory = tmp_path / (".skills" if name == "house-rules" else "shared") / name
        directory.mkdir(parents=True)
        body = "# Title\n\n<script>alert(1)</script>\n\n[click](javascript:alert(1)) **bold**"
        front = (
            f"---\nname: {name}\ndescription: About {name}.\nlicense: MIT\nmetadata:\n  author: vercel\n---\n\n{body}\n"
        )
        (directory / "SKILL.md").write_text(front)
    known = {
        name: {
            "source": "vercel",
            "skill_path": f"{name}",
            "detect": {"files": ["package.json"], "patterns": [pattern]},
            "priority": 100,
        }
        for name, pattern in (("react-guide", '"react"'), ("vue-guide", '"vue"'))
    }
    sources = {"vercel": {"type": "submodule", "path": "shared"}}
    document = {"sources": sources, "skills": known}
    (tmp_path / "external-skills.json").write_text(json.dumps(document))
    return SkillRoots(project=str(tmp_path))


def test_skills_are_in_three_groups_with_what_is_known_of_them(memory: Memory, skilled: SkillRoots) -> None:
    client = client_of(memory, roots=skilled)
    page = client.get(f"/projects/{PROJECT}?tab=skills&skill=react-guide").text
    groups = re.findall(r'class="group (\w+)">.*?</details>', page, re.DOTALL)
    assert groups == ["detected", "own", "available"]
    for text in ("vercel", "MIT", "package.json", "→", "react", "P:100", "Detected via", "Inject into", "1 generated"):
        assert text in page
    assert "Detected react-guide. 1 skill activated." in page
    assert "<strong>bold</strong>" in page
    assert "&lt;script&gt;alert(1)" in page
    assert 'href="javascript' not in page


def test_a_skill_is_switched_and_made_by_forms(memory: Memory, skilled: SkillRoots) -> None:
    client = client_of(memory, roots=skilled)
    base = f"/projects/{PROJECT}/skills"
    client.post(f"{base}/toggle", data={"csrf": TOKEN, "skill": "house-rules", "enabled": ""})
    assert not memory.skills.library.is_enabled("house-rules")
    assert "Switch on" in client.get(f"/projects/{PROJECT}?tab=skills&skill=house-rules").text
    client.post(f"{base}/toggle", data={"csrf": TOKEN, "skill": "house-rules", "enabled": "1"})
    assert memory.skills.library.is_enabled("house-rules")
    given = {"csrf": TOKEN, "name": "new-one", "description": "Made here.", "body": "Do it."}
    assert "new-one" in client.post(f"{base}/add", data=given).text
    assert "new-one" in client.get(f"/projects/{PROJECT}?tab=skills&q=made+here").text
    assert "Last scan" in client.get(f"/projects/{PROJECT}?tab=skills&refresh=1").text


def test_an_own_skill_is_edited_and_deleted_by_forms(memory: Memory, skilled: SkillRoots, tmp_path: Path) -> None:
    client = client_of(memory, roots=skilled)
    base, place = f"/projects/{PROJECT}/skills", f"/projects/{PROJECT}?tab=skills&skill="
    file = tmp_path / ".skills" / "house-rules" / "SKILL.md"
    given = {
        "csrf": TOKEN,
        "skill": "house-rules",
        "description": "Our rules.",
        "body": "One.\r\nTwo.\r\n",
        "tags": "a, b",
    }
    assert "Our rules." in client.post(f"{base}/edit", data=given).text
    text = file.read_text()
    assert "license: MIT" in text
    assert text.endswith("One.\nTwo.\n")
    assert client.get(f"/projects/{PROJECT}/skill-file?skill=house-rules").text == text
    given |= {"skill": "harbour-skill"}
    assert "Our rules." in client.post(f"{base}/edit", data=given).text
    assert memory.skills.library.get("harbour-skill").tags == ("a", "b")
    assert "name: harbour-skill" in client.get(f"/projects/{PROJECT}/skill-file?skill=harbour-skill").text
    for name, own in (("house-rules", True), ("harbour-skill", True), ("vue-guide", False)):
        forms = [str(form["action"]) for form in shown(client, place + name).all("form")]
        assert (f"{base}/edit" in forms, f"{base}/delete" in forms) == (own, own)
    assert client.post(f"{base}/edit", data=given | {"skill": "vue-guide"}).status_code == 400
    assert client.post(f"{base}/delete", data={"csrf": TOKEN, "skill": "vue-guide"}).status_code == 400
    assert client.post(f"{base}/delete", data={"csrf": TOKEN, "skill": "house-rules"}).status_code == 200
    assert not file.exists()
    assert client.post(f"{base}/delete", data={"csrf": TOKEN, "skill": "harbour-skill"}).status_code == 200
    assert memory.skills.library.list() == []
    assert [stamp.actor for event, stamp in memory.events() if type(event).__name__ == "SkillEdited"] == ["web"]


def test_a_new_skill_is_kept_where_one_wants_it(memory: Memory, skilled: SkillRoots, tmp_path: Path) -> None:
    client, base = client_of(memory, roots=skilled), f"/projects/{PROJECT}/skills"
    given = {"csrf": TOKEN, "description": "Made here.", "body": "Do it.", "tags": "x"}
    client.post(f"{base}/add", data=given | {"name": "in-a-file", "where": "files"})
    client.post(f"{base}/add", data=given | {"name": "in-the-log", "where": "log"})
    assert "Do it." in (tmp_path / ".skills" / "in-a-file" / "SKILL.md").read_text()
    assert memory.skills.library.get("in-the-log").tags == ("x",)
    assert client.post(f"{base}/add", data=given | {"name": "../out", "where": "files"}).status_code == 400
    assert not [path for path in tmp_path.parent.iterdir() if path.name == "out"]
    assert 'name="where"' not in client_of(memory).get(f"/projects/{PROJECT}?tab=skills").text


def test_a_learned_skill_is_reviewed_by_forms(client: TestClient, memory: Memory) -> None:
    memory.skills.library.learn("fix-the-build", "Fixes it.", "Look at the log.")
    base, place = f"/projects/{PROJECT}/skills", f"/projects/{PROJECT}?tab=skills&skill=fix-the-build"
    assert "Waiting for review" in shown(client, place).text
    assert f"{base}/review" in [form["action"] for form in shown(client, place).all("form")]
    client.post(f"{base}/review", data={"csrf": TOKEN, "skill": "fix-the-build", "status": "active"})
    assert memory.skills.library.get("fix-the-build").status == "active"
    assert "Waiting for review" not in shown(client, place).text
    assert (
        client.post(f"{base}/review", data={"csrf": TOKEN, "skill": "fix-the-build", "status": "x"}).status_code == 400
    )


def test_the_panel_has_three_sections_with_what_can_be_done_at_once(memory: Memory, skilled: SkillRoots) -> None:
    client, base = client_of(memory, roots=skilled), f"/projects/{PROJECT}"
    memory.project("acme/api").add("A sixth one.", keywords=["six"])
    html = client.get(f"{base}/panel").text
    page = Page(html)
    text = " ".join(page.text.split())
    for words_shown in ("Auto-Detected 1", "Project Skills 2", "Memories 6", "+1 more", "Manage All...", "P:100"):
        assert words_shown in text
    switches = {
        button["aria-label"]: button["aria-checked"] for button in page.all("button") if "aria-checked" in button
    }
    assert switches == {"react-guide": "true", "house-rules": "true", "harbour-skill": "true"}
    assert 'title="About react-guide."' in html
    forms = [str(form["action"]) for form in page.all("form")]
    assert forms.count(f"{base}/memories/update") == 2 * forms.count(f"{base}/memories/delete") == 10
    assert "checked" not in client_of(memory, roots=skilled, writes=False).get(f"{base}/panel").text
    panel = f'href="{base}/panel">★ Skills <span class="count hot" title="Detected">1</span>'
    assert panel in client.get("/sessions/trip").text
    empty = shown(client, "/projects/none/panel").text
    assert "No memories yet" in empty


def test_importance_is_adjusted_alone_and_a_prune_is_previewed(client: TestClient, memory: Memory) -> None:
    project = memory.project("acme/api")
    entry = project.add("Only this.", category="convention", importance=0.9, keywords=["only"])
    given = {"csrf": TOKEN, "memory": entry.id, "importance": "0.15"}
    client.post(f"/projects/{PROJECT}/memories/update", data=given)
    kept = project.get(entry.id) or entry
    changed = (kept.content, kept.category, kept.importance, kept.keywords)
    assert changed == ("Only this.", "convention", 0.15, entry.keywords)
    preview = client.get(f"/projects/{PROJECT}").text.partition('class="preview"')[2].partition("</ul>")[0]
    assert "Only this." in preview
    assert preview.count("<li>") == project.prune(0.2, dry_run=True).removed


def test_emptiness_says_what_to_do(memory: Memory) -> None:
    with Memory() as fresh:
        client = client_of(fresh)
        assert "or by hand" in shown(client, "/projects/none").text
        assert "SKILL.md below .skills" in shown(client, "/projects/none?tab=skills").text
    client = client_of(memory)
    memory.project("one").add("A fact.")
    assert "Nothing fits." in shown(client, "/projects/one?category=pattern").text
    assert "Nothing fits." in shown(client, f"/projects/{PROJECT}?tab=skills&q=zebra").text


# Boards and the store.


def test_the_settings_of_a_board_are_a_form(client: TestClient, memory: Memory) -> None:
    path = "/board?session_id=trip"
    assert "history of harbour" in shown(client, path).text
    given = {"csrf": TOKEN, "history_length": "500", "include_context": "1", "auto_refresh_interval": "5"}
    answer = client.post("/board/settings?session_id=trip", data=given)
    assert "history of harbour" not in answer.text
    assert memory.board(session="trip").get_settings() == {
        "history_length": 200,
        "include_project_structure": False,
        "include_context": True,
        "include_working_history": False,
        "auto_refresh_interval": 5,
    }
    live = Page(client.get(path).text).all("pre")[0]
    assert (live["data-live"], live["data-seconds"]) == ("/board/json?session_id=trip", "5")
    assert json.loads(client.get("/board/json?session_id=trip").text) == memory.board(session="trip").to_dict()


def test_the_store_says_whether_it_is_sound(client: TestClient, memory: Memory) -> None:
    assert "The store is sound" not in shown(client, "/store").text
    assert f"The store is sound: {memory.head} events." in shown(client, "/store?verify=1").text
    assert f"as of {memory.head}" in shown(client, "/store").text


def hold_verifications(monkeypatch: pytest.MonkeyPatch, end: threading.Event) -> None:
    """Let a verification that tells its progress go on behind its first step when something has happened."""
    verify = Memory.verify

    def held(memory: Memory, progress: Callable[[int, int], None] | None = None) -> Any:
        def step(done: int, whole: int) -> None:
            assert progress is not None
            progress(done, whole)
            assert end.wait(20)

        return verify(memory, None if progress is None else step)

    monkeypatch.setattr(Memory, "verify", held)


def test_a_verification_streams_its_progress_and_is_one_at_a_time(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with memory.batch():
        for number in range(2_000):
            memory.conversation("many").append("user", f"message {number}")
    site, is_refused = site_of(memory), threading.Event()
    run = site.verification.run

    def refusing(progress: Any = None) -> Any:
        try:
            return run(progress)
        except StoreBusy:
            is_refused.set()
            raise

    hold_verifications(monkeypatch, is_refused)
    monkeypatch.setattr(site.verification, "run", refusing)

    async def pieces() -> list[bytes]:
        return [piece async for piece in site.verification.pieces()]

    async def twice() -> tuple[list[bytes], list[bytes]]:
        return await asyncio.gather(pieces(), pieces())

    streams = sorted(asyncio.run(twice()), key=len)
    assert streams[0][-1].startswith(b"event: failed")
    assert b"a verification is running" in streams[0][-1]
    lines = streams[1]
    assert len(lines) > 2
    assert all(line.startswith(b"event: progress\ndata: {") for line in lines[:-1])
    done = [json.loads(line.partition(b"data: ")[2])["done"] for line in lines[:-1]]
    assert done == sorted(done)
    assert json.loads(lines[-1].partition(b"data: ")[2])["ok"] is True
    assert site.verification.last is not None


def test_a_verification_ends_where_nobody_reads(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    with memory.batch():
        for number in range(5_000):
            memory.conversation("many").append("user", f"message {number}")
    site, has_left = site_of(memory), threading.Event()
    hold_verifications(monkeypatch, has_left)

    async def leave() -> None:
        async with aclosing(site.verification.pieces()) as pieces:
            await anext(pieces)

    asyncio.run(leave())
    has_left.set()
    end = time.monotonic() + 20
    while site.verification.is_running and time.monotonic() < end:
        time.sleep(0.01)
    assert site.verification.last is None
    assert site.verification.run().ok


def test_whoever_waits_for_a_verification_hears_that_it_failed(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    site = site_of(memory)

    def fail(*_: object) -> None:
        raise ZeroDivisionError("of no kind that is known")

    async def read() -> list[bytes]:
        return [piece async for piece in site.verification.pieces()]

    monkeypatch.setattr(Memory, "verify", fail)
    (failed,) = asyncio.run(read())
    assert failed.startswith(b"event: failed\ndata: ")
    assert b"ZeroDivisionError: of no kind that is known" in failed
    assert not site.verification.is_running


def test_reports_of_benchmarks_are_tables(memory: Memory, tmp_path: Path) -> None:
    figures = {"system": EVIL, "recall": {"10": 0.964285}, "lists": [1], "full": True}
    (tmp_path / "retrieval.json").write_text(json.dumps({"data": "airline.jsonl", "figures": [figures]}))
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[1, 2]")
    page = shown(client_of(memory, reports=tmp_path), "/store")
    for text in ("Benchmark reports", "retrieval.json", "data: airline.jsonl", "recall 10", "0.9643", EVIL, "✓"):
        assert text in page.text
    assert "it cannot be read" in page.text
    assert not page.all("img")
    assert "Benchmark reports" not in shown(client_of(memory), "/store").text


def test_the_doctor_reports_on_a_store_on_disk(tmp_path: Path) -> None:
    from refold.cli.doctor import examine

    with Memory(tmp_path / "store") as memory:
        filled(memory)
        client = client_of(memory, examine=lambda: examine(str(tmp_path / "store")))
        page = shown(client, "/store")
        assert "disk space" in page.text
        assert str(tmp_path / "store") in page.text


# Who may change something.


def test_a_form_without_the_token_changes_nothing(client: TestClient, memory: Memory) -> None:
    head, app = memory.head, cast("Any", client.app)._app
    paths = [route.path for route in app.routes if "POST" in (getattr(route, "methods", None) or ())]
    forms = [path.format(session="trip", project=PROJECT) for path in paths if not path.startswith("/api/")]
    assert len(forms) == 12
    for path in forms:
        for token in ("", "wrong", TOKEN[:-1]):
            assert client.post(path, data={"csrf": token, "at": "1", "id": "x"}).status_code == 403
        foreign = {"origin": "http://evil.example"}
        assert client.post(path, data={"csrf": TOKEN}, headers=foreign).status_code == 403
    assert memory.head == head


def test_what_only_reads_shows_no_form_that_writes(memory: Memory) -> None:
    client, head = client_of(memory, writes=False), memory.head
    for path in pages_of(memory):
        page = Page(client.get(path).text)
        assert all(form.get("method") == "get" or "/board/settings" in str(form["action"]) for form in page.all("form"))
    assert client.post(f"/projects/{PROJECT}/memories/clear", data={"csrf": TOKEN}).status_code == 403
    assert memory.head == head
