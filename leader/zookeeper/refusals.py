"""The errors of this package for those of kazoo: ZooKeeper refused the client, or did not answer."""

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
"""kazoo's errors when there is no answer, for any reason."""

REFUSED = (AuthFailedError, SessionClosedRequireSaslError)
"""kazoo's errors when the server requires another credential."""


def unreachable(config: ZooKeeperConfig, timeout: timedelta, cause: BaseException | None) -> LeaderError:
    """No server was reached, or none with the configured encryption."""
    if isinstance(cause, TlsHandshakeError | ssl.SSLError):
        return _caused(
            ZooKeeperTlsError(
                f"no encrypted connection with ZooKeeper at {config.hosts} within {timeout}: {cause}; check "
                f"that the port is for TLS, that ca_file has the authority that signed the server's "
                f"certificate, that this certificate is for the name in hosts and not expired, and that the "
                f"server trusts the one in cert_file"
            ),
            cause,
        )
    detail = f" (last try: {cause})" if cause is not None and str(cause) else ""
    return _caused(
        ZooKeeperUnreachableError(
            f"no ZooKeeper server at {config.hosts} answered within {timeout}{detail}; check that each name "
            f"resolves here, that a server runs there, port and firewall, and whether the port requires TLS"
        ),
        cause,
    )


def silent(config: ZooKeeperConfig, timeout: timedelta) -> ZooKeeperUnreachableError:
    """A server was reached, but did not answer."""
    return ZooKeeperUnreachableError(
        f"ZooKeeper at {config.hosts} accepted a connection but answered no request within "
        f"{timeout}; check that the ensemble has a quorum"
    )


def unanswered(
    config: ZooKeeperConfig, name: str, limit: timedelta, cause: Exception, *, closed: bool
) -> ZooKeeperUnavailableError:
    """A request was sent, and got no answer."""
    advice = "the session is closed" if closed else "read the state, then try again"
    return ZooKeeperUnavailableError(
        f"ZooKeeper at {config.hosts} gave no answer to {name} "
        f"({type(cause).__name__}, limit {limit}); outcome unknown: {advice}",
        retryable=not closed,
    )


def not_sent(config: ZooKeeperConfig, name: str, limit: timedelta) -> ZooKeeperUnavailableError:
    """A request was not sent: there was no connection."""
    return ZooKeeperUnavailableError(
        f"no connection to ZooKeeper at {config.hosts} within {limit}; {name} was not sent"
    )


def credential_refused(config: ZooKeeperConfig) -> ZooKeeperAuthError:
    """The server refuses the credential, or requires one."""
    scheme = config.auth[0] if config.auth else "none"
    return ZooKeeperAuthError(
        f"ZooKeeper at {config.hosts} refused the credential (scheme {scheme}); check scheme, user "
        f"and password, and that the server knows the scheme"
    )


def chroot_closed(config: ZooKeeperConfig) -> ZooKeeperAuthError:
    """The chroot does not exist, and the credential may not create it."""
    return ZooKeeperAuthError(
        f"the credential may not create the chroot of {config.hosts}: the access list of a node above it "
        f"forbids that. Create the chroot with another credential, or use another chroot"
    )


def _caused(error: LeaderError, cause: BaseException | None) -> LeaderError:
    error.__cause__ = cause
    return error
