"""How to connect to ZooKeeper: servers, encryption, time limits, credential, and the access lists for it."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntFlag
from importlib.util import find_spec
from pathlib import Path

from kazoo.security import make_digest_acl_credential

from leader.errors import ElectionConfigError
from leader.protocol.paths import checked_root

SASL = "sasl"
"""A scheme for `auth` that ZooKeeper's `addauth` does not have: it means a login by SASL with DIGEST-MD5."""
DEFAULT_PORT = 2181
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*)")
_IPV6 = re.compile(r"\[(?P<address>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperConfig:
    """Where ZooKeeper is, and how long to wait for it. Checked once, here, then trusted.

    Args:
        hosts: `host:port,host:port/chroot`. The chroot is created on first use.
        session_timeout: The requested one; the server may grant less or more (2 to 20 of its ticks).
        call_timeout: Limit of the wait for one answer, including the wait for a connection.
        connect_timeout: Limit of the wait for one server to accept a connection. It doubles with each round
            in which no server does so, up to the session timeout divided by the number of servers. By
            default 2 s, or less, so that a round of all servers fits into a third of the session timeout:
            this third is left when a dead link is noticed.
        auth: Scheme and credential, for example `("digest", "user:password")`, or `("sasl", "user:password")`
            for SASL with DIGEST-MD5 (needs the package `pure-sasl`). Nodes are then created for this
            credential only.
        readable_by_all: Every client may read the nodes; only this credential may do more. Needs `auth`:
            without it every client may do everything.
        tls: Encrypt, and check the server's certificate. The port must be one for TLS.
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
                f"lower the first or raise the second"
            )
        self._check_credential()

    def _check_credential(self) -> None:
        if self.auth is None:
            if self.readable_by_all:
                raise ElectionConfigError(
                    "readable_by_all needs auth: without it every client may do everything"
                )
            return
        scheme, credential = self.auth
        user, colon, _ = credential.partition(":")
        if not scheme or not user or not colon:
            raise ElectionConfigError("auth needs a scheme, and a credential of the form user:password")
        if scheme == SASL and find_spec("puresasl") is None:
            raise ElectionConfigError("auth with sasl needs a package that is missing: pip install pure-sasl")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """Which servers to trust, and the client's certificate. The files are read here once to find errors.

    Args:
        ca_file: PEM file: the certificates of the only authorities to trust. By default, the system's.
        cert_file: PEM file: the client's certificate, for servers that require one.
        key_file: PEM file: the key of that certificate. Not needed when it is in `cert_file`.
        verify_hostname: The server's certificate must be for its name in `hosts`.
        verify_certificate: False: every server is trusted, and nothing is checked. Only for experiments.
    """

    ca_file: str | Path | None = None
    cert_file: str | Path | None = None
    key_file: str | Path | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_hostname: bool = True
    verify_certificate: bool = True

    def __post_init__(self) -> None:
        if self.cert_file is None and self.key_file is not None:
            raise ElectionConfigError(f"key_file ({self.key_file}) needs cert_file; give both or neither")
        self.context()

    def context(self) -> ssl.SSLContext:
        """Make the SSL context from the present content of the files.

        ElectionConfigError if one is missing, unreadable, or has the wrong content.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.verify_hostname and self.verify_certificate
        context.verify_mode = ssl.CERT_REQUIRED if self.verify_certificate else ssl.CERT_NONE
        self._load_authorities(context)
        self._load_own(context)
        return context

    def _load_authorities(self, context: ssl.SSLContext) -> None:
        if self.ca_file is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
            return
        try:
            context.load_verify_locations(self.ca_file)
        except OSError as exc:
            raise ElectionConfigError(
                f"ca_file {self.ca_file} cannot be used ({exc}); give a readable PEM file of certificates"
            ) from exc

    def _load_own(self, context: ssl.SSLContext) -> None:
        if self.cert_file is None:
            return
        try:
            # Always give a password, even an empty one: without it OpenSSL would ask at the terminal.
            context.load_cert_chain(self.cert_file, self.key_file, password=self.key_password or "")
        except OSError as exc:
            raise ElectionConfigError(
                f"cert_file {self.cert_file} and key_file {self.key_file} cannot be used ({exc}); give "
                f"readable PEM files that belong together, and key_password if the key has one"
            ) from exc


@dataclass(frozen=True, slots=True)
class Servers:
    """The parts of a connection string.

    The chroot is an absolute path below which all other paths are; empty if there is none.
    """

    addresses: tuple[tuple[str, int], ...]
    chroot: str


def read_hosts(text: str) -> Servers:
    """Parse a connection string.

    ElectionConfigError if it has a scheme, an empty or unreadable entry, a port that is not a number from 1
    to 65535, or a chroot that `checked_root` refuses.
    """
    if not text.strip():
        raise ElectionConfigError("hosts is empty; give at least one host:port")
    if "://" in text:
        raise ElectionConfigError(
            f"hosts {text!r} has a scheme; write host:port,host:port/chroot without one"
        )
    servers, slash, chroot = text.partition("/")
    addresses = tuple(_read_address(entry, text) for entry in servers.split(","))
    return Servers(addresses, checked_root(slash + chroot, "the chroot of hosts") if chroot else "")


def _read_address(entry: str, text: str) -> tuple[str, int]:
    entry = entry.strip()
    if bracketed := _IPV6.match(entry):
        host, rest = bracketed["address"], entry[bracketed.end() :]
    else:
        host, colon, port = entry.partition(":")
        rest = colon + port
        if not _NAME.fullmatch(host):
            raise _unreadable(entry, text, "no host")
    if not rest:
        return host, DEFAULT_PORT
    number = rest[1:]
    if rest[0] != ":" or not (number.isascii() and number.isdigit()) or not 0 < int(number) < 1 << 16:
        raise _unreadable(entry, text, "no port from 1 to 65535")
    return host, int(number)


def _unreadable(entry: str, text: str, why: str) -> ElectionConfigError:
    return ElectionConfigError(
        f"hosts {text!r} cannot be read: {entry!r} has {why}; write host:port,host:port/chroot, and an IPv6 "
        f"address in brackets"
    )


class Permission(IntFlag):
    """ZooKeeper's permissions for a node. CREATE and DELETE are about its children."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


@dataclass(frozen=True, slots=True, order=True)
class Access:
    """One entry of an access list.

    Args:
        scheme: For example `world`, `digest`, `sasl`, `x509`.
        id: A name within the scheme: `anyone`, `user:hash of the password`, a user, a subject.
        permissions: What a client with this name may do.

    As text, it has only the first four characters of a password's hash, enough to distinguish two passwords.
    """

    scheme: str
    id: str
    permissions: Permission

    def __str__(self) -> str:
        held = [permission.name or "" for permission in Permission if permission in self.permissions]
        user, _, password_hash = self.id.partition(":")
        whom = f"{user}:{password_hash[:4]}..." if self.scheme == "digest" and password_hash else self.id
        return f"{self.scheme}:{whom}:{'+'.join(held) or 'NOTHING'}"


OPEN = (Access("world", "anyone", Permission.ALL),)
_READABLE = Access("world", "anyone", Permission.READ)


def default_access(config: ZooKeeperConfig) -> tuple[Access, ...] | None:
    """Access list for new nodes. None: open to every client.

    Not `auth`, which the server replaces by all credentials of the connection: also by the certificate of a
    client with TLS, which would then need no password. Only schemes whose lists are not known here have it.
    """
    if config.auth is None:
        return None
    if config.auth[0] in (SASL, "digest"):
        return wanted_access(config)
    ours = Access("auth", "", Permission.ALL)
    return (ours, _READABLE) if config.readable_by_all else (ours,)


def wanted_access(config: ZooKeeperConfig) -> tuple[Access, ...]:
    """Access list of a node that was created with this configuration, as ZooKeeper returns it.

    ElectionConfigError if it is not known how ZooKeeper writes credentials of this scheme.
    """
    if config.auth is None:
        return OPEN
    scheme, credential = config.auth
    user, _, password = credential.partition(":")
    if scheme == SASL:
        ours = Access("sasl", user, Permission.ALL)
    elif scheme == "digest":
        ours = Access("digest", make_digest_acl_credential(user, password), Permission.ALL)
    else:
        raise ElectionConfigError(f"the access list for scheme {scheme!r} is not known; give the wanted list")
    return (ours, _READABLE) if config.readable_by_all else (ours,)
