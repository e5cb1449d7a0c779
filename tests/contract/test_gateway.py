"""The HTTP interface over the shipped twins: every code with its status, and what stands behind the answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import GatewaySettings
from tests.contract.gateway_room import Gateway, open_gateway, refusal, said, user

COLLISIONS = Path(__file__).parent / "cases" / "65-session-key-collision.json"


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with open_gateway() as made:
        yield made


async def test_a_session_is_made_filled_and_read(gateway: Gateway) -> None:
    made = await gateway.create("s", title="first")
    assert made.status_code == 201
    assert made.json()["seq"] == 0
    one = await gateway.append("s", user("one"))
    two = await gateway.append("s", user("two"), user("three"))
    assert (one.status_code, two.status_code) == (201, 201)
    assert (one.json()["seq"], two.json()["seq"], two.json()["count"], two.json()["nextSeq"]) == (0, 1, 2, 3)
    found = await gateway.messages("s")
    assert said(found["messages"]) == ["one", "two", "three"]
    assert (found["seq"], found["generation"], found["rebuilt"]) == (3, 0, False)
    whole = (await gateway.get("s")).json()
    assert whole["header"]["title"] == "first"
    assert whole["chain"] == two.json()["chain"]
    assert (await gateway.get("s", "surface")).json()["nodes"] == [0, 1, 2]


async def test_an_open_but_empty_session_has_no_messages_and_says_so(gateway: Gateway) -> None:
    await gateway.create("s")
    found = await gateway.messages("s")
    assert (found["seq"], found["messages"]) == (0, [])
    assert (await gateway.get("s", "events")).json()["events"] == []
    assert (await gateway.get("s", "transcript")).json()["events"] == []


async def test_data_comes_back_byte_for_byte(gateway: Gateway) -> None:
    await gateway.create("s")
    data = b'{"z":1.50 , "role":"user","a":"\\ud800\\u0000\\u2028","n":123456789012345678901,"content":[]}'
    event = b'{"type":"user/message","data":' + data + b',"surfaceOp":"append"}'
    assert (await gateway.ask("POST", "/v1/sessions/s/events", content=event)).status_code == 201
    for rest in ("messages", "events", "transcript"):
        assert data in (await gateway.get("s", rest)).content


async def test_a_replace_shrinks_what_the_model_sees_and_never_the_transcript(gateway: Gateway) -> None:
    await gateway.create("s")
    await gateway.append("s", *(user(str(number)) for number in range(5)))
    replace = user("summary", surfaceOp={"op": "replace", "startSeq": 1, "endSeq": 3}, sourceEventSeqs=[1, 2, 3])
    assert (await gateway.append("s", replace)).status_code == 201
    found = await gateway.messages("s")
    assert said(found["messages"]) == ["0", "summary", "4"]
    assert found["generation"] == 1
    seen = (await gateway.get("s", "transcript")).json()["events"]
    assert [event["seq"] for event in seen] == [0, 1, 2, 3, 4]


async def test_a_token_brings_only_what_is_new_until_the_generation_changes(gateway: Gateway) -> None:
    await gateway.create("s")
    await gateway.append("s", user("0"), user("1"))
    token = (await gateway.messages("s"))["token"]
    nothing = await gateway.messages("s", after=token)
    assert (nothing["messages"], nothing["rebuilt"]) == ([], False)
    await gateway.append("s", user("2"))
    new = await gateway.messages("s", after=token)
    assert (said(new["messages"]), new["rebuilt"]) == (["2"], False)
    replace = user("01", surfaceOp={"op": "replace", "startSeq": 0, "endSeq": 1}, sourceEventSeqs=[0, 1])
    await gateway.append("s", replace)
    whole = await gateway.messages("s", after=new["token"])
    assert (said(whole["messages"]), whole["rebuilt"]) == (["01", "2"], True)


async def test_the_token_of_an_append_brings_all_with_the_append_in_it(gateway: Gateway) -> None:
    await gateway.create("s")
    token = (await gateway.append("s", user("0"), user("1"))).json()["token"]
    found = await gateway.messages("s", after=token)
    assert (said(found["messages"]), found["rebuilt"]) == (["0", "1"], True)


async def test_a_token_of_another_session_brings_all_at_once(gateway: Gateway) -> None:
    await gateway.create("a")
    await gateway.create("b")
    await gateway.append("a", *(user(str(number)) for number in range(9)))
    await gateway.append("b", user("only"))
    token = (await gateway.messages("a"))["token"]
    found = await gateway.messages("b", after=token)
    assert (said(found["messages"]), found["rebuilt"]) == (["only"], True)


async def test_an_unchanged_state_is_not_sent_again(gateway: Gateway) -> None:
    await gateway.create("s")
    await gateway.append("s", user("0"))
    first = await gateway.get("s", "messages")
    etag = first.headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}'):
        again = await gateway.get("s", "messages", headers={"if-none-match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["surfacelog-seq"] == "1"
    await gateway.append("s", user("1"))
    changed = await gateway.get("s", "messages", headers={"if-none-match": etag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != etag


async def test_a_read_waits_for_the_seq_that_it_asks_for(gateway: Gateway) -> None:
    await gateway.create("s")
    waiting = asyncio.create_task(gateway.messages("s", min_seq=2, wait_ms=5000))
    await gateway.append("s", user("0"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await gateway.append("s", user("1"))
    assert said((await waiting)["messages"]) == ["0", "1"]


async def test_a_state_that_does_not_come_is_refused_with_the_present_position(gateway: Gateway) -> None:
    await gateway.create("s")
    await gateway.append("s", user("0"))
    for rest in ("messages", "head", "", "surface", "transcript", "events"):
        answer = await gateway.get("s", rest, params={"min_seq": 2, "wait_ms": 20})
        assert refusal(answer, 503, "rebuilding") == {"seq": 1, "generation": 0}
        assert answer.headers["retry-after"] == "1"


async def test_events_come_in_pages_that_say_where_to_go_on(gateway: Gateway) -> None:
    await gateway.create("s")
    for number in range(0, 90, 3):
        await gateway.append("s", *(user(str(number + place)) for place in range(3)))
    found: list[dict[str, Any]] = []
    start: int | None = 0
    while start is not None:
        page = (await gateway.get("s", "events", params={"from": start, "limit": 7})).json()
        assert page["from"] == start
        found += page["events"]
        start = page["next"]
    assert [event["seq"] for event in found] == list(range(90))
    page = (await gateway.get("s", "events", params={"from": 40, "to": 44})).json()
    assert ([event["seq"] for event in page["events"]], page["next"]) == ([40, 41, 42, 43], None)
    beyond = (await gateway.get("s", "events", params={"from": 500})).json()
    assert (beyond["events"], beyond["next"]) == ([], None)


async def test_a_page_is_bounded_in_bytes_and_never_empty() -> None:
    async with open_gateway(GatewaySettings(page_bytes_max=1024)) as gateway:
        await gateway.create("s")
        for number in range(6):
            await gateway.append("s", user(str(number) * 600))
        for rest in ("events", "transcript"):
            start: int | None = 0
            count = 0
            while start is not None:
                page = (await gateway.get("s", rest, params={"from": start})).json()
                assert len(page["events"]) == 1
                count += 1
                start = page["next"]
            assert count == 6


async def test_the_transcript_pages_by_its_own_places(gateway: Gateway) -> None:
    await gateway.create("s")
    for number in range(30):
        await gateway.append("s", user(str(number)), {"type": "x/note", "data": 1, "ignorable": True})
    found: list[int] = []
    start: int | None = 0
    while start is not None:
        page = (await gateway.get("s", "transcript", params={"from": start, "limit": 7})).json()
        found += [event["seq"] for event in page["events"]]
        start = page["next"]
    assert found == list(range(0, 60, 2))


async def test_awkward_ids_are_all_different_sessions(gateway: Gateway) -> None:
    ids = json.loads(COLLISIONS.read_text())["sessionIds"]
    made = [name for name in ids if (await gateway.create(name)).status_code == 201]
    assert made == ids
    for name in ids:
        assert (await gateway.append(name, user(name))).json()["seq"] == 0
    for name in ids:
        assert said((await gateway.messages(name))["messages"]) == [name]


async def test_an_id_is_used_once_and_never_again(gateway: Gateway) -> None:
    await gateway.create("s")
    refusal(await gateway.create("s"), 409, "session-exists")
    assert (await gateway.ask("DELETE", "/v1/sessions/s")).status_code == 200
    for rest in ("messages", "head", "events"):
        refusal(await gateway.get("s", rest), 410, "gone")
    refusal(await gateway.append("s", user("x")), 410, "gone")
    refusal(await gateway.create("s"), 410, "gone")
    refusal(await gateway.ask("DELETE", "/v1/sessions/s"), 410, "gone")


async def test_an_expectation_that_fails_is_told_with_the_present_head(gateway: Gateway) -> None:
    await gateway.create("s")
    assert (await gateway.append("s", user("0"), params={"expectedSeq": 0})).status_code == 201
    detail = refusal(await gateway.append("s", user("1"), params={"expectedSeq": 0}), 409, "seq-conflict")
    assert detail["nextSeq"] == 1


async def test_a_repeat_with_its_key_appends_nothing(gateway: Gateway) -> None:
    await gateway.create("s")
    key = {"Idempotency-Key": "k"}
    first = await gateway.append("s", user("0"), headers=key)
    await gateway.append("s", user("1"))
    again = await gateway.append("s", user("0"), headers=key)
    assert (again.status_code, again.json()["seq"]) == (201, first.json()["seq"])
    refusal(await gateway.append("s", user("other"), headers=key), 422, "key-reused")
    assert (await gateway.messages("s"))["seq"] == 2


async def test_a_key_older_than_the_window_is_not_guessed_about(gateway: Gateway) -> None:
    await gateway.create("s")
    for number in range(258):
        await gateway.append("s", user(str(number)), headers={"Idempotency-Key": str(number)})
    answer = await gateway.append("s", user("0"), headers={"Idempotency-Key": "0"}, params={"since": 0})
    refusal(answer, 409, "key-expired")


async def test_a_claim_keeps_others_out_until_it_is_released(gateway: Gateway) -> None:
    await gateway.create("s")
    held = (await gateway.ask("POST", "/v1/sessions/s/claim", json={"owner": "a", "leaseMs": 1000})).json()
    fence = {"Surfacelog-Claim": held["fence"]}
    refusal(await gateway.append("s", user("x")), 409, "fenced")
    refusal(await gateway.ask("POST", "/v1/sessions/s/claim", json={"owner": "b"}), 409, "fenced")
    assert (await gateway.append("s", user("0"), headers=fence)).status_code == 201
    head = (await gateway.get("s", "head")).json()
    assert (head["claim"]["owner"], head["claim"]["epoch"]) == ("a", 1)
    assert held["claimId"] not in json.dumps(head)
    over = await gateway.ask("POST", "/v1/sessions/s/claim", json={"owner": "b", "takeover": True})
    assert over.json()["epoch"] == 2
    refusal(await gateway.append("s", user("x"), headers=fence), 409, "fenced")
    fence = {"Surfacelog-Claim": over.json()["fence"]}
    assert (await gateway.ask("POST", "/v1/sessions/s/release", headers=fence)).status_code == 200
    assert (await gateway.get("s", "head")).json()["claim"] is None
    assert (await gateway.append("s", user("1"))).status_code == 201


async def test_figures_name_routes_and_no_sessions(gateway: Gateway) -> None:
    await gateway.create("hidden-name")
    await gateway.get("hidden-name", "messages")
    await gateway.get("hidden-nobody", "messages")
    text = (await gateway.ask("GET", "/metrics")).text
    assert 'surfacelog_gateway_requests_total{method="GET"' in text
    assert 'surfacelog_gateway_refusals_total{code="no-session"} 1.0' in text
    assert "hidden" not in text
    assert b"hidden".hex() not in text
