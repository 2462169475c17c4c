"""REST over boards as the seed has it: its names, its defaults, its bounds, its silence where nothing changes."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from refold import Memory
from refold.views.board import PARTS
from tests.web.site import client_of

EMPTY = {
    "session": {"session_id": "s", "project_id": "", "active_node_id": "", "timestamp": ""},
    "project_structure": {
        "project_graph": {"nodes": [], "edges": []},
        "elements_graph": {"nodes": [], "edges": []},
    },
    "node_context": {},
    "fetched_context": {},
    "working_history": "",
    "messages": [],
    "last_user_message": "",
    "config": {
        "history_length": 20,
        "include_project_structure": True,
        "include_context": True,
        "include_working_history": True,
        "auto_refresh_interval": 0,
    },
}


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def client(memory: Memory) -> TestClient:
    return client_of(memory)


def read(client: TestClient, **scope: str) -> Any:
    answer = client.get("/api/working-memory", params=scope)
    assert answer.status_code == 200, answer.text
    return answer.json()["memory"]


def patch(client: TestClient, part: str, value: Any, **more: Any) -> Any:
    answer = client.patch(f"/api/working-memory/{part}", json={"session_id": "s", "value": value} | more)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(answer: Any, status: int, words: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.json()["error"]
    assert words in answer.json()["detail"]


def test_an_empty_working_memory_is_the_contract(client: TestClient) -> None:
    shown = read(client, session_id="s")
    assert shown == EMPTY
    assert list(shown) == list(EMPTY)


def test_a_patch_answers_with_the_part_as_it_is_shown(client: TestClient) -> None:
    assert patch(client, "working_history", {"text": "So far."}) == {
        "part": "working_history",
        "value": "So far.",
        "changed": True,
    }
    assert read(client, session_id="s")["working_history"] == "So far."
    assert patch(client, " LAST_MESSAGE ".strip(), "hello")["part"] == "last_user_message"
    patch(client, "session", {"project_id": "P", "active_node_id": "N"})
    graph = {
        "nodes": [{"id": "1", "builder": {"steps": [1]}, "title": "T"}, {"label": "no id"}],
        "edges": [{"from": "1"}],
    }
    shown = patch(client, "project_structure", {"project_graph": graph})["value"]
    assert shown["project_graph"] == {"nodes": [{"id": "1", "label": "T", "type": "", "builder": ""}], "edges": []}


def test_every_part_can_be_patched(client: TestClient) -> None:
    values: dict[str, Any] = {part: {} for part in PARTS} | {
        "messages": [],
        "working_history": "",
        "last_user_message": "",
    }
    for part in PARTS:
        assert patch(client, part, values[part])["part"] == part


def test_what_is_there_already_changes_nothing(memory: Memory, client: TestClient) -> None:
    patch(client, "fetched_context", {"a": 1, "b": 2})
    head = memory.head
    assert patch(client, "fetched_context", {"b": 2, "a": 1})["changed"] is False
    assert memory.head == head


@pytest.mark.parametrize(
    ("given", "length", "interval"),
    [({}, 20, 0), (("500", -5), 200, 0), ((0, 9_999), 1, 600), (("soon", "x"), 20, 0), (("7 of them", "60"), 7, 60)],
)
def test_settings_are_clamped(client: TestClient, given: Any, length: int, interval: int) -> None:
    value = {} if given == {} else {"history_length": given[0], "auto_refresh_interval": given[1]}
    shown = patch(client, "config", value)["value"]
    assert (shown["history_length"], shown["auto_refresh_interval"]) == (length, interval)


def test_toggles_hide_at_once(client: TestClient) -> None:
    patch(client, "working_history", "So far.")
    patch(client, "node_context", {"id": "N"})
    patch(client, "config", {"include_working_history": False, "include_context": False})
    shown = read(client, session_id="s")
    assert (shown["working_history"], shown["node_context"]) == ("", {})
    assert client.get("/api/working-memory/context", params={"session_id": "s"}).json()["working_history"] == ""
    assert patch(client, "config", {"include_working_history": True})
    assert read(client, session_id="s")["working_history"] == "So far."


def test_the_context_is_the_bundle_of_a_session_at_its_node(memory: Memory, client: TestClient) -> None:
    rows = [{"id": n, "content": f"m{n}", "created_at": f"2026-01-01T00:{n:02}:00Z"} for n in range(30)]
    rows.append({"id": "other", "content": "of B", "node_id": "B", "created_at": "2026-01-02"})
    patch(client, "messages", rows)
    answer = client.get("/api/working-memory/context", params={"session_id": "s", "node_id": "A", "project_id": "P"})
    assert list(answer.json()) == ["messages", "messages_meta", "working_history", "last_user_message"]
    bundle = client.get("/api/working-memory/context", params={"session_id": "s"}).json()
    assert (len(bundle["messages"]), bundle["messages_meta"]["total_count"]) == (20, 31)
    assert bundle["messages_meta"]["has_more"] is True
    assert bundle["last_user_message"] == "of B"
    assert memory.board(session="s").bundle() == bundle


def test_a_node_has_a_working_memory_of_its_own(client: TestClient) -> None:
    body = {"project_id": "P", "node_id": "N", "value": "of the node"}
    assert client.patch("/api/working-memory/working_history", json=body).status_code == 200
    assert read(client, project_id="P", node_id="N")["working_history"] == "of the node"
    assert read(client, session_id="s", project_id="P", node_id="N")["working_history"] == "of the node"
    patch(client, "working_history", "of the session", project_id="P", options={"node_id": "N"})
    assert read(client, session_id="s", project_id="P", node_id="N")["working_history"] == "of the session"
    assert read(client, project_id="P", node_id="N")["working_history"] == "of the node"
    assert read(client, session_id="s")["working_history"] == ""


def test_wrong_requests_are_told_what_is_wrong(memory: Memory, client: TestClient) -> None:
    missing = "project_id and node_id are required when session_id is missing"
    refused(client.get("/api/working-memory"), 400, missing)
    refused(client.get("/api/working-memory", params={"project_id": "P"}), 400, missing)
    refused(client.get("/api/working-memory/context", params={"node_id": "N"}), 400, "session_id is required")
    refused(client.patch("/api/working-memory/config", json={"value": {}}), 400, missing)
    refused(client.patch("/api/working-memory/graph", json={"session_id": "s"}), 400, "Unknown working memory part")
    refused(client.patch("/api/working-memory/config", json={"session_id": "s"}), 400, "value is missing")
    refused(client.patch("/api/working-memory/config", json={"session_id": "s", "valeu": 1}), 400, "valeu")
    body = {"session_id": "s", "value": {"projectGraph": {}}}
    refused(client.patch("/api/working-memory/project_structure", json=body), 400, "projectGraph")
    refused(
        client.patch("/api/working-memory/config", content=b"{", headers={"content-type": "application/json"}), 400, ""
    )
    answer = client.patch("/api/working-memory/context", params={"at": 1}, json={"session_id": "s", "value": "x"})
    refused(answer, 405, "")
    assert answer.headers["allow"] == "GET"
    assert memory.head == 0


def test_a_patch_may_expect_what_was_read_and_is_answered_once(memory: Memory, client: TestClient) -> None:
    patch(client, "working_history", "one")
    tag = client.get("/api/working-memory", params={"session_id": "s"}).headers["etag"]
    body = {"session_id": "s", "value": "two"}
    answer = client.patch("/api/working-memory/working_history", json=body, headers={"if-match": tag})
    assert answer.status_code == 200
    again = client.patch(
        "/api/working-memory/working_history", json=body | {"value": "three"}, headers={"if-match": tag}
    )
    refused(again, 412, "")
    key = {"idempotency-key": "k1"}
    message = {"session_id": "s", "value": [{"content": "x", "id": "1"}]}
    head = memory.head
    for _ in range(2):
        assert client.patch("/api/working-memory/messages", json=message, headers=key).status_code == 200
    assert memory.head == head + 1
    refused(client.patch("/api/working-memory/messages", json=body | {"value": []}, headers=key), 409, "")
