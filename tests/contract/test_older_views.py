"""Two gateways over one ledger, the cache of one of them older than the other's: no reader goes back in time."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from gateway.app import create_app
from gateway.ledger_http import HttpDoor
from gateway.ledger_session import LedgerSession
from gateway.services import services_for
from gateway.settings import GatewaySettings
from producer.limits import AppendLimits
from producer.memory_cache import MemoryCache
from producer.memory_log import MemoryLog
from producer.producer import Producer
from surfacelog.errors import ProtocolError
from tests.contract.gateway_room import refusal, said, user
from tests.contract.ledger_room import Room, open_room

READS = ("messages", "head", "", "surface", "transcript", "events")


class Pair(httpx.AsyncBaseTransport):
    """`gateways`: the one in front of the ledger's own cache, and one whose cache shows what it did at the last
    `look_away`. As a transport it sends each request to the one that is `turned` to."""

    def __init__(self, room: Room, older: MemoryCache, gateways: list[httpx.ASGITransport]) -> None:
        self.room = room
        self.older = older
        self.gateways = gateways
        self.turned = 0
        self.clients = [httpx.AsyncClient(transport=one, base_url="http://ledger") for one in gateways]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self.gateways[self.turned].handle_async_request(request)

    def catch_up(self) -> None:
        """The older cache shows what the ledger's own does now."""
        self.older.restore(self.room.cache.snapshot())
        for key in self.older.data.keys():
            if key.endswith(b":lock"):
                self.older.data.call("DEL", key)

    async def append(self, *texts: str) -> dict[str, int | str]:
        """Through the gateway that is up to date."""
        answer = await self.clients[0].post("/v1/sessions/s/events", json=[user(text) for text in texts])
        assert answer.status_code == 201, answer.text
        done: dict[str, int | str] = answer.json()
        return done

    async def read(self, what: str, **query: int | str) -> httpx.Response:
        """Through the one that is behind."""
        return await self.clients[1].get(f"/v1/sessions/s/{what}".rstrip("/"), params=query)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with open_room() as room:
        older = MemoryCache()
        behind = Producer(MemoryLog(room.topic), older, AppendLimits(), mint_id=room.mint)
        await behind.start()
        made = [
            services_for(GatewaySettings(), MemoryLog(room.topic), cache, producer, now_ms=lambda: 0)
            for cache, producer in ((room.cache, await room.producer()), (older, behind))
        ]
        pair = Pair(room, older, [httpx.ASGITransport(create_app(one)) for one in made])  # type: ignore[arg-type]
        await pair.clients[0].post("/v1/sessions", json={"id": "s", "checks": "surface"})
        await pair.append("0", "1")
        pair.catch_up()
        yield pair
        for services in made:
            await services.close()
        await behind.close()


async def test_a_reader_that_asks_for_nothing_is_shown_the_older_state(pair: Pair) -> None:
    # Else nothing below would prove anything.
    await pair.append("2")
    assert (await pair.read("messages")).json()["seq"] == 2


@pytest.mark.parametrize("what", READS)
async def test_an_event_that_was_seen_is_in_the_answer_or_there_is_none(pair: Pair, what: str) -> None:
    seen = (await pair.append("2"))["seq"]
    answer = await pair.read(what, min_seq=seen, wait_ms=30)
    assert refusal(answer, 503, "rebuilding") == {"seq": 2, "generation": 0}
    assert (await pair.read(what, min_seq=1, wait_ms=0)).status_code == 200
    pair.catch_up()
    assert (await pair.read(what, min_seq=seen, wait_ms=0)).headers["surfacelog-seq"] == "3"


@pytest.mark.parametrize("what", READS)
async def test_the_head_that_was_told_may_be_sent_as_well(pair: Pair, what: str) -> None:
    head = (await pair.append("2"))["nextSeq"]
    refusal(await pair.read(what, min_seq=head, wait_ms=30), 503, "rebuilding")
    pair.catch_up()
    assert (await pair.read(what, min_seq=head, wait_ms=2000)).headers["surfacelog-seq"] == "3"
    # More of it was never told to anybody.
    refusal(await pair.read(what, min_seq=head + 1, wait_ms=30), 503, "rebuilding")  # type: ignore[operator]


async def test_a_number_that_means_either_is_never_answered_from_behind_the_log(pair: Pair) -> None:
    # The older state ends before event 2: for it, 2 is the next seq.
    await pair.append("2")
    refusal(await pair.read("messages", min_seq=2, wait_ms=0), 503, "rebuilding")
    waiting = asyncio.create_task(pair.read("messages", min_seq=2, wait_ms=5000))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    pair.catch_up()
    assert said((await waiting).json()["messages"]) == ["0", "1", "2"]


async def test_a_token_of_an_append_or_of_a_read_is_never_answered_with_less(pair: Pair) -> None:
    written = (await pair.append("2"))["token"]
    read = (await pair.clients[0].get("/v1/sessions/s/messages")).json()["token"]
    for token in (written, read):
        answer = await pair.read("messages", after=token, wait_ms=30)
        assert refusal(answer, 503, "rebuilding") == {"seq": 2, "generation": 0}
    pair.catch_up()
    assert said((await pair.read("messages", after=written)).json()["messages"]) == ["0", "1", "2"]
    assert (await pair.read("messages", after=read)).json()["messages"] == []


async def test_no_refusal_is_given_by_a_state_that_is_behind_the_log(pair: Pair) -> None:
    await pair.append("2")
    await pair.clients[0].post("/v1/sessions", json={"id": "young"})
    replace = user("x", surfaceOp={"op": "replace", "startSeq": 2, "endSeq": 2}, sourceEventSeqs=[2])
    # The older state would say replace-not-earlier, seq-conflict and no-session.
    for session, event, query in (
        ("s", replace, {}),
        ("s", user("x"), {"expectedSeq": 3}),
        ("young", user("x"), {}),
    ):
        params = {"timeoutMs": 100} | query
        answer = await pair.clients[1].post(f"/v1/sessions/{session}/events", json=event, params=params)
        refusal(answer, 503, "rebuilding")
    refusal(await pair.clients[1].get("/v1/sessions/young/head", params={"wait_ms": 0}), 503, "rebuilding")
    assert (await pair.clients[0].post("/v1/sessions/s/events", json=replace)).json()["seq"] == 3


async def test_our_client_never_goes_back_whichever_gateway_answers(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.routes_reads.WAIT_MS", 20)
    session = LedgerSession(HttpDoor("http://ledger", transport=pair), "s", patience_s=0.05, keys=False)
    for text in ("2", "3"):
        pair.turned = 0
        await session.append("user/message", user(text)["data"], surface_op="append")
        # Read your own write, then no less than you have read.
        for _ in range(2):
            pair.turned = 1
            for read in (session.messages, session.surface, session.transcript, session.head):
                with pytest.raises(ProtocolError, match="does not hold"):
                    await read()
            pair.turned = 0
            shown = await session.messages()
        pair.catch_up()
        pair.turned = 1
        assert await session.messages() == shown
        assert len(await session.transcript()) == len(shown) == session.seq
