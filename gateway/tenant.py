"""The tenant of whoever needs no credential: one person on one machine."""

__all__ = ["LOCAL_TENANT"]

LOCAL_TENANT = "local"
