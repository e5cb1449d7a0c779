"""The clients of a simulated ledger: each writes and reads one session, remembers what it was told, and now and
then sleeps until everything it knows is old.
"""

import asyncio

import msgspec

from producer.append import Appended, IdempotencyKey
from producer.claims import Claimed
from producer.forking import Forked
from producer.opening import Created
from producer.producer import Producer
from sim.cluster import Cluster
from sim.evidence import TRANSIENT, Answer, Ask
from sim.processes import Gone, ProducerProcess
from sim.readers import Reader
from sim.world import World
from surfacelog.errors import LedgerError
from surfacelog.header import Header

__all__ = ["Client"]

TRIES_MAX = 4


class Client:
    """Writes to one session. `head`: the highest next seq it was told of. `own`: (first seq, count) of its
    accepted appends. `fence`: of the claim that it believes to hold."""

    def __init__(self, world: World, cluster: Cluster, name: str, key: bytes) -> None:
        self.world = world
        self.cluster = cluster
        self.name = name
        self.key = key
        self.tenant, _, self.session = key.decode().partition("/")
        self.head = 0
        self.own: list[tuple[int, int]] = []
        self.keyed: list[Ask] = []
        self._reader = Reader(world, cluster, name, key)
        self.fence: str | None = None
        self.fork_depth = 0

    async def open(self) -> None:
        """Creates the session; keeps on until it is told that it is there."""
        ask = self.world.asks.plain(self.name, self.key, "open")
        for _ in range(TRIES_MAX * 5):
            answer = await self.attempt(ask)
            if answer.outcome == "accepted" or answer.code in ("session-exists", "gone"):
                return
            await asyncio.sleep(0.2)

    async def run(self, operations: int) -> None:
        """The program."""
        chance = self.world.chance
        for _ in range(operations):
            await chance.choices(
                (
                    *(self._write, self._burst, self._hedge, self._repeat, self._misuse, self._read),
                    *(self._claim, self._release, self._relay, self._doze, self._delete, self._fork),
                ),
                (44, 12, 5, 5, 1, 16, 6, 3, 3, 6, 1, 2),
            )[0]()
            if chance.random() < (0.1 if self.world.temper.busy else 0.3):
                await asyncio.sleep(chance.random() * chance.choice((0.01, 0.1, 0.6)))

    async def _write(self) -> None:
        await self._append(self._plan())

    async def _burst(self) -> None:
        """Several at once, as a pipelining client sends them."""
        plans = [self._plan() for _ in range(self.world.chance.choice((2, 3, 5)))]
        await asyncio.gather(*(self._append(plan) for plan in plans))

    async def _hedge(self) -> None:
        """The same keyed request twice at once, as a gateway does that lost patience."""
        ask = msgspec.structs.replace(self._plan(), logged=False)
        ask = msgspec.structs.replace(ask, idempotency=f"k{ask.number}", since=self.head)
        self.keyed.append(ask)
        await asyncio.gather(self._append(ask), self._append(ask))

    async def _repeat(self) -> None:
        """An old request again, whatever it was told the first time."""
        if self.keyed:
            await self._append(self.world.chance.choice(self.keyed))

    async def _misuse(self) -> None:
        """A key of an old request for another one."""
        if self.keyed:
            other = self.world.chance.choice(self.keyed)
            await self._append(
                msgspec.structs.replace(self._plan(), idempotency=other.idempotency, since=other.since)
            )

    def _plan(self) -> Ask:
        chance = self.world.chance
        span: range | tuple[()] = ()
        if self.own and chance.random() < 0.2:
            first, count = chance.choice(self.own[-3:])
            span = range(first, first + count)
        return self.world.asks.append(
            self.name,
            self.key,
            fence=self.fence,
            expected_seq=self.head if chance.random() < 0.25 else None,
            keyed=chance.random() < 0.5,
            since=self.head,
            span=span,
        )

    async def _append(self, ask: Ask) -> None:
        chance = self.world.chance
        if ask.idempotency is not None and ask not in self.keyed:
            self.keyed.append(ask)
        for _ in range(TRIES_MAX):
            answer = await self.attempt(ask)
            if answer.outcome == "accepted":
                self.own.append((answer.seq, answer.count))
                self.head = max(self.head, answer.next_seq)
                return
            if answer.code == "fenced" and self.fence is not None and chance.random() < 0.7:
                # Sometimes it does not understand, and writes on as a zombie does.
                self.fence = None
            again = answer.outcome == "unknown" or answer.code in TRANSIENT
            if ask.idempotency is None or not again:
                if answer.outcome == "unknown" and answer.commit_id and chance.random() < 0.5:
                    await self._inquire(ask, answer)
                return
            await asyncio.sleep(chance.random() * 0.5)

    async def _inquire(self, ask: Ask, unknown: Answer) -> None:
        """Asks what became of a record whose outcome was unknown."""
        try:
            process = self._producer()
            verdict = await process.ask(
                lambda: process.producer.verdict(self.tenant, self.session, unknown.commit_id, timeout_ms=1_000)
            )
        except (LedgerError, Gone):
            return
        if verdict is None:
            return
        outcome = "accepted" if verdict.landed else "refuted"
        self._tell(
            Answer(
                ask.number,
                outcome,
                unknown.end_before,
                self.world.end(self.key),
                verdict.code,
                verdict.seq,
                verdict.count,
                verdict.offset,
                verdict.next_seq,
                commit_id=unknown.commit_id,
            )
        )

    async def _claim(self) -> None:
        ask = self.world.asks.plain(self.name, self.key, "claim", takeover=self.world.chance.random() < 0.5)
        answer = await self.attempt(ask)
        if answer.outcome == "accepted":
            self.fence = answer.fence

    async def _release(self) -> None:
        if self.fence is not None:
            ask = self.world.asks.plain(self.name, self.key, "release", fence=self.fence)
            # Now and then twice at once, as a gateway does that lost patience.
            times = self.world.chance.choice((1, 1, 2))
            answers = await asyncio.gather(*(self.attempt(ask) for _ in range(times)))
            if any(answer.outcome == "accepted" for answer in answers):
                self.fence = None

    async def _relay(self) -> None:
        """Lets go, and somebody else claims before that is decided."""
        if self.fence is not None:
            other = Client(self.world, self.cluster, f"{self.name}r", self.key)
            await asyncio.gather(
                self._release(), other.attempt(other.world.asks.plain(other.name, self.key, "claim"))
            )

    async def _delete(self) -> None:
        await self.attempt(self.world.asks.plain(self.name, self.key, "delete"))

    async def _fork(self) -> None:
        """Makes a child of the session, perhaps at two producers at once, and goes on there for a while."""
        if not self.head or self.fork_depth:
            return
        number = self.world.asks.mint()
        child = b"%s-f%d" % (self.key, number)
        boundary = self.world.chance.randrange(self.head)
        asks = [
            Ask(self.world.asks.mint(), self.name, child, "fork", parent=self.session, boundary=boundary)
            for _ in range(self.world.chance.choice((1, 1, 2)))
        ]
        for _ in range(TRIES_MAX):
            answers = await asyncio.gather(*(self.attempt(ask) for ask in asks))
            if any(answer.outcome == "accepted" for answer in answers):
                other = Client(self.world, self.cluster, f"{self.name}f", child)
                other.fork_depth = 1
                await other.run(2)
                return
            await asyncio.sleep(0.3)

    async def _doze(self) -> None:
        if not self.world.temper.busy:
            await asyncio.sleep(self.world.chance.choice((0.5, 1.5, 4.0)))

    async def _read(self) -> None:
        """Every second time nothing older than what it was told."""
        floor = self.head if self.world.chance.random() < 0.5 else 0
        seen, answer = await self._reader.read(floor)
        if answer is not None:
            self._tell(answer)
        self.head = max(self.head, seen)

    def _producer(self) -> ProducerProcess:
        producers = self.cluster.producers()
        if not producers:
            raise Gone
        return self.world.chance.choice(producers)

    async def attempt(self, ask: Ask, process: ProducerProcess | None = None) -> Answer:
        """One attempt at one producer, and the evidence of it."""
        self.world.evidence.asks[ask.number] = ask
        before = self.world.end(self.key)
        self.world.loop.note(f"asks #{ask.number} {ask.kind} {_shown(ask)}")
        try:
            process = process or self._producer()
        except Gone:
            await asyncio.sleep(0.1)
            return self._tell(Answer(ask.number, "rejected", before, before, "unavailable"))
        try:
            answer = await process.ask(lambda: self._call(process.producer, ask, before))
        except Gone:
            answer = Answer(ask.number, "unknown", before, self.world.end(self.key), "gone-away")
        return self._tell(msgspec.structs.replace(answer, end_after=self.world.end(self.key)))

    async def _call(self, producer: Producer, ask: Ask, before: int) -> Answer:
        try:
            found = await self._do(producer, ask)
        except LedgerError as refusal:
            outcome = "unknown" if refusal.code == "unknown-outcome" else "rejected"
            commit_id = str(refusal.detail.get("commit_id", ""))
            return Answer(ask.number, outcome, before, -1, refusal.code, commit_id=commit_id)
        if isinstance(found, Appended):
            outcome = "unknown" if found.provisional else "accepted"
            return Answer(
                *(ask.number, outcome, before, -1, "", found.seq, found.count, found.offset),
                *(found.next_seq, bytes.fromhex(found.chain), "", found.commit_id),
            )
        if isinstance(found, Claimed):
            return Answer(ask.number, "accepted", before, -1, fence=found.fence, next_seq=found.next_seq)
        if isinstance(found, Forked):
            return Answer(ask.number, "accepted", before, -1, "", 0, ask.boundary + 1)
        if isinstance(found, Created):
            return Answer(ask.number, "accepted", before, -1, "", 0, 0, found.offset)
        return Answer(ask.number, "accepted", before, -1)

    async def _do(self, producer: Producer, ask: Ask) -> Appended | Claimed | Created | Forked | None:
        tenant, session = self.tenant, self.session
        if ask.kind == "open":
            return await producer.create(tenant, Header(session, 0), open_id=f"open-{ask.number}")
        if ask.kind == "fork":
            return await producer.fork(
                tenant, ask.parent, Header(ask.key.decode().partition("/")[2], 0), ask.boundary
            )
        if ask.kind == "claim":
            return await producer.claim(tenant, session, ask.owner, takeover=ask.takeover)
        if ask.kind == "release":
            await producer.release(tenant, session, ask.fence or "")
            return None
        if ask.kind == "delete":
            await producer.delete(tenant, session)
            return None
        key = None if ask.idempotency is None else IdempotencyKey(ask.idempotency, ask.since)
        return await producer.append(
            tenant,
            session,
            ask.drafts,
            expected_seq=ask.expected_seq,
            key=key,
            fence=ask.fence,
            ack="logged" if ask.logged else "accepted",
        )

    def _tell(self, answer: Answer) -> Answer:
        self.world.evidence.answers.append(answer)
        shown = f"seq {answer.seq} at offset {answer.offset}" if answer.outcome == "accepted" else answer.code
        self.world.loop.note(f"#{answer.ask} is {answer.outcome}: {shown} {answer.fence}{answer.commit_id}")
        return answer


def _shown(ask: Ask) -> str:
    parts = [
        ",".join(ask.marks),
        "" if ask.expected_seq is None else f"expects {ask.expected_seq}",
        "" if ask.idempotency is None else f"key {ask.idempotency}",
        "" if ask.fence is None else f"as {ask.fence}",
        "takeover" if ask.takeover else "",
    ]
    return " ".join(part for part in parts if part)
