"""Runners of the cases in which several writers meet at one session."""

import asyncio
from typing import Any

import msgspec

from surfacelog.errors import LedgerError
from surfacelog.events import decode_event, encode_line
from surfacelog.keys import partition_of, record_key
from surfacelog.lifecycle import report
from surfacelog.records import Record
from tests.faults.race_cases import as_draft, as_given, bare
from tests.faults.race_room import NOW_MS, TENANT, History, Node, RaceRoom

__all__ = ["run_parallel", "run_repeat", "run_resume", "run_stale"]

Event = dict[str, Any]


async def run_parallel(case: Event, room: RaceRoom) -> None:
    """Appends at once through two nodes: as many yes as events, each at the seq that its caller was told."""
    wanted = case["generate"]
    nodes = [await room.new_node(), await room.new_node()]
    await nodes[0].create("s", checks="paired")
    names = [f"caller-{number}" for number in range(wanted["parallel"])]
    offers = [_renamed(wanted["append"], name, number) for number, name in enumerate(names)]
    answers = await asyncio.gather(
        *(nodes[number % 2].append("s", offered) for number, offered in enumerate(offers))
    )
    assert [answer.status_code for answer in answers] == [201] * len(names)
    history = await room.history("s")
    told = {answer.json()["seq"]: name for answer, name in zip(answers, names, strict=True)}
    assert [event["seq"] for event in history.events] == list(range(len(names)))
    assert {event["seq"]: event["data"]["id"] for event in history.events} == told
    for node in nodes:
        shown = await node.get("s", "messages", min_seq=len(names))
        assert [message["id"] for message in shown["messages"]] == [told[seq] for seq in sorted(told)]


def _renamed(event: Event, name: str, number: int) -> Event:
    text = msgspec.json.encode(event).decode().replace("<caller-n>", name).replace("caller n", f"caller {number}")
    found: Event = msgspec.json.decode(text)
    return found


async def run_repeat(case: Event, room: RaceRoom) -> None:
    """Every call is made to one node, then asked again of another one, which must answer the same."""
    node, other = await room.new_node(), await room.new_node()
    await node.create("s")
    written: dict[str, int] = {}
    for call, seq in zip(case["calls"], case["mustSeq"], strict=True):
        if call.get("restart"):
            await room.stop(node)
            node = await room.new_node()
            continue
        for asked in (node, other, node):
            answer = await asked.append("s", call["append"], headers={"Idempotency-Key": call["key"]})
            if seq == "refuse":
                assert (answer.status_code, answer.json()["code"]) == (422, "key-reused")
            else:
                assert (answer.status_code, answer.json().get("seq")) == (201, seq), answer.text
                written[call["key"]] = seq
    history = await room.history("s")
    assert len(history.lines) == len(written)
    commits = [record for record, verdict in history.records if record.kind == "commit" and verdict.landed]
    # In the log itself, so that a cache that lost everything knows the keys again.
    assert all(record.key is not None and len(record.key.key) > 0 for record in commits)
    assert {record.seq for record in commits} == set(written.values())


async def run_stale(case: Event, room: RaceRoom) -> None:
    """Two runs that have seen the same head append at once: one is told the new head, and nothing of it is in the
    history, neither now nor when it goes on with the seqs that it had planned."""
    as_given(case, lifecycle="refuse")
    events: list[Event] = case["events"]
    refused_at = case["expect"]["ours"]["refuseAt"]
    head = refused_at - 1
    runs = [_turn_of(events, head), _turn_of(events, refused_at)]
    nodes = [await room.new_node(), await room.new_node()]
    await nodes[0].create("s")
    assert (await nodes[0].append("s", *map(bare, events[:head]))).status_code == 201
    for node in nodes:
        assert (await node.get("s", "surface", min_seq=head))["seq"] == head
    answers = await asyncio.gather(
        *(node.append("s", bare(run[0]), expectedSeq=head) for node, run in zip(nodes, runs, strict=True))
    )
    assert sorted(answer.status_code for answer in answers) == [201, 409], [answer.text for answer in answers]
    winner = [answer.status_code for answer in answers].index(201)
    refusal = answers[1 - winner].json()
    assert refusal["code"] == "seq-conflict"
    assert refusal["detail"]["nextSeq"] == head + 1
    # The loser goes on as it had planned, behind an event of its own that is not there.
    for place, event in enumerate(runs[winner][1:], head + 1):
        late = await nodes[1 - winner].append("s", bare(runs[1 - winner][place - head]), expectedSeq=place - 1)
        assert (late.status_code, late.json()["code"]) == (409, "seq-conflict")
        went_on = await nodes[winner].append("s", bare(event), expectedSeq=place)
        assert (went_on.status_code, went_on.json()["seq"]) == (201, place), went_on.text
    history = await room.history("s")
    kept = [bare(event) for event in history.events]
    assert kept == list(map(bare, [*events[:head], *runs[winner]]))
    assert report(map(decode_event, history.lines)) == []
    assert history.session().next_seq == len(kept)


def _turn_of(events: list[Event], start: int) -> list[Event]:
    """What the run whose assistant message is `events[start]` would write to the end of its turn."""
    calls = {part["id"] for part in events[start]["data"]["message"]["content"] if part["type"] == "tool-call"}
    own = [place for place in range(start + 1, len(events)) if _call_of(events[place]) in calls]
    behind = [event for event in events[max(own, default=start) + 1 :] if _call_of(event) is None]
    ends = [next(event for event in behind if event["type"] == kind) for kind in ("step/end", "turn/end")]
    return [events[start], *(events[place] for place in own), *ends]


def _call_of(event: Event) -> str | None:
    data = event["data"]
    found: str | None = data.get("callId") or data.get("message", {}).get("toolCallId")
    return found


async def run_resume(case: Event, room: RaceRoom) -> None:
    """Two processes take a session up at once; and what they would have written without claims is refused."""
    as_given(case)
    events: list[Event] = case["events"]
    twice = next((place for place, event in enumerate(events) if event["seq"] != place), len(events))
    head = events[twice]["seq"] if twice < len(events) else len(events)
    seed, first, second = events[:head], events[head:twice], events[twice:]
    nodes = [await room.new_node(), await room.new_node()]
    await _read_only(room, nodes[0], seed)
    await _claimed_before_the_marker(room, nodes, seed, first or second, second)
    await _without_claims(room, nodes[0], seed, first, second)
    await _half_open(room, nodes, seed)


async def _seeded(node: Node, session: str, seed: list[Event]) -> None:
    await node.create(session)
    if seed:
        assert (await node.append(session, *map(bare, seed))).status_code == 201


async def _read_only(room: RaceRoom, node: Node, seed: list[Event]) -> None:
    """Opening a session to read it writes nothing, whichever way it is read."""
    await _seeded(node, "read", seed)
    before = await room.log.ends(range(room.log.partitions), 10_000)
    reader = await room.new_node()
    for what in ("", "head", "messages", "surface", "transcript", "events"):
        assert (await reader.get("read", what, min_seq=len(seed)))["seq"] == len(seed)
    frames = await reader.services.streams.start(TENANT, "read", 0)
    assert (await anext(frames)).startswith(b": stream from 0")
    await frames.aclose()  # type: ignore[attr-defined]
    await room.stop(reader)
    assert await room.log.ends(range(room.log.partitions), 10_000) == before


async def _claimed_before_the_marker(
    room: RaceRoom, nodes: list[Node], seed: list[Event], marker: list[Event], after: list[Event]
) -> None:
    """Two processes each claim, write the marker, and go on: the marker of one stands, behind its claim, and the
    other one is told before it wrote anything."""
    await _seeded(nodes[0], "claims", seed)

    async def run(node: Node, owner: str) -> str:
        try:
            held = await node.producer.claim(TENANT, "claims", owner)
            for event in [*marker, *after]:
                await node.producer.append(TENANT, "claims", [as_draft(event)], fence=held.fence)
        except LedgerError as error:
            return error.code
        return "went on"

    told = await asyncio.gather(*(run(node, f"owner-{number}") for number, node in enumerate(nodes)))
    assert sorted(told) == ["fenced", "went on"]
    history = await room.history("claims")
    assert [bare(event) for event in history.events] == list(map(bare, [*seed, *marker, *after]))
    _each_commit_stands_behind_its_claim(history, len(seed))
    # One that takes over by force ends the other: its marker is written under its own claim, or not at all.
    await asyncio.gather(
        *(_by_force(node, f"late-{number}", marker[:1]) for number, node in enumerate(nodes)),
        return_exceptions=True,
    )
    _each_commit_stands_behind_its_claim(await room.history("claims"), len(seed))


async def _by_force(node: Node, owner: str, marker: list[Event]) -> None:
    held = await node.producer.claim(TENANT, "claims", owner, takeover=True)
    await node.producer.append(TENANT, "claims", list(map(as_draft, marker)), fence=held.fence)


def _each_commit_stands_behind_its_claim(history: History, seeded: int) -> None:
    claimed = 0
    fence = "0:"
    for record, verdict in history.records:
        if verdict.outcome != "accepted":
            continue
        if record.kind == "claim":
            claim = msgspec.json.decode(record.value)
            claimed += 1
            fence = f"{claim['epoch']}:{claim['owner']}:{claim['claim']}"
        elif record.kind == "commit" and record.seq >= seeded:
            assert record.fence == fence, "a commit of somebody who does not hold the session"
    assert claimed > 0


async def _without_claims(
    room: RaceRoom, node: Node, seed: list[Event], first: list[Event], second: list[Event]
) -> None:
    """The records that both processes would write on the head that both had seen, put straight into the log: the
    second's are refused, all of them, and the projection shows the first's history."""
    await _seeded(node, "log", seed)
    state = (await room.history("log")).state
    key = record_key(TENANT, "log")
    outcomes = []
    for process, events in (("a", first), ("b", second)):
        view = (await room.history("log")).state if process == "a" else state
        chain, written = view.chain, 0
        for event in events:
            line = encode_line(as_draft(event), event["seq"], NOW_MS)
            record = Record(
                "commit",
                f"{process}-{written}",
                line,
                prev=chain,
                fence=view.claim.released().fence,
                seq=event["seq"],
            )
            await room.log.produce(
                partition_of(key, room.log.partitions), key, record.headers(), record.value, 10_000
            )
            written += 1
            verdict = (await room.history("log")).records[-1][1]
            chain = verdict.chain if verdict.outcome == "accepted" else chain
            outcomes.append((verdict.outcome, verdict.code))
    assert outcomes[: len(first)] == [("accepted", "")] * len(first)
    assert {outcome for outcome, _ in outcomes[len(first) :]} <= {"rejected"}
    assert {code for _, code in outcomes[len(first) :]} <= {"seq-conflict", "chain-conflict"}
    if first and second:
        assert outcomes[len(first)][1] == "seq-conflict"
    shown = await node.get("log", "events", min_seq=len(seed) + len(first))
    assert [bare(event)["type"] for event in shown["events"]] == [event["type"] for event in [*seed, *first]]
    done = await node.append("log", bare(seed[0]))
    assert done.json()["seq"] == len(seed) + len(first)


async def _half_open(room: RaceRoom, nodes: list[Node], seed: list[Event]) -> None:
    """A turn that a crash cut is closed once, although two runs resume it at once."""
    cut = seed[:-1]
    if not cut or cut[-1]["type"] == "turn/end":
        return
    await _seeded(nodes[0], "cut", cut)
    done = await asyncio.gather(
        *(
            node.producer.resume(TENANT, "cut", f"owner-{number}", takeover=True)
            for number, node in enumerate(nodes)
        ),
        return_exceptions=True,
    )
    resumed = [answer for answer in done if not isinstance(answer, BaseException)]
    codes = [
        answer.code if isinstance(answer, LedgerError) else repr(answer)
        for answer in done
        if answer not in resumed
    ]
    assert resumed
    assert set(codes) <= {"fenced", "stale-claim"}
    history = await room.history("cut")
    assert report(map(decode_event, history.lines)) == []
    ends = [event for event in history.events if event["type"] == "turn/end"]
    assert len(ends) == 1
    _each_commit_stands_behind_its_claim(history, len(cut))
