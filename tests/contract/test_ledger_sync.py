"""The Python API for scripts, over the embedded ledger: real SQLite and a real Valkey child."""

import inspect
from itertools import islice
from pathlib import Path

import pytest

from gateway.ledger import Ledger
from gateway.ledger_session import LedgerSession, event
from gateway.ledger_sync import SyncLedger, SyncSession
from surfacelog.errors import LedgerError, ProtocolError

USER = {"id": "u", "role": "user", "content": [{"type": "text", "text": "hi"}]}


def test_a_script_keeps_a_session_over_restarts(tmp_path: Path):
    with SyncLedger.connect(tmp_path) as ledger:
        session = ledger.open("s", title="t")
        done = session.append("user/message", USER, surface_op="append", key="k")
        assert session.messages() == [USER]
        assert session.append_many([event("x/n", n, ignorable=True) for n in range(3)]).next_seq == 4
        assert [seen.seq for seen in islice(session.tail(0), 4)] == [0, 1, 2, 3]
        held = session.claim("run-1")
        with pytest.raises(LedgerError) as refusal:
            ledger.session("s").append("x/n", 1, ignorable=True)
        assert refusal.value.code == "fenced"
        session.release()
        assert session.claimed is None
        assert held.epoch == 1
    with SyncLedger.connect(tmp_path) as ledger:
        session = ledger.open("s")
        assert session.seq == 4
        assert session.messages() == [USER]
        assert session.surface() == [0]
        assert session.append("user/message", USER, surface_op="append", key="k").seq == done.seq
        assert [seen.seq for seen in session.events(1, 3)] == [1, 2]
        assert session.head().claim is None


def test_a_data_directory_in_use_is_refused(tmp_path: Path):
    with SyncLedger.connect(tmp_path), pytest.raises(ProtocolError) as refusal, SyncLedger.connect(tmp_path):
        pass
    assert refusal.value.code == "misconfigured"


async def test_the_embedded_ledger_serves_tasks_of_one_loop(tmp_path: Path):
    async with Ledger.connect(tmp_path) as ledger:
        session = await ledger.open("s")
        assert (await session.append("user/message", USER, surface_op="append")).seq == 0
        child = await session.fork(0)
        assert await child.messages() == [USER]


def test_a_server_that_is_not_there_is_said_to_be_unavailable():
    with SyncLedger.connect("http://127.0.0.1:9", patience_s=0) as ledger:
        with pytest.raises(ProtocolError) as refusal:
            ledger.open("s")
    assert refusal.value.code == "unavailable"


def test_the_sync_twin_has_every_method_with_the_same_parameters():
    for waiting, plain in ((LedgerSession, SyncSession), (Ledger, SyncLedger)):
        for name, method in inspect.getmembers(waiting, inspect.isfunction):
            if name.startswith("_") or name in ("saw", "close"):
                continue
            twin = getattr(plain, name)
            assert list(inspect.signature(twin).parameters) == list(inspect.signature(method).parameters), name
