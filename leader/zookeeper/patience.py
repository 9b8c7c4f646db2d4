"""How long to wait for one server to accept a connection and answer the handshake."""

from __future__ import annotations

from datetime import timedelta

_FLOOR, _CEILING = timedelta(milliseconds=250), timedelta(seconds=2)
"""Less would fail on a healthy network, for a single packet that came late. More is of no use at first: a
server that has just been started may lose a handshake, and answers the next one."""


class Patience:
    """Grows while nobody answers. Used by kazoo's connection thread alone.

    A dead link is noticed after two thirds of the session, so a third is left to find another server, and one
    that swallows everything must not eat it up. But servers that are merely slow must be reached in the end,
    or a busy ensemble would be tried for ever.

    Args:
        configured: The first limit, if the user wants another than a third of the session for a whole round.
        servers: How many there are.
        session_timeout: Asked for; `granted` tells what came of it.
    """

    def __init__(self, *, configured: timedelta | None, servers: int, session_timeout: timedelta) -> None:
        self.session_timeout = session_timeout
        self._configured, self._servers = configured, servers
        self._in_vain = 0

    def limit(self) -> timedelta:
        """For the next try."""
        share = min(max(self.session_timeout / (3 * self._servers), _FLOOR), _CEILING)
        first = self._configured or share
        most = max(first, self.session_timeout / self._servers)
        rounds = min(self._in_vain // self._servers, 16)
        return min(first * (1 << rounds), most)

    def timed_out(self) -> None:
        """A server has not answered in time. To be refused at once says nothing about the time it needs."""
        self._in_vain += 1

    def succeeded(self) -> None:
        """A server let us in."""
        self._in_vain = 0

    def granted(self, session_timeout: timedelta) -> None:
        """The server has said how long a session lasts."""
        self.session_timeout = session_timeout
