"""Folds damaged sessions anew, and gets past one whose records kill the process that folds them.

Each try is noted before it begins. After tries that nobody lived to finish every record is named before it is
folded, and the one whose name is left twice parks its session: once, something else may have ended the worker.
"""

import msgspec

from producer.checkpoint import Checkpoint
from projector.careful import OPENS_MAX
from projector.refold import refold_session
from projector.site import Site

__all__ = ["Healing"]


class Note(msgspec.Struct, frozen=True, array_like=True):
    """`tries`: begun and not finished. `at`: the offset that was about to be folded, -1 when none was named.
    `suspect`: the offset whose name was left by an earlier try, else -1."""

    tries: int = 0
    at: int = -1
    suspect: int = -1


class Healing:
    """The heals of one partition in one process."""

    def __init__(self, site: Site) -> None:
        self._site = site
        # This process lives, so what it began and did not finish was stopped by something else than a crash.
        self._begun: set[bytes] = set()

    async def heal(self, place: Checkpoint, session: bytes) -> None:
        """Writes the session's keys anew as of `place`; raises as `refold_session`."""
        cache, key = self._site.cache, self._site.keys.healing
        note = _read(await cache.call("HGET", key, session)) if session not in self._begun else Note()
        killer = note.at if note.at == note.suspect else -1
        note = Note(note.tries + 1, killer, note.at if note.at >= 0 else note.suspect)

        async def keep(at: int) -> None:
            await cache.call("HSET", key, session, msgspec.json.encode(Note(note.tries, at, note.suspect)))

        await keep(killer)
        self._begun.add(session)
        fears = note.tries > OPENS_MAX and killer < 0
        await refold_session(self._site, place, session, killer=killer, name=keep if fears else None)
        await cache.call("HDEL", key, session)
        self._begun.discard(session)


def _read(raw: bytes | None) -> Note:
    try:
        return Note() if raw is None else msgspec.json.decode(raw, type=Note)
    except msgspec.MsgspecError:
        return Note()
