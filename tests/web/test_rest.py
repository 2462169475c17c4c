"""REST: the document against the routes, every operation against its document, what is refused, what changes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema  # type: ignore[import-untyped]
import pytest
from starlette.testclient import TestClient

from refold import Memory
from refold.skills import SkillRoots
from refold.web.guard import BODY_BYTES_MAX
from refold.web.openapi import OPERATIONS, document
from tests.web.site import HOST, TOKEN, client_of, filled

PROJECT = quote("acme/api", safe="")


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory() as made:
        yield filled(made)


@pytest.fixture
def client(memory: Memory) -> TestClient:
    return client_of(memory)


def context_seq(memory: Memory) -> int:
    return next(stamp.seq for event, stamp in memory.events() if type(event).__name__ == "ContextShown")


CALLS: dict[str, Any] = {
    "get_root": {},
    "get_working_memory": {"query": {"session_id": "trip"}},
    "get_context": {"query": {"session_id": "trip"}},
    "patch_part": {"path": {"part": "working_history"}, "body": {"session_id": "trip", "value": "x"}},
    "list_sessions": {},
    "get_session": {"path": {"session": "trip"}, "query": {"at": 9}},
    "get_window": {"path": {"session": "trip"}},
    "get_step": {"path": {"session": "trip"}, "query": {"at": 9}},
    "get_session_events": {"path": {"session": "trip"}},
    "get_track": {"path": {"session": "trip"}},
    "get_diff": {"path": {"session": "trip"}, "query": {"a": 4, "b": 12}},
    "append_message": {"path": {"session": "new"}, "body": {"role": "user", "content": "Hello"}},
    "fork_session": {"path": {"session": "trip"}, "body": {"id": "trip-3", "at": 9}},
    "get_shown_context": {"path": {"seq": "SEQ"}},
    "list_events": {"query": {"kind": "message_appended", "limit": 3}},
    "get_event": {"path": {"seq": "3"}},
    "get_branches": {"path": {"session": "trip"}},
    "get_what_if": {"path": {"session": "trip"}, "query": {"window_tokens": 40, "eviction": "fifo"}},
    "get_why": {"query": {"x": 3, "session": "trip", "missing_from": "harbour"}},
    "get_blame": {"query": {"key": "key 0 harbour", "session": "trip"}},
    "search": {"query": {"q": "harbour", "project": "acme/api"}},
    "list_projects": {},
    "get_project": {"path": {"project": "acme/api"}},
    "list_memories": {"path": {"project": "acme/api"}, "query": {"category": "fact"}},
    "add_memory": {"path": {"project": "acme/api"}, "body": {"content": "New.", "importance": 0.9}},
    "get_memory": {"path": {"project": "acme/api", "memory": "ID"}},
    "update_memory": {"path": {"project": "acme/api", "memory": "ID"}, "body": {"importance": 0.7}},
    "delete_memory": {"path": {"project": "acme/api", "memory": "ID"}, "body": {}},
    "prune_memories": {"path": {"project": "acme/api"}, "body": {"min_importance": 0.6, "dry_run": True}},
    "clear_memories": {"path": {"project": "acme/api"}, "body": {}},
    "list_skills": {},
    "refresh_skills": {"body": {}},
    "get_skill": {"path": {"skill": "harbour-skill"}},
    "add_skill": {"body": {"name": "new-skill", "description": "Made here.", "body": "Do it."}},
    "update_skill": {"path": {"skill": "harbour-skill"}, "body": {"enabled": False}},
    "delete_skill": {"path": {"skill": "harbour-skill"}, "body": {}},
    "list_boards": {},
    "get_stats": {},
    "verify": {},
}
"""A call of each operation."""


def call(client: TestClient, memory: Memory, operation: Any) -> Any:
    given = CALLS[operation.name]
    known = {"SEQ": str(context_seq(memory)), "ID": memory.project("acme/api").list()[0].id}
    path = operation.path
    for name, value in given.get("path", {}).items():
        path = path.replace(f"{{{name}}}", quote(known.get(value, value), safe=""))
    body = {} if operation.body is None else {"json": given["body"]}
    return client.request(operation.method, path, params=given.get("query"), **body)


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if not each.is_stream], ids=lambda each: each.path)
def test_every_operation_answers_as_the_document_says(client: TestClient, memory: Memory, operation: Any) -> None:
    answer = call(client, memory, operation)
    described = document()["paths"][operation.path][operation.method.lower()]["responses"]
    assert str(answer.status_code) in described, answer.text
    schema = described[str(answer.status_code)]["content"]["application/json"]["schema"]
    jsonschema.validate(answer.json(), schema)


def test_the_document_has_the_routes_and_nothing_else(client: TestClient) -> None:
    shown = client.get("/api/openapi.json").json()
    documented = {(method.upper(), path) for path, methods in shown["paths"].items() for method in methods}
    app: Any = client.app
    routed = {
        (method, route.path)
        for route in app._app.routes
        if getattr(route, "path", "").startswith("/api/")
        for method in route.methods - {"HEAD"}
    }
    assert documented == routed - {("GET", "/api/openapi.json")}
    assert len({each["operationId"] for methods in shown["paths"].values() for each in methods.values()}) == len(
        documented
    )
    for path, methods in shown["paths"].items():
        for about in methods.values():
            names = {each["name"] for each in about["parameters"] if each["in"] == "path"}
            assert all(f"{{{name}}}" in path for name in names)
            assert about["summary"]


def test_a_session_is_read_as_of_any_seq(client: TestClient, memory: Memory) -> None:
    chat = memory.conversation("trip")
    for at in (2, 5, 9, memory.head):
        shown = client.get("/api/sessions/trip/window", params={"at": at}).json()
        assert [row["content"] for row in shown["messages"]] == [row.content for row in chat.at(at).window()]
        assert shown["tokens"] == chat.at(at).token_count()
    assert client.get("/api/sessions/trip", params={"at": 5}).json()["scratchpad"]["entries"]
    assert client.get("/api/sessions/trip-2").json()["events"] >= 1


def test_a_step_says_what_entered_and_what_left(client: TestClient, memory: Memory) -> None:
    evicting = next(step for step in memory.conversation("trip").replay() if step.evicted)
    shown = client.get("/api/sessions/trip/step", params={"at": evicting.stamp.seq}).json()
    assert [row["seq"] for row in shown["left"]] == [message.seq for message in evicting.evicted]
    assert shown["entered"] == [evicting.stamp.seq]
    assert client.get("/api/sessions/trip/step", params={"at": memory.head}).json()["seq"] <= memory.head


def test_the_track_and_the_events_are_paged(client: TestClient, memory: Memory) -> None:
    whole = [stamp.seq for _, stamp in memory.conversation("trip").events()]
    for path, key in (("track", "seqs"), ("events", "events")):
        found: list[int] = []
        after: int | None = 0
        while after is not None:
            page = client.get(f"/api/sessions/trip/{path}", params={"after": after, "limit": 7}).json()
            found += [row if isinstance(row, int) else row["seq"] for row in page[key]]
            after = page["next"]
        assert found == whole


def test_what_a_fuzzer_found_stays_found(client: TestClient) -> None:
    assert len(client.get("/api/sessions/trip/track?limit=0").json()["seqs"]) == 1
    assert client.request("TRACE", "/api/stats").status_code == 405
    assert client.request("PUT", "/api/stats", json={}).status_code == 405
    assert client.post(f"/api/projects/{PROJECT}/clear", json={"all": True}).status_code == 400
    assert client.post(f"/api/projects/{PROJECT}/clear").status_code == 415
    assert client.delete(f"/api/projects/{PROJECT}/memories/none").status_code == 404


def test_a_shown_context_is_built_again_byte_for_byte(client: TestClient, memory: Memory) -> None:
    shown = client.get(f"/api/contexts/{context_seq(memory)}").json()
    assert shown["matches"] is True
    assert "harbour preference" in "".join(part["text"] for part in shown["parts"])


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: f"{each.method} {each.path}")
def test_an_unknown_parameter_is_refused_and_the_known_ones_are_named(client: TestClient, operation: Any) -> None:
    path = re.sub("{.*?}", "3", operation.path)
    body: dict[str, Any] = {} if operation.body is None else {"json": {}}
    answer = client.request(operation.method, path, params={"odd": "1"}, **body)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("there is no parameter 'odd'")
    assert all(name in answer.json()["detail"] for name in operation.query)


def test_a_diff_between_parameters_of_other_names_is_refused(client: TestClient) -> None:
    answer = client.get("/api/sessions/trip/diff", params={"from": 3, "to": 5})
    assert answer.json()["detail"] == "there is no parameter 'from'; there are a, b"


def test_a_search_without_a_project_looks_where_the_page_does(client: TestClient, memory: Memory) -> None:
    def searched() -> str:
        shown = client.get("/api/search", params={"q": "harbour"}).json()
        page = client.get("/search", params={"q": "harbour"}).text
        contents = [hit["entry"]["content"] for hit in shown["hits"]]
        assert contents == re.findall("> ([^<]*) <a class=.ask", page)
        assert f'<option value="{shown["project"]}" selected>' in page
        return str(shown["project"])

    assert searched() == "acme/api"
    memory.project("a").add("harbour of a")
    assert searched() == "a"
    memory.project("default").add("harbour of the default")
    assert searched() == "default"
    assert client.get("/api/search?q=harbour&in=messages").json()["project"] is None


def test_a_search_explains_its_scores(client: TestClient) -> None:
    hits = client.get("/api/search", params={"q": "harbour preference", "project": "acme/api"}).json()["hits"]
    assert hits[0]["entry"]["category"] == "preference"
    assert hits[0]["parts"]
    found = client.get("/api/search", params={"q": "word 3", "in": "messages"}).json()["hits"]
    assert found[0]["entry"]["session"] in {"trip", "trip-2"}


def test_memories_are_changed_where_they_are_as_they_were_read(client: TestClient, memory: Memory) -> None:
    path = f"/api/projects/{PROJECT}/memories"
    made = client.post(path, json={"content": "Use pnpm.", "category": "preference"})
    assert made.status_code == 201
    one = f"{path}/{quote(made.json()['id'], safe='')}"
    tag = client.get(one).headers["etag"]
    assert (
        client.patch(one, json={"content": "Use pnpm 9."}, headers={"if-match": tag}).json()["content"] == "Use pnpm 9."
    )
    assert client.patch(one, json={"content": "No."}, headers={"if-match": tag}).status_code == 412
    assert client.request("DELETE", one, json={}).json() == {"deleted": True}
    assert client.get(one).status_code == 404
    head, count = memory.head, memory.project("acme/api").count()
    assert (
        client.post(f"/api/projects/{PROJECT}/prune", json={"min_importance": 0.6, "dry_run": True}).json()["removed"]
        == 3
    )
    assert memory.head == head
    assert client.post(f"/api/projects/{PROJECT}/prune", json={"min_importance": 0.6}).json()["removed"] == 3
    assert memory.project("acme/api").count() == count - 3
    assert [stamp.actor for _, stamp in memory.events(after=head)][-1] == "web"


def test_skills_are_made_changed_switched_and_deleted(client: TestClient, memory: Memory) -> None:
    made = {"name": "release", "description": "How to release.", "body": "Tag it.", "tags": ["ship"]}
    assert client.post("/api/skills", json=made).json() == {"name": "release", "status": "active"}
    path, library = "/api/skills/release", memory.skills.library
    answer = client.patch(path, json={"body": "Tag it, then wait.", "tags": []})
    assert answer.json() == {"name": "release", "enabled": True, "changed": True}
    assert (library.get("release").body, library.get("release").tags) == ("Tag it, then wait.", ())
    assert client.patch(path, json={"body": "Tag it, then wait."}).json()["changed"] is False
    assert client.patch(path, json={"enabled": False}).json() == {"name": "release", "enabled": False, "changed": True}
    for wrong in ({}, {"enabled": True, "body": "x"}):
        assert client.patch(path, json=wrong).status_code == 400
    assert client.post("/api/skills", json={"name": "x"}).status_code == 400
    assert client.post("/api/skills", json=made | {"name": "x", "tags": None}).status_code == 400
    assert client.post("/api/skills", json=made).status_code == 409
    assert client.post("/api/sessions/trip/fork", json={"id": "trip-2"}).status_code == 409
    assert [each["name"] for each in client.get("/api/skills?q=release&source=generated").json()["skills"]] == [
        "release"
    ]
    assert client.get("/api/skills?q=release&source=project").json()["skills"] == []
    assert client.request("DELETE", path, json={}).json() == {"deleted": True}
    assert client.get(path).status_code == 404
    assert {stamp.actor for event, stamp in memory.events() if type(event).__name__ == "SkillRefined"} == {"web"}


def test_a_request_is_answered_once(client: TestClient, memory: Memory) -> None:
    key, body = {"idempotency-key": "once"}, {"role": "user", "content": "Hello"}
    first = client.post("/api/sessions/new/messages", json=body, headers=key)
    head = memory.head
    assert client.post("/api/sessions/new/messages", json=body, headers=key).json() == first.json()
    assert memory.head == head
    assert client.post("/api/sessions/new/messages", json=body, headers={"if-none-match": "*"}).status_code == 412


def test_the_first_message_gives_a_session_its_project_and_its_budget(client: TestClient, memory: Memory) -> None:
    path, body = "/api/sessions/ann-1/messages", {"role": "user", "content": "Hello"}
    opening = {"project": "shop/ann", "window_tokens": 500}
    key = {"idempotency-key": "once"}
    first = client.post(path, json=body | opening, headers=key)
    assert (first.status_code, client.post(path, json=body | opening, headers=key).json()) == (201, first.json())
    chat = memory.conversation("ann-1")
    assert (chat.project, chat.window_tokens) == ("shop/ann", 500)
    assert client.post(path, json=body | opening).status_code == 201
    assert client.post(path, json=body | dict.fromkeys(opening)).status_code == 201
    head = memory.head
    for other, said in (
        ({"project": "shop/bob"}, "belongs to project 'shop/ann', not 'shop/bob'"),
        ({"window_tokens": 600}, "has a budget of 500 tokens, not 600"),
        ({"project": ""}, "project"),
        ({"window_tokens": 0}, "window_tokens"),
    ):
        refused = client.post(path, json=body | other)
        assert (refused.status_code, said in refused.json()["detail"]) == (400, True), refused.text
    assert memory.head == head


@pytest.mark.parametrize(
    ("role", "block"),
    [
        ("user", {"type": "text"}),
        ("user", {"type": "text", "txt": "Hi"}),
        ("user", {"type": "text", "text": None}),
        ("user", {"type": "image", "url": "https://example.org/a.png"}),
        ("user", {"type": "my_widget", "x": 1}),
        ("user", {"colour": "red"}),
        ("user", {}),
        ("tool", {"type": "image_url"}),
        ("user", {"type": "tool_use", "id": "c1", "name": "weather", "input": {}}),
    ],
    ids=repr,
)
def test_a_block_that_no_provider_takes_is_refused(
    client: TestClient, memory: Memory, role: str, block: dict[str, Any]
) -> None:
    head, content = memory.head, [{"text": "Hi"}, block]
    answer = client.post("/api/sessions/trip/messages", json={"role": role, "content": content})
    assert (answer.status_code, memory.head) == (400, head)
    assert answer.json()["detail"].startswith("block 2 of content is {")


@pytest.mark.parametrize("content", [None, "", "Hi", [], [{"text": "Hi"}], [{"type": "web_search_tool_result"}]])
def test_content_that_a_provider_takes_is_kept_as_it_is(client: TestClient, memory: Memory, content: Any) -> None:
    answer = client.post("/api/sessions/trip/messages", json={"role": "assistant", "content": content})
    assert (answer.status_code, memory.conversation("trip").window()[-1].content) == (201, content)


def test_what_has_not_changed_is_not_sent_again(client: TestClient, memory: Memory) -> None:
    answer = client.get("/api/sessions/trip")
    again = client.get("/api/sessions/trip", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    memory.conversation("trip").append("user", "more")
    assert client.get("/api/sessions/trip", headers={"if-none-match": answer.headers["etag"]}).status_code == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/sessions/none", 404),
        ("/api/sessions/trip?at=999999", 404),
        ("/api/sessions/trip/diff?a=1&b=999999", 404),
        ("/api/sessions/trip?at=-1", 400),
        ("/api/sessions/trip?at=1e3", 400),
        ("/api/sessions/trip/events?limit=x", 400),
        ("/api/events/3?full=perhaps", 400),
        ("/api/events/0", 404),
        ("/api/events/x", 404),
        ("/api/events?kind=nothing", 400),
        ("/api/contexts/1", 404),
        ("/api/search", 400),
        ("/api/search?q=a&in=files", 400),
        ("/api/search?q=a&ranking=best", 400),
        ("/api/skills/none", 404),
        (f"/api/projects/{PROJECT}/memories/none", 404),
        (f"/api/projects/{PROJECT}/memories?category=odd", 400),
        ("/api/nothing", 404),
        ("/api/sessions/%00", 404),
        ("/api/sessions/%ff%fe", 404),
    ],
)
def test_what_is_not_there_is_a_problem_with_a_status(
    client: TestClient, memory: Memory, path: str, status: int
) -> None:
    head = memory.head
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(answer.json()) >= {"type", "title", "status", "detail"}
    assert memory.head == head


def test_a_number_above_the_last_seq_counts_as_words(client: TestClient, memory: Memory) -> None:
    said = memory.conversation("order").append("user", "Order 5512 is for a blue lamp.")
    came = client.get("/api/why?x=5512&session=order").json()["steps"][0]
    assert (came["relation"], came["seq"]) == ("came", said.seq)
    assert client.get(f"/api/why?x={said.seq}&missing_from=5512").json()["steps"][-1]["relation"] == "shown"
    assert client.get("/why?x=5512&session=order&missing_from=5512").status_code == 200
    nowhere = client.get("/api/why?x=77512")
    assert (nowhere.status_code, "none holds it as words" in nowhere.json()["detail"]) == (404, True)


def test_a_fork_to_a_name_that_is_taken_says_what_to_do(client: TestClient) -> None:
    taken = client.post("/api/sessions/trip/fork", json={"id": "trip"})
    assert (taken.status_code, taken.json()["detail"]) == (
        409,
        "there is a session 'trip' already; give an id that is new",
    )


def test_reading_writes_nothing(memory: Memory) -> None:
    client = client_of(memory, writes=False)
    head = memory.head
    for operation in OPERATIONS:
        if not operation.is_stream:
            answer = call(client, memory, operation)
            assert answer.status_code == (403 if operation.writes else 200), answer.text
    assert memory.head == head


# Who may ask.


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost.", "[::2]"]
)
def test_another_name_of_this_machine_is_no_name(client: TestClient, host: str) -> None:
    assert client.get("/api/sessions", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:9", "LOCALHOST:1"])
def test_its_own_names_are(client: TestClient, host: str) -> None:
    assert client.get("/api/sessions", headers={"host": host}).status_code == 200


def test_other_origins_and_sites_are_refused(client: TestClient, memory: Memory) -> None:
    head, body = memory.head, {"role": "user", "content": "x"}
    path = "/api/sessions/new/messages"
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:1"},
        {"sec-fetch-site": "cross-site"},
        {"x-csrf-token": "wrong"},
    ):
        assert client.post(path, json=body, headers=headers).status_code == 403, headers
    for kind in ("text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", ""):
        sent = client.post(path, content=json.dumps(body), headers={"content-type": kind})
        assert sent.status_code == 415, kind
    assert client.get("/api/sessions", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert memory.head == head
    assert client.post(path, json=body, headers={"origin": HOST, "x-csrf-token": TOKEN}).status_code == 201


def test_a_body_is_bounded_whatever_it_announces(client: TestClient, memory: Memory) -> None:
    head = memory.head
    path, kind = "/api/sessions/new/messages", {"content-type": "application/json"}
    assert client.post(path, content=b" " * (BODY_BYTES_MAX + 1), headers=kind).status_code == 413

    def endless() -> Iterator[bytes]:
        for _ in range(6):
            yield b" " * 1_000_000

    assert client.post(path, content=endless(), headers=kind).status_code == 413
    deep = b'{"role":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert client.post(path, content=deep, headers=kind).status_code == 400
    assert memory.head == head


def test_every_answer_carries_the_headers_of_a_page(client: TestClient) -> None:
    for path in ("/", "/api/sessions", "/api/nothing", "/static/htmx.min.js"):
        headers = client.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


@pytest.fixture
def own(memory: Memory, tmp_path: Path) -> tuple[TestClient, Path]:
    """A client of a project with a skill in a file, and the file."""
    file = tmp_path / ".skills" / "greet" / "SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nname: greet\ndescription: Say hello.\n---\nWave.\n")
    return client_of(memory, roots=SkillRoots(project=str(tmp_path))), file


def test_a_skill_is_changed_on_the_condition_that_it_is_the_one_that_was_read(own: tuple[TestClient, Path]) -> None:
    client, _ = own
    assert (
        client.post("/api/skills", json={"name": "release", "description": "How.", "body": "One."}).status_code == 201
    )
    for path in ("/api/skills/release", "/api/skills/greet"):
        first = {"if-match": client.get(path).headers["etag"]}
        answer = client.patch(path, json={"body": "Two."}, headers=first)
        assert (answer.status_code, answer.json()["changed"]) == (200, True)
        assert client.patch(path, json={"body": "Three."}, headers=first).status_code == 412
        assert client.patch(path, json={"enabled": False}, headers=first).status_code == 412
        assert client.request("DELETE", path, headers=first).status_code == 412
        assert client.get(path).json()["body"].strip() == "Two."
        now = {"if-match": client.get(path).headers["etag"]}
        assert client.request("DELETE", path, headers=now).json() == {"deleted": True}


def test_a_skill_in_a_file_is_sent_again_once_the_file_has_changed(own: tuple[TestClient, Path]) -> None:
    client, file = own
    tags = {path: client.get(path).headers["etag"] for path in ("/api/skills", "/api/skills/greet")}
    for path, tag in tags.items():
        assert client.get(path, headers={"if-none-match": tag}).status_code == 304
    file.write_text(file.read_text().replace("Wave.", "Bow deeply."))
    client.post("/api/skills/refresh", json={})
    for path, tag in tags.items():
        assert client.get(path, headers={"if-none-match": tag}).status_code == 200
    answer = client.patch("/api/skills/greet", json={"body": "Nod."}, headers={"if-match": tags["/api/skills/greet"]})
    assert (answer.status_code, "has another content now" in answer.json()["detail"]) == (412, True)


def test_a_new_skill_cannot_have_the_name_of_one_in_a_file(own: tuple[TestClient, Path], memory: Memory) -> None:
    answer = own[0].post("/api/skills", json={"name": "greet", "description": "Mine.", "body": "Bow."})
    assert (answer.status_code, "SKILL.md" in answer.json()["detail"]) == (409, True)
    assert "greet" not in {skill.name for skill in memory.skills.library.list()}


def test_a_project_that_was_never_written_to_is_not_found(client: TestClient) -> None:
    for method, path in (("GET", ""), ("GET", "/memories"), ("POST", "/prune"), ("POST", "/clear")):
        assert client.request(method, f"/api/projects/none{path}", json={}).status_code == 404
    assert client.post("/api/projects/none/memories", json={"content": "A fact."}).status_code == 201
    assert client.post("/api/projects/none/clear", json={}).json() == {"cleared": True}
    answer = client.post("/api/projects/none/clear", json={"x": 1})
    assert (answer.status_code, answer.json()["detail"]) == (400, "there is no field 'x'; this request takes none")


def test_a_session_with_only_a_board_has_reasons(client: TestClient, memory: Memory) -> None:
    board = memory.board(session="board-alone")
    board.set_working_history("one")
    board.set_working_history("two")
    shown = client.get("/api/blame?key=working_history&of=board&session=board-alone").json()["revisions"]
    assert [each["value"] for each in shown] == ["one", "two"]
    assert client.get("/api/why?x=two&session=board-alone").status_code == 200
    assert client.get("/api/why?x=two&session=none").status_code == 404
