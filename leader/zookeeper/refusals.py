"""Kazoo's errors in our words: ZooKeeper did not let us in, or did not answer."""

from __future__ import annotations

import ssl
from datetime import timedelta

from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    OperationTimeoutError,
    SessionClosedRequireSaslError,
    SessionExpiredError,
    SessionMovedError,
    ZookeeperStoppedError,
)
from kazoo.handlers.threading import KazooTimeoutError

from leader.errors import (
    LeaderError,
    ZooKeeperAuthError,
    ZooKeeperTlsError,
    ZooKeeperUnavailableError,
    ZooKeeperUnreachableError,
)
from leader.zookeeper.config import ZooKeeperConfig
from leader.zookeeper.handler import TlsHandshakeError

UNAVAILABLE = (
    ConnectionClosedError,
    ConnectionLoss,
    KazooTimeoutError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
    ZookeeperStoppedError,
)
"""No answer, for whatever reason."""

REFUSED = (AuthFailedError, SessionClosedRequireSaslError)
"""The server wants another credential."""


def unreachable(config: ZooKeeperConfig, timeout: timedelta, cause: BaseException | None) -> LeaderError:
    """No connection at all, or none with the encryption that was asked for."""
    if isinstance(cause, TlsHandshakeError | ssl.SSLError):
        return _caused(
            ZooKeeperTlsError(
                f"no encrypted connection with ZooKeeper at {config.hosts} within {timeout}: {cause}; check "
                f"that the port speaks TLS, that ca_file holds who signed the server's certificate, that it "
                f"is for the name in hosts and not expired, and that the server trusts ours"
            ),
            cause,
        )
    detail = f" (last try: {cause})" if cause is not None and str(cause) else ""
    return _caused(
        ZooKeeperUnreachableError(
            f"no ZooKeeper server at {config.hosts} answered within {timeout}{detail}; check that one runs "
            f"there, that address, port and firewall let us reach it, and whether the port wants TLS"
        ),
        cause,
    )


def silent(config: ZooKeeperConfig, timeout: timedelta) -> ZooKeeperUnreachableError:
    """Connected, but no answer."""
    return ZooKeeperUnreachableError(
        f"ZooKeeper at {config.hosts} accepted a connection but answered no question within "
        f"{timeout}; check that the ensemble has a quorum"
    )


def unanswered(
    config: ZooKeeperConfig, name: str, limit: timedelta, cause: Exception, *, closed: bool
) -> ZooKeeperUnavailableError:
    """A request was made, and its answer never came."""
    advice = "the session is closed" if closed else "read what happened, then try again"
    return ZooKeeperUnavailableError(
        f"ZooKeeper at {config.hosts} gave no answer to {name} "
        f"({type(cause).__name__}, limit {limit}); outcome unknown: {advice}",
        retryable=not closed,
    )


def not_sent(config: ZooKeeperConfig, name: str, limit: timedelta) -> ZooKeeperUnavailableError:
    """There was no connection for a request."""
    return ZooKeeperUnavailableError(
        f"no connection to ZooKeeper at {config.hosts} within {limit}; {name} was not sent"
    )


def credential_refused(config: ZooKeeperConfig) -> ZooKeeperAuthError:
    """The server does not take our credential, or wants one."""
    scheme = config.auth[0] if config.auth else "none"
    return ZooKeeperAuthError(
        f"ZooKeeper at {config.hosts} refused our credential (scheme {scheme}); check scheme, user "
        f"and password, and that the server knows the scheme"
    )


def chroot_closed(config: ZooKeeperConfig) -> ZooKeeperAuthError:
    """The chroot is not there, and we may not make it."""
    return ZooKeeperAuthError(
        f"we may not make the chroot of {config.hosts}: the access list of a node above it does not let us. "
        f"Make it with a credential that may, or use another"
    )


def _caused(error: LeaderError, cause: BaseException | None) -> LeaderError:
    error.__cause__ = cause
    return error
