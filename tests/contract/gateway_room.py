"""A gateway in front of the twins of `ledger_room`, and a client that talks to it in process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from gateway.app import create_app
from gateway.paths import session_path
from gateway.services import Services, services_for
from gateway.settings import GatewaySettings
from producer.memory_log import MemoryLog, Network
from tests.contract.ledger_room import Room, open_room

__all__ = ["Gateway", "open_gateway", "refusal", "said", "user"]

NOW_MS = 1_760_000_000_000


def user(text: str, **fields: Any) -> dict[str, Any]:
    """A user's message as a client sends it."""
    data = {"id": text, "role": "user", "content": [{"type": "text", "text": text}]}
    return {"type": "user/message", "data": data, "surfaceOp": "append"} | fields


def said(messages: list[dict[str, Any]]) -> list[str]:
    """The texts of messages."""
    return [message["content"][0]["text"] for message in messages]


class Gateway:
    """`client` asks as whoever it likes; the methods ask for one session. `refusals`: every body of a refusal."""

    def __init__(self, room: Room, services: Services, client: httpx.AsyncClient) -> None:
        self.room = room
        self.services = services
        self.client = client
        self.refusals: list[str] = []

    async def ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        """One request."""
        answer = await self.client.request(method, path, **given)
        if answer.status_code >= 400:
            self.refusals.append(answer.text)
        return answer

    async def get(self, session: str, rest: str = "", **given: Any) -> httpx.Response:
        """A read of a session."""
        return await self.ask("GET", session_path(session, rest), **given)

    async def create(self, session: str, **fields: Any) -> httpx.Response:
        """A new session, whose checks are those of the surface alone unless said."""
        return await self.ask("POST", "/v1/sessions", json={"id": session, "checks": "surface"} | fields)

    async def append(self, session: str, *events: dict[str, Any], **given: Any) -> httpx.Response:
        """One commit of events."""
        return await self.ask("POST", session_path(session, "events"), json=list(events), **given)

    async def messages(self, session: str, **query: Any) -> dict[str, Any]:
        """What the model sees; the answer must be a yes."""
        answer = await self.get(session, "messages", params=query)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def refusal(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The refusal's detail, when it is this one and has its shape."""
    told = answer.json()
    assert (answer.status_code, told["code"]) == (status, code), answer.text
    assert set(told) == {"code", "message", "detail"}
    assert told["message"]
    assert answer.headers["content-type"] == "application/json"
    detail: dict[str, Any] = told["detail"]
    return detail


@asynccontextmanager
async def open_gateway(
    settings: GatewaySettings | None = None, network: Network | None = None, **limits: int
) -> AsyncIterator[Gateway]:
    """A gateway whose ledger runs."""
    async with open_room() as room:
        producer = await room.producer(network, **limits)
        services = services_for(
            settings or GatewaySettings(),
            MemoryLog(room.topic, network),
            room.cache,
            producer,
            now_ms=lambda: NOW_MS,
        )
        transport = httpx.ASGITransport(create_app(services), raise_app_exceptions=False)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://ledger") as client:
            yield Gateway(room, services, client)
        await services.close()
