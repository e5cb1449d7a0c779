"""One writing process of the end-to-end test: appends turns to many sessions at once and prints what it was told.

Run as `python -m tests.faults.fleet_writer NAME SESSIONS TURNS`, servers from SURFACELOG_*.
One JSON line an answer: {"session", "seq", "ids"} when acknowledged, {"session", "refused"} when refused.
"""

import asyncio
import os
import sys
from random import Random
from typing import Any

import msgspec

from producer.connect import open_cache, open_log
from producer.producer import Producer
from producer.settings import ServerSettings, read_settings
from surfacelog.errors import LedgerError
from surfacelog.events import Draft
from surfacelog.header import Header
from surfacelog.session import draft

TENANT = "fleet"
# Answers after which the same writer may go on: another one was faster, or changed the surface under it.
EXPECTED_REFUSALS = {
    "replace-start-missing",
    "replace-end-missing",
    "replace-range-reversed",
    "sources-incomplete",
}


def session_name(number: int) -> str:
    """The name of one of the shared sessions."""
    return f"shared-{number}"


def _message(role: str, name: str, text: str, **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "role": role,
        "content": [{"type": "text", "text": text}],
        "source": {"kind": role},
        **more,
    }


def _turn(name: str) -> list[Draft]:
    """A user message and an answer, as one commit."""
    answer = {"turn": 1, "step": 1, "message": _message("assistant", f"{name}-a", "ok " * 20), "stream": []}
    return [
        draft("user/message", _message("user", f"{name}-u", f"from {name}"), surface_op="append"),
        draft("turn/start", {"turn": 1}),
        draft("assistant/message", answer, surface_op="append"),
    ]


def _compaction(name: str, seqs: list[int]) -> list[Draft]:
    """A summary over the seqs that this writer saw on the surface; another writer may have been faster."""
    op = {"op": "replace", "startSeq": seqs[0], "endSeq": seqs[-1]}
    summary = _message("user", f"{name}-s", "[summary]")
    return [draft("user/message", summary, surface_op=op, source_event_seqs=seqs)]


def _ids(drafts: list[Draft]) -> list[str]:
    found = []
    for one in drafts:
        data = msgspec.json.decode(one.data)
        found.append(data.get("id") or data.get("message", {}).get("id") or "")
    return found


def _print(**answer: Any) -> None:
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")


async def _append(producer: Producer, session: str, drafts: list[Draft]) -> int | None:
    try:
        told = await producer.append(TENANT, session, drafts, timeout_ms=60_000)
    except LedgerError as error:
        if error.code not in EXPECTED_REFUSALS:
            raise
        _print(session=session, refused=error.code)
        return None
    _print(session=session, seq=told.seq, ids=_ids(drafts))
    return told.seq


async def _write(producer: Producer, session: str, name: str, turns: int, random: Random) -> None:
    try:
        await producer.create(TENANT, Header(id=session, created_at=1), timeout_ms=60_000)
    except LedgerError as error:
        if error.code != "session-exists":
            raise
    mine: list[int] = []
    for turn in range(turns):
        seq = await _append(producer, session, _turn(f"{name}-{session}-{turn}"))
        assert seq is not None
        mine.append(seq)
        if random.random() < 0.3:
            # Only one node of our own: what stands between two of them is the other writer's.
            over = mine.pop(random.randrange(len(mine)))
            await _append(producer, session, _compaction(f"{name}-{session}-{turn}-c", [over]))


async def _main(name: str, sessions: int, turns: int) -> None:
    settings = read_settings(ServerSettings, os.environ)
    log, cache = await open_log(settings), await open_cache(settings)
    producer = Producer(log, cache)
    await producer.start()
    random = Random(name)
    names = [session_name(number) for number in range(sessions)]
    await asyncio.gather(*(_write(producer, session, name, turns, random) for session in names))
    await producer.close()
    await cache.close()
    await log.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
