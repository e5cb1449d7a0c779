"""A real server that the hostile tests share; session `s` is on it, and it must outlive every one of them."""

from collections.abc import Iterator

import pytest

from tests.security.hostile_room import EVENTS, NOTE, SESSIONS, request, send
from tests.server_process import ServerProcess, running_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(tmp_path_factory.mktemp("hostile")) as running:
        yield running


@pytest.fixture
def port(server: ServerProcess) -> Iterator[int]:
    """Of the server, on which session `s` is; whatever a test sent, its head is where yes answers left it."""
    number = int(server.url.rpartition(":")[2])
    send(number, request("POST", SESSIONS, b'{"id":"s"}'))
    yield number
    assert server.process is not None
    assert server.process.poll() is None
    assert send(number, request("POST", EVENTS, NOTE)).status == 201
