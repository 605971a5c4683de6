"""What all of Google Cloud's clients need: project, address, credentials; and what their errors mean."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from goodput_plugins import environ as env
from goodput_plugins.exporters.errors import Unavailable, Unreached

INSTALL = "pip install 'goodput-plugins[gcp]'"


def project(environ: Mapping[str, str] = os.environ) -> str:
    """The project to write to: $GOODPUT_PROJECT, $GOOGLE_CLOUD_PROJECT, else that of the credentials.

    Raises:
        Unavailable: nothing tells.
    """
    named = env.PROJECT.read(environ) or env.CLOUD_PROJECT.read(environ)
    if named:
        return named
    try:
        import google.auth

        found = google.auth.default()[1]
    except Exception as error:
        raise Unavailable(f"no Google Cloud project is known ({_brief(error)}); set GOODPUT_PROJECT.") from None
    if not found:
        raise Unavailable("no Google Cloud project is known; set GOODPUT_PROJECT.")
    return str(found)


def client(kind: Any, of_service: Any, address: str) -> Any:
    """A client.

    Args:
        kind: the client's class, of a ``google.cloud`` library.
        of_service: its gRPC transport's class.
        address: another one than the usual, ``host:port``; on a loopback address plain text, anonymous.

    Raises:
        Unreached: there are no credentials (yet).
    """
    from goodput_plugins.exporters.endpoints import transport

    try:
        return kind(transport=transport(of_service, address))
    except Exception as error:
        raise Unreached(f"there are no credentials ({_brief(error)})", slow=True) from error


def call(function: Callable[..., Any], request: Any, seconds: float) -> Any:
    """Call a method of a client once, without its own retries.

    Raises:
        Unreached: it is worth trying again.
        google.api_core.exceptions.InvalidArgument: it is not.
    """
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError

    try:
        return function(request=request, retry=None, timeout=seconds)
    except exceptions.InvalidArgument:
        raise
    except (exceptions.PermissionDenied, exceptions.Unauthenticated, exceptions.NotFound) as error:
        raise Unreached(_brief(error), slow=True) from error
    except exceptions.TooManyRequests as error:
        raise Unreached(_brief(error), quota=True) from error
    except (exceptions.GoogleAPIError, GoogleAuthError) as error:
        raise Unreached(_brief(error)) from error


def _brief(error: BaseException) -> str:
    """What an error says, in one line that is not too long."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
