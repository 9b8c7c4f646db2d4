"""The options of every command, and the session that they open."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import Any, NoReturn, TypeVar

import click

from leader.errors import LeaderError
from leader.protocol.paths import checked_root
from leader.zookeeper.config import TlsConfig
from leader.zookeeper.session import ZooKeeperConfig, ZooKeeperSession

F = TypeVar("F", bound=Callable[..., Any])


class LeaderExit(IntEnum):
    """Exit codes."""

    OK = 0
    PROBLEM = 1
    """`doctor` found a problem, or a wait timed out."""
    USAGE = 2
    NOT_FOUND = 3
    """There is no leader, or no such participant."""
    UNREACHABLE = 6
    DENIED = 7
    FAILED = 70


_FORM = click.Choice(["text", "json"])

_EXITS = {
    "election_config": LeaderExit.USAGE,
    "nobody_leads": LeaderExit.NOT_FOUND,
    "no_such_participant": LeaderExit.NOT_FOUND,
    "zookeeper_unreachable": LeaderExit.UNREACHABLE,
    "zookeeper_unavailable": LeaderExit.UNREACHABLE,
    "zookeeper_auth": LeaderExit.DENIED,
    "zookeeper_tls": LeaderExit.DENIED,
    "acl": LeaderExit.DENIED,
    "not_permitted": LeaderExit.DENIED,
}


@dataclass(frozen=True, slots=True)
class Election:
    """The election that a command uses.

    Args:
        as_json: True: print JSON on stdout, one document for each call of `say`.
    """

    session: ZooKeeperSession
    root: str
    as_json: bool

    def say(self, data: Any, *lines: str) -> None:
        """Print `data` as JSON if `as_json`, else the lines."""
        if self.as_json:
            click.echo(json.dumps(data, sort_keys=True))
            return
        for line in lines:
            click.echo(printable(line))


def on_election(command: F) -> F:
    """Add the options of an election to a command, and pass the election as the first argument."""

    @click.option("--hosts", envvar="LEADER_HOSTS", required=True, help="ZooKeeper: host:port,host:port.")
    @click.option("--root", envvar="LEADER_ROOT", required=True, help="Path of the election, e.g. /nimbus.")
    @click.option("--auth", envvar="LEADER_AUTH", help="digest:user:password or sasl:user:password.")
    @click.option("--tls-ca", envvar="LEADER_TLS_CA", help="Use TLS; PEM file of the trusted authorities.")
    @click.option("--tls-cert", envvar="LEADER_TLS_CERT", help="Use TLS; PEM file of the client certificate.")
    @click.option("--tls-key", envvar="LEADER_TLS_KEY", help="PEM file of the certificate's key.")
    @click.option("--timeout", default=10.0, show_default=True, help="Longest wait for an answer, seconds.")
    @click.option("-o", "--output", type=_FORM, default="text", show_default=True, help="Form of the output.")
    @functools.wraps(command)
    def run(
        *args: Any,
        hosts: str,
        root: str,
        auth: str | None,
        tls_ca: str | None,
        tls_cert: str | None,
        tls_key: str | None,
        timeout: float,
        output: str,
        **kw: Any,
    ) -> Any:
        try:
            config = ZooKeeperConfig(
                hosts=hosts,
                auth=_auth(auth),
                tls=TlsConfig(ca_file=tls_ca, cert_file=tls_cert, key_file=tls_key)
                if tls_ca or tls_cert
                else None,
                call_timeout=timedelta(seconds=min(timeout, 10.0)),
            )
            checked_root(root)
            session = ZooKeeperSession(config)
            session.start(timedelta(seconds=timeout))
        except LeaderError as exc:
            _fail(exc)
        try:
            return command(Election(session, root, output == "json"), *args, **kw)
        except LeaderError as exc:
            _fail(exc)
        finally:
            session.close(timedelta(seconds=5))

    return run  # type: ignore[return-value]  # click reads the options from the wrapper


def printable(line: str) -> str:
    """Replace control characters: other processes wrote parts of the line, and a terminal would obey them."""
    return "".join(one if one.isprintable() else "?" for one in line)


def _auth(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    scheme, _, credential = text.partition(":")
    return scheme, credential


def _fail(exc: LeaderError) -> NoReturn:
    click.echo(printable(f"error: {exc}"), err=True)
    sys.exit(_EXITS.get(exc.code, LeaderExit.FAILED))
