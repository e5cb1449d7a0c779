"""Ids of records, claims and producers: UUIDv7 text, so that they sort by time and never repeat."""

import uuid_utils

__all__ = ["mint_id"]


def mint_id() -> str:
    """A new UUIDv7, 36 characters."""
    return str(uuid_utils.uuid7())
