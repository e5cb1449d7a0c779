"""The embedded projector is never silently dead: the server is not ready without it, and a new one is started."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway import keeper
from gateway.app import create_app
from gateway.embedded import embedded
from gateway.services import services_for
from gateway.settings import GatewaySettings
from projector.worker import Worker
from tests.contract.gateway_room import user


async def becomes(client: httpx.AsyncClient, status: int) -> dict[str, str]:
    """Waits until `/readyz` answers so."""
    async with asyncio.timeout(15):
        while (answer := await client.get("/readyz")).status_code != status:
            await asyncio.sleep(0.02)
    found: dict[str, str] = answer.json()
    return found


async def test_a_projector_that_ends_on_a_fault_is_told_and_followed_by_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keeper, "PROVEN_S", 0.3)
    monkeypatch.setattr(keeper, "PAUSE_S", 0.05)
    broken, steps = True, Worker.step

    async def step(self: Worker, consumer: Any) -> bool:
        if broken:
            raise RuntimeError("planted")
        return await steps(self, consumer)

    monkeypatch.setattr(Worker, "step", step)
    async with embedded(tmp_path / "ledger") as parts:
        services = services_for(
            GatewaySettings(), parts.log, parts.cache, parts.producer, now_ms=lambda: 0, keeper=parts.keeper
        )
        transport = httpx.ASGITransport(create_app(services))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://ledger") as client:
            told = await becomes(client, 503)
            assert told == {"log": "ok", "cache": "ok", "projector": "unavailable"}
            # It stays so while one worker after another ends.
            for _ in range(20):
                assert (await client.get("/readyz")).status_code == 503
                await asyncio.sleep(0.02)
            assert "planted" in caplog.text
            broken = False
            await becomes(client, 200)
            assert (await client.post("/v1/sessions", json={"id": "s"})).status_code == 201
            assert (await client.post("/v1/sessions/s/events", json=user("1"))).status_code == 201
        await services.close()
