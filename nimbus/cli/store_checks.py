"""Checks of the store: ZooKeeper, or the database of a single scheduler. None raises."""

from __future__ import annotations

import socket
import sqlite3
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nimbus.cli.findings import Finding, Level
from nimbus.cli.words import size

if TYPE_CHECKING:
    from nimbus.config import Settings

_DEADLINE_S = 3.0
_LONGEST_ANSWER_BYTES = 65_536


def zookeeper_of(settings: Settings) -> Iterator[Finding]:
    """Do the servers answer, over TLS if it is configured, and do the credential and the clocks fit?"""
    if settings.store_folder is not None:
        return
    findings = list(_servers_of(settings))
    yield from findings
    if all(finding.verdict is not Level.FAIL for finding in findings):
        yield from _cluster_of(settings)


def _cluster_of(settings: Settings) -> Iterator[Finding]:
    """May the credential write below the root, is the schema known, and do the clocks agree?"""
    from leader import LeaderError
    from nimbus.adapters.store.calls import calls_on
    from nimbus.adapters.store.cluster import TreeClusterReader
    from nimbus.adapters.store.moving import last_epoch
    from nimbus.adapters.store.tree import ClusterTree
    from nimbus.bootstrap.foundation import open_session
    from nimbus.cli.output import logs_on_stderr
    from nimbus.domain.errors import NimbusError
    from nimbus.domain.schema import SchemaUnknownError, check_known

    root = settings.cluster.root
    name = f"zookeeper root {root}"
    try:
        with logs_on_stderr():
            session = open_session(settings)
            try:
                written_at = ClusterTree(session, root).prove_access()
                schema = last_epoch(session, root).schema
                now = datetime.now(UTC)
                reader = TreeClusterReader(calls_on(session), root)
                others = {f"scheduler {one.id}": one.clock_ahead_s for one in reader.schedulers()}
                others |= {f"worker {one.id}": one.clock_ahead_s for one in reader.workers()}
            finally:
                session.close(settings.zookeeper.call_timeout)
    except (LeaderError, NimbusError) as exc:
        yield Finding(name, Level.FAIL, str(exc), "correct zookeeper.username and password, or hosts")
        return
    yield Finding(name, Level.OK, "can be written")
    try:
        check_known(schema, root)
        yield Finding("schema", Level.OK, f"this release knows that of the cluster, {schema}")
    except SchemaUnknownError as exc:
        yield Finding("schema", Level.FAIL, str(exc), "see docs/upgrade.md")
    if written_at is not None:
        yield _clocks((now - written_at).total_seconds(), {"ZooKeeper": 0.0, **others})


def _clocks(ahead_s: float, others: Mapping[str, float | None]) -> Finding:
    """Judge how far our clock is ahead of ZooKeeper's, compared with how far others are."""
    from nimbus.domain.catalog import CLOCK_DIFFERENCE

    differences = {name: ahead_s - theirs_s for name, theirs_s in others.items() if theirs_s is not None}
    off = [
        f"{abs(differ_s):.1f} s {'ahead of' if differ_s > 0 else 'behind'} {name}"
        for name, differ_s in differences.items()
        if abs(differ_s) > CLOCK_DIFFERENCE.total_seconds()
    ]
    if off:
        advice = "let NTP set the clocks: schedules or recorded times would be off"
        return Finding("clocks", Level.WARN, "; ".join(off), advice)
    return Finding("clocks", Level.OK, f"that of this host agrees with {', '.join(differences)}")


def _servers_of(settings: Settings) -> Iterator[Finding]:
    if not settings.zookeeper.tls:
        yield from zookeeper(settings.zookeeper.hosts)
        return
    from leader import ElectionConfigError
    from nimbus.bootstrap.foundation import zookeeper_config

    try:
        tls = zookeeper_config(settings).tls
    except ElectionConfigError as exc:
        yield Finding("zookeeper tls", Level.FAIL, str(exc), "correct the keys zookeeper.tls_...")
    else:
        yield from zookeeper(settings.zookeeper.hosts, None if tls is None else tls.context())


def zookeeper(hosts: str, tls: ssl.SSLContext | None = None) -> Iterator[Finding]:
    """Does each server answer? One of several that is down is a warning."""
    servers = [part.strip() for part in hosts.split("/", 1)[0].split(",") if part.strip()]
    findings = [_zookeeper_server(server, tls) for server in servers]
    alive = sum(finding.verdict is Level.OK for finding in findings)
    for finding in findings:
        if finding.verdict is Level.FAIL and alive > len(servers) // 2:
            yield Finding(finding.check, Level.WARN, finding.detail, finding.advice)
        else:
            yield finding


def _zookeeper_server(server: str, tls: ssl.SSLContext | None) -> Finding:
    name = f"zookeeper {server}"
    host, _, number = server.rpartition(":")
    try:
        with socket.create_connection((host or server, int(number or 2181)), _DEADLINE_S) as connection:
            connection.settimeout(_DEADLINE_S)
            with _secured(connection, host or server, tls) as secured:
                secured.sendall(b"srvr")
                said = _whole_answer(secured).decode(errors="replace")
    except ssl.SSLError as exc:
        return Finding(name, Level.FAIL, f"TLS: {exc}", "correct zookeeper.tls..., or the port")
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or str(exc)
        return Finding(name, Level.FAIL, why, "start ZooKeeper, or correct zookeeper.hosts")
    # A server may be configured to refuse this command; its refusal shows that it works, too.
    if "Mode:" in said or "not in the whitelist" in said:
        mode = said.partition("Mode: ")[2].partition("\n")[0]
        return Finding(name, Level.OK, f"answers{f', {mode}' if mode else ''}")
    if "not currently serving" in said:
        return Finding(name, Level.FAIL, "has no quorum", "start the other ZooKeeper servers")
    return Finding(name, Level.FAIL, "does not answer as ZooKeeper does", "correct zookeeper.hosts")


def _secured(connection: socket.socket, host: str, tls: ssl.SSLContext | None) -> socket.socket:
    return connection if tls is None else tls.wrap_socket(connection, server_hostname=host.strip("[]"))


def _whole_answer(connection: socket.socket) -> bytes:
    """Read until the server closes the connection: the answer may arrive in pieces."""
    said = b""
    while len(said) < _LONGEST_ANSWER_BYTES and (part := connection.recv(4096)):
        said += part
    return said


_OVER_A_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre"})


def store_of(settings: Settings) -> Iterator[Finding]:
    """Is the database of a single scheduler intact, and on a local disk?"""
    from nimbus.bootstrap.foundation import store_file

    file = store_file(settings)
    if file is None:
        return
    name = f"store {file}"
    if (kind := _file_system(file)) in _OVER_A_NETWORK:
        advice = "put scheduler.state_dir on a local disk: locks and shared memory do not hold over a network"
        yield Finding(name, Level.FAIL, f"lies on {kind}", advice)
    else:
        yield _checked(name, file)


def _checked(name: str, file: Path) -> Finding:
    try:
        if not file.exists():
            return Finding(name, Level.OK, "none yet: it is made at the first start")
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
            (said,) = database.execute("PRAGMA quick_check(1)").fetchone()
    except OSError as exc:
        return Finding(name, Level.WARN, str(exc.strerror), "ask as the scheduler's user")
    except sqlite3.Error as exc:
        said = str(exc)
    if said != "ok":
        advice = "stop the scheduler and restore the whole folder from a backup, or begin with an empty one"
        return Finding(name, Level.FAIL, str(said), advice)
    return Finding(name, Level.OK, f"whole, {size(file.stat().st_size)}")


def _file_system(file: Path) -> str:
    import psutil

    mounts = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
    return next((mounts[place] for place in file.absolute().parents if place in mounts), "")
