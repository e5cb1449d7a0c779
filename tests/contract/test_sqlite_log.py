"""What the SQLite log promises beyond every log: one process at a time, nothing acknowledged is ever lost."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from producer.connect import open_log
from producer.log import EventLog, Unavailable
from producer.settings import ServerSettings
from producer.sqlite_log import SqliteLog
from surfacelog.errors import ProtocolError

CHILD = """
import asyncio, sys
from pathlib import Path
from producer.sqlite_log import SqliteLog

async def write(log, partition):
    while True:
        offset = await log.produce(partition, b"k", [], b"%d" % partition, 5000)
        print(partition, offset, flush=True)

async def main():
    log = await SqliteLog.open(Path(sys.argv[1]), partitions=4)
    await asyncio.gather(*(write(log, number % 4) for number in range(40)))

asyncio.run(main())
"""


async def refusal(path: Path, topic: str = "surfacelog", partitions: int | None = None) -> str:
    with pytest.raises(ProtocolError) as caught:
        await SqliteLog.open(path, topic, partitions)
    assert caught.value.code == "misconfigured"
    return caught.value.message


async def write_one(log: EventLog) -> None:
    assert await log.produce(0, b"k", [], b"v", 5000) == 0


async def test_a_killed_process_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(400)]
    child.send_signal(signal.SIGKILL)
    rest, _ = child.communicate()
    lines += [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    told: dict[int, int] = {}
    for line in lines:
        partition, offset = map(int, line.split())
        told[partition] = max(offset, told.get(partition, -1))
    log = await SqliteLog.open(tmp_path)
    for partition in range(4):
        records = await log.read(partition, 0, 100_000, 5000)
        assert [record.offset for record in records] == list(range(len(records)))
        assert 0 <= told[partition] < len(records)
    await log.close()


async def test_another_process_is_refused_by_name_until_the_first_one_ends(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    said = await refusal(tmp_path)
    assert f"in use by process {child.pid}" in said
    assert "SURFACELOG_DATA_DIR" in said
    child.kill()
    child.communicate()
    log = await SqliteLog.open(tmp_path)
    await log.close()


async def test_a_process_that_has_it_open_is_refused_too(tmp_path: Path) -> None:
    log = await SqliteLog.open(tmp_path)
    assert f"process {os.getpid()}" in await refusal(tmp_path)
    await log.close()
    again = await SqliteLog.open(tmp_path)
    await again.close()


async def test_a_file_of_another_topic_or_shape_or_format_is_refused(tmp_path: Path) -> None:
    log = await SqliteLog.open(tmp_path, "one", 4)
    await log.close()
    assert "holds topic one" in await refusal(tmp_path, "two")
    assert "has 4 partitions, not 5" in await refusal(tmp_path, "one", 5)
    db = sqlite3.connect(tmp_path / "log.sqlite")
    db.execute("UPDATE facts SET value = '2' WHERE name = 'format'")
    db.commit()
    db.close()
    assert "format 2" in await refusal(tmp_path, "one")


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "log.sqlite").write_bytes(b"a diary" * 200)
    assert "log.sqlite" in await refusal(tmp_path)
    assert (tmp_path / "log.sqlite").read_bytes() == b"a diary" * 200


async def test_a_new_file_has_another_topic_id(tmp_path: Path) -> None:
    one = await SqliteLog.open(tmp_path / "one")
    two = await SqliteLog.open(tmp_path / "two")
    assert one.topic_id != two.topic_id
    await one.close()
    await two.close()


async def test_many_waiting_writes_share_transactions(tmp_path: Path) -> None:
    log = await SqliteLog.open(tmp_path, partitions=4)
    db = sqlite3.connect(tmp_path / "log.sqlite")
    await write_one(log)
    # The WAL's size in pages tells how many commits there were: each one writes at least the page that it changes.
    await asyncio.gather(*(log.produce(1, b"k", [], b"x" * 40, 5000) for _ in range(1000)))
    pages = (tmp_path / "log.sqlite-wal").stat().st_size / 4096
    assert pages < 200
    db.close()
    await log.close()


async def test_a_full_disk_is_told_and_uses_nothing_up(tmp_path: Path) -> None:
    log = await SqliteLog.open(tmp_path, partitions=2)
    await write_one(log)
    blocker = sqlite3.connect(tmp_path / "log.sqlite")
    # A trigger that fails stands for a disk that does: the transaction ends in the same place.
    blocker.execute("CREATE TRIGGER full BEFORE INSERT ON records BEGIN SELECT RAISE(ABORT, 'disk full'); END")
    blocker.commit()
    with pytest.raises(Unavailable, match="disk full"):
        await log.produce(0, b"k", [], b"v", 5000)
    blocker.execute("DROP TRIGGER full")
    blocker.commit()
    blocker.close()
    assert await log.produce(0, b"k", [], b"v", 5000) == 1
    assert await log.ends([0], 1000) == {0: 2}
    await log.close()


async def test_a_write_that_did_not_begin_in_time_is_certainly_not_written(tmp_path: Path) -> None:
    log = await SqliteLog.open(tmp_path, partitions=2)
    await write_one(log)
    blocker = sqlite3.connect(tmp_path / "log.sqlite", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    stuck = asyncio.create_task(log.produce(0, b"k", [], b"stuck", 5000))
    await asyncio.sleep(0.05)
    with pytest.raises(Unavailable):
        await log.produce(0, b"k", [], b"late", 100)
    blocker.execute("ROLLBACK")
    blocker.close()
    assert await stuck == 1
    assert [record.value for record in await log.read(0, 1, 10, 1000)] == [b"stuck"]
    await log.close()


async def test_settings_without_kafka_open_the_log_in_the_data_directory(tmp_path: Path) -> None:
    log = await open_log(ServerSettings(data_dir=str(tmp_path / "data")))
    assert (log.partitions, log.topic) == (8, "surfacelog")
    assert (tmp_path / "data" / "log.sqlite").exists()
    await log.close()


async def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = await SqliteLog.open(tmp_path)
    await log.close()
    await log.close()
    with pytest.raises(Unavailable, match="closed"):
        await log.produce(0, b"k", [], b"v", 1000)
    with pytest.raises(Unavailable, match="closed"):
        await log.read(0, 0, 1, 1000)
