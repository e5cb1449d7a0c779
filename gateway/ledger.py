"""The Python API: sessions of a ledger, the same whether it runs in this process or behind HTTP.

`async with Ledger.connect() as ledger: session = await ledger.open("id")`, then `append`, `messages` and the rest.
Every refusal is a LedgerError with a stable code.
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from gateway.ledger_direct import DirectDoor
from gateway.ledger_door import Door
from gateway.ledger_http import HttpDoor
from gateway.ledger_session import LedgerSession
from gateway.tenant import LOCAL_TENANT
from producer.ids import mint_id
from producer.limits import AppendLimits
from producer.settings import ServerSettings, read_settings
from surfacelog.errors import ProtocolError

__all__ = ["Ledger"]

Target = str | Path | ServerSettings | None


class Ledger:
    """Made by `connect`. One ledger serves any number of sessions and tasks of one event loop."""

    def __init__(self, door: Door, *, patience_s: float = 30.0, keys: bool = True) -> None:
        self._door = door
        self._patience_s = patience_s
        self._keys = keys

    @classmethod
    def connect(
        cls,
        target: Target = None,
        *,
        api_key: str | None = None,
        tenant: str = LOCAL_TENANT,
        limits: AppendLimits | None = None,
        patience_s: float = 30.0,
        keys: bool = True,
    ) -> "Connecting":
        """A ledger, to be used in `async with`.

        `target`: an `http://` address of a gateway; a directory, whose embedded ledger then runs in this process;
        `ServerSettings` (Kafka and Redis, or embedded); None for what `SURFACELOG_URL`, `SURFACELOG_KAFKA` or else
        `SURFACELOG_DATA_DIR` name. `api_key`: for HTTP, by default `SURFACELOG_API_KEY`. `tenant`: whose sessions,
        when no gateway tells it from a credential. `patience_s`: how long a call is tried again while the ledger
        says that it may be. `keys`: give every append an idempotency key, which makes that safe. Entering raises
        `misconfigured` or `unavailable`."""
        return Connecting(target, api_key, tenant, limits, patience_s, keys)

    async def open(self, session: str, **header: object) -> LedgerSession:
        """The session of this id, made with `header` (see `create`) if there is none. Raises `gone` for one that
        was deleted."""
        found = self._session(session)
        try:
            await found.head()
        except ProtocolError as error:
            if error.code != "no-session":
                raise
        else:
            return found
        try:
            return await self.create(session, **header)
        except ProtocolError as error:
            if error.code != "session-exists":
                raise
            return found

    async def create(self, session: str | None = None, **header: object) -> LedgerSession:
        """A new session; without an id the ledger makes one up. `header`: `title`, `contract` ("v4" or "v0"),
        `checks` ("paired" or "surface"), `vocabulary`, `cwd`, `parent_session`, `origin`, `delegation_depth`,
        `agent_preset`. Raises `session-exists`, `gone`."""
        opening = opening_of(session, header)
        made = _Made.read(await self._door.create(opening))
        found = self._session(made.id)
        found.saw(made.seq)
        return found

    def session(self, session: str) -> LedgerSession:
        """A handle on a session, without asking whether there is one."""
        return self._session(session)

    def _session(self, session: str) -> LedgerSession:
        return LedgerSession(self._door, session, patience_s=self._patience_s, keys=self._keys)

    async def close(self) -> None:
        """Lets go of all that was opened; what is in flight is finished first."""
        await self._door.close()


class Connecting:
    """A ledger that is opened by entering it."""

    def __init__(
        self,
        target: Target,
        api_key: str | None,
        tenant: str,
        limits: AppendLimits | None,
        patience_s: float,
        keys: bool,
    ) -> None:
        self._target = target
        self._api_key = api_key
        self._tenant = tenant
        self._limits = limits
        self._patience_s = patience_s
        self._keys = keys
        self._ledger: Ledger | None = None

    async def __aenter__(self) -> Ledger:
        self._ledger = Ledger(await self._open(), patience_s=self._patience_s, keys=self._keys)
        return self._ledger

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ledger is not None:
            await asyncio.shield(self._ledger.close())

    async def _open(self) -> Door:
        target = self._target
        if target is None:
            target = os.environ.get("SURFACELOG_URL") or read_settings(ServerSettings, os.environ)
        if isinstance(target, str) and target.startswith(("http://", "https://")):
            return HttpDoor(target, self._api_key or os.environ.get("SURFACELOG_API_KEY"))
        if isinstance(target, str | Path):
            target = ServerSettings(data_dir=str(target))
        return await DirectDoor.open(target, self._tenant, self._limits)


class _Made(msgspec.Struct):
    id: str
    seq: int = 0

    @classmethod
    def read(cls, body: bytes) -> Self:
        """The answer to a create request."""
        return msgspec.json.decode(body, type=cls)


def opening_of(session: str | None, header: Mapping[str, object]) -> dict[str, object]:
    """A create request. Its open id makes a repeat of it harmless."""
    fields = {_camel(name): value for name, value in header.items()}
    if session is not None:
        fields["id"] = session
    fields.setdefault("openId", mint_id())
    return fields


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
