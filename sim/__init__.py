"""A deterministic simulation of the whole ledger: one seed, one thread, virtual time."""
