"""A client's reads: the whole list of messages, what is new since a token, and the surface."""

import msgspec

from gateway import reads
from sim.cluster import Cluster
from sim.evidence import Answer, Ask, Read
from sim.processes import GatewayProcess, Gone
from sim.world import World
from surfacelog.errors import LedgerError

__all__ = ["Reader"]

WAIT_MS = 500


class Reader:
    """Keeps what it was shown and the token of it, as a client that asks only for what is new."""

    def __init__(self, world: World, cluster: Cluster, name: str, key: bytes) -> None:
        self._world = world
        self._cluster = cluster
        self._name = name
        self._key = key
        self._tenant, _, self._session = key.decode().partition("/")
        self._token: str | None = None
        self._shown: list[bytes] = []

    async def read(self, floor: int) -> tuple[int, Answer | None]:
        """One read that must show seq `floor` or later: (the seq it shows, the refusal if it was refused). The
        evidence of what was shown is kept."""
        world = self._world
        ask: Ask = world.asks.plain(self._name, self._key, "read")
        world.evidence.asks[ask.number] = ask
        before = world.end(self._key)
        gateways = self._cluster.gateways()
        if not gateways:
            return 0, None
        way = world.chance.choice((self._whole, self._news, self._surface))
        try:
            return await way(gateways[0], floor), None
        except Gone:
            return 0, None
        except LedgerError as refusal:
            return 0, Answer(ask.number, "rejected", before, world.end(self._key), refusal.code)
        except Exception as error:
            # What the gateway answers with 503: the log or the cache is away.
            world.loop.note(f"read failed: {error!r}")
            return 0, None

    async def _whole(self, gateway: GatewayProcess, floor: int) -> int:
        found = await gateway.ask(
            lambda: gateway.reads.messages(self._tenant, self._session, min_seq=floor, wait_ms=WAIT_MS)
        )
        return self._keep(found, floor, fresh=True)

    async def _news(self, gateway: GatewayProcess, floor: int) -> int:
        token = self._token
        found = await gateway.ask(
            lambda: gateway.reads.messages(
                self._tenant, self._session, after=token, min_seq=floor, wait_ms=WAIT_MS
            )
        )
        return self._keep(found, floor, fresh=token is None)

    async def _surface(self, gateway: GatewayProcess, floor: int) -> int:
        found = await gateway.ask(
            lambda: gateway.reads.surface(self._tenant, self._session, min_seq=floor, wait_ms=WAIT_MS)
        )
        told = msgspec.json.decode(found.body, type=_Surface)
        self._note(told.seq, told.generation, None, tuple(told.nodes), floor)
        return told.seq

    def _keep(self, found: reads.Answer, floor: int, *, fresh: bool) -> int:
        told = msgspec.json.decode(found.body, type=_Messages)
        if fresh or told.rebuilt:
            self._shown.clear()
        self._shown += [bytes(body) for body in told.messages]
        self._token = told.token
        self._note(told.seq, told.generation, tuple(self._shown), None, floor)
        return told.seq

    def _note(
        self,
        seq: int,
        generation: int,
        messages: tuple[bytes, ...] | None,
        nodes: tuple[int, ...] | None,
        floor: int,
    ) -> None:
        world = self._world
        what = "surface" if messages is None else f"{len(messages)} messages"
        world.loop.note(f"reads seq {seq}, generation {generation}, {what}")
        world.evidence.reads.append(Read(self._name, self._key, seq, generation, messages, nodes, floor))


class _Messages(msgspec.Struct):
    seq: int
    generation: int
    token: str
    rebuilt: bool
    messages: list[msgspec.Raw]


class _Surface(msgspec.Struct):
    seq: int
    generation: int
    nodes: list[int]
