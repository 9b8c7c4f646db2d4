"""How ZooKeeper is reached, and how patient we are."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec

from leader.errors import ElectionConfigError
from leader.zookeeper.hosts import read_hosts
from leader.zookeeper.tls import TlsConfig

SASL = "sasl"
"""The scheme of `auth` that is no ZooKeeper scheme: it means SASL with DIGEST-MD5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperConfig:
    """Where ZooKeeper is and how patient we are. Checked once, here, then trusted.

    Args:
        hosts: `host:port,host:port/chroot`. The chroot is made on first use.
        session_timeout: Asked for; the server may grant less or more (2 to 20 of its ticks).
        call_timeout: Longest wait for one answer, the wait for a connection included.
        connect_timeout: Longest wait for one server to accept a connection. It is doubled with each round in
            which none did, up to the session timeout divided by the number of servers. If not given, 2 s, or
            less, so that a round of all servers fits into a third of the session: so much is left once a dead
            link is noticed.
        auth: Scheme and credential, for example `("digest", "user:password")`, or `("sasl", "user:password")`
            for SASL with DIGEST-MD5 (needs the package `pure-sasl`). Nodes are then made for this credential
            only.
        readable_by_all: Everybody may read the nodes, and only we may do more. Needs `auth`; without it
            everybody may do everything.
        tls: Encrypt, and check who answers. The port must be one that speaks TLS.
    """

    hosts: str
    session_timeout: timedelta = timedelta(seconds=10)
    call_timeout: timedelta = timedelta(seconds=10)
    connect_timeout: timedelta | None = None
    auth: tuple[str, str] | None = field(default=None, repr=False)
    readable_by_all: bool = False
    tls: TlsConfig | None = None

    def __post_init__(self) -> None:
        read_hosts(self.hosts)
        for name in ("session_timeout", "call_timeout", "connect_timeout"):
            value: timedelta | None = getattr(self, name)
            if value is not None and value <= timedelta(0):
                raise ElectionConfigError(f"{name} ({value}) must be above 0")
        if self.connect_timeout is not None and self.connect_timeout >= self.session_timeout:
            raise ElectionConfigError(
                f"connect_timeout ({self.connect_timeout}) must be below session_timeout "
                f"({self.session_timeout}): otherwise one dead server costs the session; "
                f"lower the one or raise the other"
            )
        self._check_credential()

    def _check_credential(self) -> None:
        if self.auth is None:
            if self.readable_by_all:
                raise ElectionConfigError(
                    "readable_by_all needs auth: without it everybody may do everything"
                )
            return
        scheme, credential = self.auth
        user, colon, _ = credential.partition(":")
        if not scheme or not user or not colon:
            raise ElectionConfigError("auth needs a scheme, and a credential that looks like user:password")
        if scheme == SASL and find_spec("puresasl") is None:
            raise ElectionConfigError("auth with sasl needs a package that is missing: pip install pure-sasl")
