"""A text that must not be seen: passwords and URLs that carry one. Printing, logging and tracebacks show `***`."""

import hmac

__all__ = ["Secret"]


class Secret:
    """Holds a text; only `reveal` gives it back."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the client that needs it."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> str:
        # A pickle or a deep copy would carry the text to places that nobody looks at.
        raise TypeError("a Secret is not copied or pickled")
