"""A running server, as the client commands talk to it: one HTTP call, one answer or one readable refusal."""

import os
from collections.abc import Mapping
from typing import Any

import httpx
import msgspec

from gateway.paths import session_path

__all__ = ["DEFAULT_URL", "Refused", "Remote"]

DEFAULT_URL = "http://127.0.0.1:8750"
TIMEOUT_S = 60.0


class Refused(Exception):
    """What the server said no to, or that it could not be reached. `status` is 0 when there was no answer."""

    def __init__(self, code: str, message: str, status: int = 0, detail: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.detail = dict(detail or {})


class Remote:
    """`url` defaults to SURFACELOG_URL, the credential to SURFACELOG_API_KEY. Use it in a `with` block."""

    def __init__(self, url: str | None = None, transport: httpx.BaseTransport | None = None) -> None:
        self.url = (url or os.environ.get("SURFACELOG_URL") or DEFAULT_URL).rstrip("/")
        key = os.environ.get("SURFACELOG_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT_S, transport=transport)

    def __enter__(self) -> "Remote":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        query: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """The answer's body; raises Refused."""
        try:
            answer = self._client.request(method, path, content=body, params=query, headers=headers)
        except httpx.HTTPError as error:
            raise Refused(
                "unavailable",
                f"no server answers at {self.url} ({type(error).__name__}); start `surfacelog serve`",
            ) from None
        if answer.is_success:
            return answer.content
        raise _refusal(answer)

    def session(self, method: str, session: str, rest: str = "", **given: Any) -> bytes:
        """`send` for a path under a session."""
        return self.send(method, session_path(session, rest), **given)


def _refusal(answer: httpx.Response) -> Refused:
    try:
        told = msgspec.json.decode(answer.content, type=dict[str, Any])
        return Refused(told["code"], told["message"], answer.status_code, told.get("detail"))
    except (msgspec.MsgspecError, KeyError):
        return Refused("unreadable", "the answer is not one of a surfacelog server", answer.status_code)
