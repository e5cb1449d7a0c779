"""What can come between a projection and its cache or its log."""

__all__ = ["Broken", "Fault", "Halted", "Moved", "Unwritable"]


class Moved(Exception):
    """The checkpoint is not the one this worker holds: somebody else moved it, or the cache lost it."""


class Broken(Exception):
    """The keys of these sessions are not what the worker holds."""

    def __init__(self, sessions: set[bytes]) -> None:
        super().__init__(", ".join(session.decode("ascii", "replace") for session in sorted(sessions)))
        self.sessions = sessions


class Unwritable(Exception):
    """Something among the records folded together cannot be written: fold them one by one to see which."""


class Fault(Exception):
    """The fold of one record failed: a version that is not known here, or a bug."""

    def __init__(self, session: bytes, offset: int, code: str, commit: str) -> None:
        super().__init__(f"{code} at offset {offset}")
        self.session = session
        self.commit = commit
        self.offset = offset
        self.code = code


class Halted(Exception):
    """The partition stands still until somebody looks at it: `log-truncated` or `malformed`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
