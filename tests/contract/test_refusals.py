"""What a gateway refuses: every code with its status and its shape, and nothing given away."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.settings import GatewaySettings
from gateway.status import HTTP_CODES, STATUS, status_of
from producer.secret import Secret
from surfacelog.errors import CONTRACT_CODES, PROTOCOL_CODES
from surfacelog.keys import PartitionKeys, partition_of, record_key, tag_of
from tests.contract.gateway_room import Gateway, open_gateway, refusal, said, user
from tests.contract.ledger_room import header
from tests.contract.ledger_room import user as draft

COLLISIONS = Path(__file__).parent / "cases" / "65-session-key-collision.json"


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with open_gateway() as made:
        yield made


async def test_unreadable_requests_are_bad_requests(gateway: Gateway) -> None:
    await gateway.create("s")
    for body in (b"", b"{", b"nonsense", b"[1]", b'{"events":1}', b"\xff"):
        answer = await gateway.ask("POST", "/v1/sessions/s/events", content=body)
        assert answer.status_code in (400, 422), body
    refusal(await gateway.ask("POST", "/v1/sessions/s/events", content=b"{"), 400, "bad-request")
    refusal(await gateway.ask("POST", "/v1/sessions", content=b"{"), 400, "bad-request")
    refusal(await gateway.ask("POST", "/v1/sessions/s/claim", content=b"{}"), 400, "bad-request")
    refusal(await gateway.ask("POST", "/v1/sessions/s/release"), 400, "bad-request")
    refusal(await gateway.append("s", params={}), 400, "bad-request")
    for query in (
        {"min_seq": "-1"},
        {"min_seq": "x"},
        {"wait_ms": "1_0"},
        {"wait_ms": "99999999"},
        {"min_seq": "٣"},
    ):
        refusal(await gateway.get("s", "messages", params=query), 400, "bad-request")
    refusal(await gateway.append("s", user("x"), params={"ack": "maybe"}), 400, "bad-request")
    refusal(await gateway.append("s", user("x"), params={"expectedSeq": "-1"}), 400, "bad-request")


async def test_ids_and_tokens_that_cannot_be_are_malformed(gateway: Gateway) -> None:
    await gateway.create("s")
    for path in ("/v1/sessions/%ff/head", "/v1/sessions/" + "x" * 600):
        refusal(await gateway.ask("GET", path), 400, "malformed")
    refusal(await gateway.get("s", "messages", params={"after": "what"}), 400, "malformed")


async def test_unknown_things_are_told_apart(gateway: Gateway) -> None:
    for rest in ("messages", "head", "", "surface", "transcript", "events", "stream"):
        refusal(await gateway.get("nobody", rest), 404, "no-session")
    refusal(await gateway.append("nobody", user("x")), 404, "no-session")
    for path in ("/", "/v2/sessions", "/v1/sessions/a/what", "/v1/sessions//messages", "/v1/sessions/"):
        refusal(await gateway.ask("GET", path), 404, "no-route")
    answer = await gateway.ask("PUT", "/v1/sessions/a")
    refusal(answer, 405, "method-not-allowed")
    assert "GET" in answer.headers["allow"]


async def test_a_contract_refusal_is_unprocessable_and_leaves_nothing(gateway: Gateway) -> None:
    await gateway.create("s")
    await gateway.append("s", user("0"))
    ends = [gateway.room.topic.end(partition) for partition in range(2)]
    bad = {"type": "user/message", "data": {"role": "user", "content": []}}
    refusal(await gateway.append("s", bad), 422, "surface-op-required")
    refusal(await gateway.append("s", user("fine"), {"type": "nobody/knows", "data": 1}), 422, "type-unknown")
    gap = user("x", surfaceOp={"op": "replace", "startSeq": 7, "endSeq": 7}, sourceEventSeqs=[0])
    refusal(await gateway.append("s", gap), 422, "replace-not-earlier")
    assert [gateway.room.topic.end(partition) for partition in range(2)] == ends
    assert (await gateway.append("s", user("1"))).json()["seq"] == 1


async def test_a_body_beyond_the_limit_is_too_large_however_it_comes() -> None:
    async with open_gateway(GatewaySettings(body_bytes_max=2048)) as gateway:
        await gateway.create("s")

        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b" " * (1 << 20)

        large = json.dumps(user("x" * 4000)).encode()
        refusal(await gateway.ask("POST", "/v1/sessions/s/events", content=large), 413, "too-large")
        refusal(await gateway.ask("POST", "/v1/sessions/s/events", content=endless()), 413, "too-large")
        assert (await gateway.messages("s"))["seq"] == 0


async def test_an_unknown_outcome_names_its_commit_and_is_told_later() -> None:
    async with open_gateway() as gateway:
        await gateway.create("s")
        await gateway.append("s", user("0"))
        gateway.room.folding = False
        answer = await gateway.append("s", user("1"), params={"timeoutMs": 150})
        commit = refusal(answer, 504, "unknown-outcome")["commitId"]
        gateway.room.folding = True
        told = (await gateway.get("s", f"commits/{commit}")).json()
        assert (told["outcome"], told["landed"], told["seq"]) == ("accepted", True, 1)
        assert (await gateway.get("s", "commits/nothing-known")).json()["outcome"] == "unknown"


async def test_a_lock_that_stays_held_is_told_as_locked(gateway: Gateway) -> None:
    # Made through another process: whoever made it may write on under the lock that it still has.
    other = await gateway.room.producer()
    await other.create("local", header("s"))
    keys = partition_keys(gateway, "s").session(record_key("local", "s"))
    await gateway.room.cache.call("SET", keys.lock, b"somebody", b"PX", 60_000)
    refusal(await gateway.append("s", user("0"), params={"timeoutMs": 100}), 423, "locked")


async def test_a_cache_that_was_lost_is_never_an_empty_answer(gateway: Gateway) -> None:
    await gateway.create("s")
    await gateway.append("s", user("0"))
    gateway.room.folding = False
    await asyncio.sleep(0.02)
    gateway.room.cache.flush()
    for rest in ("messages", "head", "events"):
        answer = await gateway.get("s", rest, params={"wait_ms": 0})
        refusal(answer, 503, "rebuilding")
        assert answer.headers["retry-after"] == "1"
    gateway.room.folding = True
    assert said((await gateway.messages("s"))["messages"]) == ["0"]


async def test_a_session_behind_the_checkpoint_is_not_called_unknown(gateway: Gateway) -> None:
    await gateway.create("other")
    gateway.room.folding = False
    await asyncio.sleep(0.02)
    made = asyncio.create_task(gateway.create("s", openId=None))
    await asyncio.sleep(0.02)
    asked = asyncio.create_task(gateway.get("s", "messages"))
    await asyncio.sleep(0.05)
    assert not asked.done()
    gateway.room.folding = True
    assert (await asked).status_code == 200
    assert (await made).status_code == 201


async def test_a_lost_list_of_messages_is_not_an_empty_one(gateway: Gateway) -> None:
    await gateway.create("s")
    await gateway.append("s", user("0"))
    gateway.room.folding = False
    await asyncio.sleep(0.02)
    for key in gateway.room.cache.data.keys():
        if b":messages:" in key:
            gateway.room.cache.data.call("DEL", key)
    refusal(await gateway.get("s", "messages", params={"wait_ms": 0}), 503, "rebuilding")


async def test_servers_that_are_away_are_unavailable_and_not_named(gateway: Gateway) -> None:
    await gateway.create("s")
    gateway.room.cache.available = False
    refusal(await gateway.get("s", "messages"), 503, "unavailable")
    ready = await gateway.ask("GET", "/readyz")
    assert (ready.status_code, ready.json()) == (503, {"log": "ok", "cache": "unavailable"})
    assert (await gateway.ask("GET", "/healthz")).status_code == 200
    gateway.room.cache.available = True
    assert (await gateway.ask("GET", "/readyz")).json() == {"log": "ok", "cache": "ok"}


def partition_keys(gateway: Gateway, session: str, tenant: str = "local") -> PartitionKeys:
    topic = gateway.room.topic
    partition = partition_of(record_key(tenant, session), topic.partitions)
    return PartitionKeys(tag_of(partition, topic.partitions, gateway.services.log.topic), 1)


async def test_a_halted_partition_is_told_by_what_halted_it(gateway: Gateway) -> None:
    await gateway.create("s")
    gateway.room.folding = False
    await asyncio.sleep(0.02)
    await gateway.room.cache.call("HSET", partition_keys(gateway, "s").checkpoint, b"halted", b"log-truncated")
    refusal(await gateway.get("s", "messages"), 500, "log-truncated")


async def test_a_parked_session_shows_its_last_good_state_and_says_so(gateway: Gateway) -> None:
    other = await gateway.room.producer()
    await other.create("local", header("s"))
    await other.append("local", "s", [draft("0")])
    gateway.room.folding = False
    await asyncio.sleep(0.02)
    keys = partition_keys(gateway, "s")
    parked = b'[0,"faulted",1,"faulted",2]'
    await gateway.room.cache.call("HSET", keys.directory, record_key("local", "s"), parked)
    found = await gateway.messages("s")
    assert (said(found["messages"]), found["faulted"]) == (["0"], True)
    assert (await gateway.get("s", "head")).json()["status"] == "faulted"
    refusal(await gateway.append("s", user("1"), params={"timeoutMs": 500}), 409, "faulted")


async def test_a_fault_of_ours_is_told_without_its_words(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret words")

    monkeypatch.setattr(type(gateway.services.reads), "head", broken)
    answer = await gateway.get("s", "head")
    assert refusal(answer, 500, "internal") == {}
    assert "secret" not in answer.text
    assert "secret words" in caplog.text


async def test_more_live_tails_than_the_server_takes_are_turned_away() -> None:
    async with open_gateway(GatewaySettings(streams_max=1)) as gateway:
        await gateway.create("s")
        stream = await gateway.services.streams.start("local", "s", 0)
        assert (await anext(stream)).startswith(b": stream")
        answer = await gateway.get("s", "stream")
        refusal(answer, 429, "overloaded")
        assert "retry-after" in answer.headers
        await cast(AsyncGenerator[bytes, None], stream).aclose()
        assert gateway.services.streams.open == 0


async def test_a_tenant_sees_its_own_sessions_and_no_sign_of_others() -> None:
    digests = [sha256(key).hexdigest() for key in (b"one", b"two")]
    keys = Secret(f"acme {digests[0]}, other {digests[1]}")
    async with open_gateway(GatewaySettings(api_keys=keys)) as gateway:
        one, two = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
        assert (await gateway.create("s")).status_code == 401
        answer = await gateway.get("s", "messages")
        refusal(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
        body = {"id": "s"}
        assert (await gateway.ask("POST", "/v1/sessions", json=body, headers=one)).status_code == 201
        assert (await gateway.append("s", user("mine"), headers=one)).status_code == 201
        theirs = await gateway.get("s", "messages", headers=two)
        nobodys = await gateway.get("nobody", "messages", headers=two)
        assert (theirs.status_code, theirs.content) == (404, nobodys.content)
        assert (await gateway.append("s", user("x"), headers=two)).status_code == 404
        assert (await gateway.ask("POST", "/v1/sessions", json=body, headers=two)).status_code == 201
        mine = await gateway.get("s", "messages", headers=one)
        assert said(mine.json()["messages"]) == ["mine"]
        claimed = await gateway.get("s", "messages", headers=two | {"X-Tenant": "acme"}, params={"tenant": "acme"})
        assert claimed.json()["messages"] == []


async def test_figures_are_shown_to_strangers_only_where_there_are_none() -> None:
    keys = Secret(f"acme {sha256(b'one').hexdigest()}")
    async with open_gateway(GatewaySettings(host="0.0.0.0", api_keys=keys)) as gateway:  # noqa: S104
        refusal(await gateway.ask("GET", "/metrics"), 401, "unauthorized")
        scraped = await gateway.ask("GET", "/metrics", headers={"Authorization": "Bearer one"})
        assert "surfacelog_gateway_requests_total" in scraped.text
        assert (await gateway.ask("GET", "/healthz")).status_code == 200
        assert (await gateway.ask("GET", "/readyz")).status_code == 200
    async with open_gateway() as local:
        assert (await local.ask("GET", "/metrics")).status_code == 200


async def test_no_refusal_names_a_topic_a_key_or_a_host(gateway: Gateway) -> None:
    await test_unreadable_requests_are_bad_requests(gateway)
    await test_unknown_things_are_told_apart(gateway)
    await test_servers_that_are_away_are_unavailable_and_not_named(gateway)
    assert len(gateway.refusals) > 20
    for text in gateway.refusals:
        for word in ("surfacelog.", "sl:{", gateway.services.log.topic, "local/", "partition ", "offset"):
            assert word not in text, text


def test_every_code_has_its_status_and_nothing_else_has_one() -> None:
    assert set(PROTOCOL_CODES) | set(HTTP_CODES) <= set(STATUS)
    assert set(STATUS) - set(PROTOCOL_CODES) - set(HTTP_CODES) == {"json-invalid"}
    assert {status_of(code) for code in CONTRACT_CODES} == {400, 422}
    expected = {
        "no-session": 404, "gone": 410, "session-exists": 409, "seq-conflict": 409, "chain-conflict": 409,
        "fenced": 409, "stale-claim": 409, "key-reused": 422, "key-expired": 409, "malformed": 400, "locked": 423,
        "unknown-outcome": 504, "rebuilding": 503, "overloaded": 429, "too-large": 413, "faulted": 409,
        "log-truncated": 500,
    }  # fmt: skip
    assert {code: STATUS[code] for code in expected} == expected
