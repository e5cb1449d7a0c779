"""The ledger over HTTP: a gateway's routes, its refusals raised as what they are."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, TypeVar

import httpx
import msgspec

from gateway.ledger_door import Ack, What
from gateway.paths import session_path
from producer.append import Appended, IdempotencyKey
from producer.claims import Claimed
from producer.forking import Forked
from producer.resuming import Resumed
from surfacelog.errors import CODES, CONTRACT_CODES, ContractError, LedgerError, ProtocolError
from surfacelog.events import Draft

__all__ = ["HttpDoor"]

Answer = TypeVar("Answer")
TIMEOUT_S = 60.0
# The server's deadline comes first, so that its answer is heard rather than given up on.
GRACE_S = 5.0


class HttpDoor:
    """`url`: of a gateway. `api_key`: sent as a bearer credential. `transport`: for tests, an application in this
    process."""

    def __init__(
        self, url: str, api_key: str | None = None, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT_S, transport=transport)

    async def create(self, opening: Mapping[str, object]) -> bytes:
        """Makes a session."""
        return await self._send("POST", "/v1/sessions", body=msgspec.json.encode(opening))

    async def append(
        self,
        session: str,
        drafts: Sequence[Draft],
        *,
        expected_seq: int | None,
        key: IdempotencyKey | None,
        fence: str | None,
        ack: Ack,
        timeout_ms: int | None,
    ) -> Appended:
        """Appends all drafts or none."""
        query: dict[str, str | int] = {"ack": ack}
        headers: dict[str, str] = {}
        if expected_seq is not None:
            query["expectedSeq"] = expected_seq
        if timeout_ms is not None:
            query["timeoutMs"] = timeout_ms
        if key is not None:
            headers["Idempotency-Key"] = key.key
            if key.since is not None:
                query["since"] = key.since
        if fence is not None:
            headers["Surfacelog-Claim"] = fence
        timeout_s = TIMEOUT_S if timeout_ms is None else timeout_ms / 1000 + GRACE_S
        body = await self._send(
            "POST",
            session_path(session, "events"),
            query=query,
            headers=headers,
            body=msgspec.json.encode(drafts),
            timeout_s=timeout_s,
        )
        return _read(body, Appended)

    async def claim(self, session: str, owner: str, *, takeover: bool, lease_ms: int) -> Claimed:
        """Takes the session for `owner`."""
        wish = {"owner": owner, "takeover": takeover, "leaseMs": lease_ms}
        return _read(await self._post(session, "claim", wish), Claimed)

    async def release(self, session: str, fence: str) -> None:
        """Gives a claim up."""
        await self._send("POST", session_path(session, "release"), headers={"Surfacelog-Claim": fence})

    async def delete(self, session: str) -> None:
        """Ends a session."""
        await self._send("DELETE", session_path(session))

    async def fork(self, session: str, opening: Mapping[str, object], boundary: int) -> Forked:
        """Makes a session that goes on from `session`'s event `boundary`."""
        return _read(await self._post(session, "fork", {**opening, "boundary": boundary}), Forked)

    async def resume(self, session: str, owner: str, *, takeover: bool, lease_ms: int) -> Resumed:
        """Claims a session and closes what was left open."""
        wish = {"owner": owner, "takeover": takeover, "leaseMs": lease_ms}
        return _read(await self._post(session, "resume", wish), Resumed)

    async def read(self, session: str, what: What, query: Mapping[str, str | int]) -> bytes:
        """One read."""
        rest = "" if what == "session" else what
        return await self._send("GET", session_path(session, rest), query=query)

    async def tail(self, session: str, first: int | None) -> AsyncIterator[bytes]:
        """Server-sent events from seq `first` on."""
        query = {} if first is None else {"from": first}
        try:
            async with self._client.stream("GET", session_path(session, "stream"), params=query) as answer:
                if not answer.is_success:
                    raise _refusal(await answer.aread())
                async for piece in answer.aiter_bytes():
                    yield piece
        except httpx.HTTPError as error:
            raise ProtocolError("unavailable", f"the live tail ended: {type(error).__name__}") from error

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def _post(self, session: str, rest: str, wish: Mapping[str, object]) -> bytes:
        return await self._send("POST", session_path(session, rest), body=msgspec.json.encode(wish))

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> bytes:
        try:
            answer = await self._client.request(
                method, path, params=query, headers=headers, content=body, timeout=timeout_s
            )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise ProtocolError("unavailable", f"no server answers: {type(error).__name__}") from error
        except httpx.HTTPError as error:
            code = "unavailable" if method == "GET" else "unknown-outcome"
            raise ProtocolError(code, f"the connection was lost: {type(error).__name__}") from error
        if answer.is_success:
            return answer.content
        raise _refusal(answer.content)


def _read(body: bytes, kind: type[Answer]) -> Answer:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise ProtocolError("unavailable", f"the server's answer cannot be read ({error})") from None


def _refusal(body: bytes) -> LedgerError:
    try:
        told = msgspec.json.decode(body, type=dict[str, Any])
        code, message = str(told["code"]), str(told["message"])
        detail = {_snake(name): value for name, value in (told.get("detail") or {}).items()}
    except (msgspec.MsgspecError, KeyError, AttributeError):
        return ProtocolError("unavailable", "what answers there is not a surfacelog server")
    if code in CONTRACT_CODES:
        return ContractError(code, message, **detail)
    if code in CODES:
        return ProtocolError(code, message, **detail)
    # Codes of HTTP itself: a path or method that the server does not know, or a fault of its own.
    kind = "unavailable" if code == "internal" else "bad-request"
    return ProtocolError(kind, f"{code}: {message}", **detail)


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), name)
