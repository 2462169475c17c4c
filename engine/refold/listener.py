"""The socket and the connections of both HTTP servers; a connection ends if no request arrives on it."""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import resource
import socket
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from refold.limits import CONNECTIONS_COUNT_MAX, REQUEST_SECONDS

HOST: Final = "127.0.0.1"
_OWN_NAMES: Final = (HOST, "localhost", "[::1]")
_BACKLOG_COUNT: Final = 128
_TOO_MANY: Final = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_LOG: Final = logging.getLogger("refold")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address; names are not resolved, so only `localhost` counts."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_own(host: str) -> bool:
    """Return whether the `Host` of a request names only this machine, with or without a port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isascii() and port.isdecimal() else host).lower() in _OWN_NAMES


def listening_on(port: int, host: str = HOST) -> socket.socket:
    """Listen on a port of an address, by default one that only this machine can reach; port 0 takes a free one."""
    # The protocol is explicit, because asyncio sends small answers at once only on such sockets; otherwise each waits
    # for 40 ms.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = _ListeningSocket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG_COUNT)
    except BaseException:
        listening.close()
        raise
    return listening


class _ListeningSocket(socket.socket):
    """A socket that answers a connection with 503 and closes it if the process has no descriptor left for it.

    Without it, asyncio would log a traceback for each of up to 2,048 attempts, and repeat them every second. One
    descriptor is reserved for the answer: it is closed, the connection takes its number, and then it is opened again.
    """

    def __init__(self, family: int, kind: int, protocol: int) -> None:
        super().__init__(family, kind, protocol)
        self._spare: int | None = None
        self._is_short = False
        self._open_spare()

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection for which there is a descriptor, and refuse those before it."""
        while True:
            try:
                accepted = super().accept()
            except OSError as error:
                if error.errno not in {errno.EMFILE, errno.ENFILE} or not self._refuse():
                    raise
            else:
                self._is_short = False
                if self._spare is None:
                    self._open_spare()
                return accepted

    def close(self) -> None:
        """Close the socket and the reserved descriptor."""
        super().close()
        self._close_spare()

    def _refuse(self) -> bool:
        """Refuse the next connection; return whether a descriptor was reserved for it."""
        if self._spare is None:
            return False
        if not self._is_short:
            self._is_short = True
            _LOG.warning("no descriptor is left: connections are refused with 503 until one is free")
        self._close_spare()
        try:
            refused, _ = super().accept()
            with refused, contextlib.suppress(OSError):
                refused.settimeout(0)
                refused.send(_TOO_MANY)
        finally:
            self._open_spare()
        return True

    def _open_spare(self) -> None:
        try:
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # Another thread took it, so the next connection is left to asyncio to report.
            self._spare = None

    def _close_spare(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None


class HttpConnection(H11Protocol):
    """A connection that is closed if a request does not arrive completely within `REQUEST_SECONDS`.

    uvicorn itself waits forever for the first request and for the rest of a request, so half-open connections could
    take all descriptors of the process. Connections beyond `CONNECTIONS_COUNT_MAX`, or half the descriptors, get a 503.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request."""
        super().connection_made(transport)
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        half = CONNECTIONS_COUNT_MAX if descriptors == resource.RLIM_INFINITY else descriptors // 2
        if len(self.connections) > min(half, CONNECTIONS_COUNT_MAX):
            transport.write(_TOO_MANY)
            transport.close()
        else:
            self._await_request()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request, and wait for the rest."""
        super().data_received(data)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        self._end_wait()

    def _await_request(self) -> None:
        cycle: Any = self.cycle
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            self._end_wait()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def _end_wait(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
