"""Where a Google API is reached: at Google's, or at an address of the user's.

An address on the loopback interface is spoken to in plain text and anonymously: an emulator, or a proxy that adds
the credentials.
"""

from __future__ import annotations

import ipaddress
from typing import Any

import grpc
from google.auth import credentials


def transport(of_service: Any, address: str) -> Any | None:
    """The gRPC transport of a client for this address; None: the client finds Google's by itself.

    Args:
        of_service: the transport class of that client.
        address: ``host:port``, or empty.
    """
    if not address:
        return None
    if is_loopback(address.rpartition(":")[0]):
        channel = grpc.insecure_channel(address)
        return of_service(channel=channel, credentials=credentials.AnonymousCredentials())
    return of_service(host=address)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, as its name or address says without asking a network."""
    bare = host.strip("[]")
    if bare == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False
