"""Free loopback ports for servers, outside the range from which the kernel hands out ports of its own.

A client that keeps calling a killed server's port within that range can connect to itself, or another connection
can take the port before the server is back.
"""

import random
import socket

__all__ = ["LOOPBACK", "free_ports"]

LOOPBACK = "127.0.0.1"
FIRST, LAST = 20_000, 32_000


def free_ports(count: int) -> list[int]:
    """`count` different ports on which nobody listens now."""
    ports: list[int] = []
    for port in random.sample(range(FIRST, LAST), LAST - FIRST):
        if len(ports) == count:
            break
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        ports.append(port)
    assert len(ports) == count, "no free loopback port left"
    return ports
