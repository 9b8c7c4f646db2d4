"""Checks of what a daemon needs from its own host: files, secrets, users, addresses. None raises."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import closing
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nimbus.cli.findings import Finding, Level

if TYPE_CHECKING:
    from nimbus.config import Settings

_DEADLINE_S = 3.0


def daemon_of(settings: Settings) -> Iterator[Finding]:
    """Check everything of this host that a configuration names."""
    yield from certificate_of(settings)
    yield from tokens_of(settings)
    yield from users_of(settings)
    yield from data_of(settings)
    yield from room_of(settings)
    yield advertised(settings)


def certificate_of(settings: Settings) -> Iterator[Finding]:
    """Can the API be served with its certificate, and do clients accept it for `advertise_url`?"""
    if settings.api.tls is None:
        return
    from prometheus_client import CollectorRegistry

    from nimbus.api.tls import CertificateError
    from nimbus.bootstrap.access import build_tls

    name, host = "api certificate", urlsplit(settings.scheduler.advertise_url).hostname or ""
    try:
        tls = build_tls(settings, CollectorRegistry())
        if tls is not None:
            tls.verify_for(host)
    except CertificateError as exc:
        yield Finding(name, Level.FAIL, str(exc), "correct api.tls, or scheduler.advertise_url")
    else:
        yield Finding(name, Level.OK, f"valid for {host}")


def tokens_of(settings: Settings) -> Iterator[Finding]:
    """Can the tokens file be read?"""
    from nimbus.scheduler.access_follower import TokensFile, TokensFileError

    name, file = "tokens file", settings.api.tokens_file
    if file is None:
        return
    try:
        count = TokensFile(file).check()
    except TokensFileError as exc:
        yield Finding(name, Level.FAIL, str(exc), "correct api.tokens_file, or the file's owner and mode")
        return
    if count is None:
        advice = "nothing to do if the cluster has tokens; else `nimbus token create --file`"
        yield Finding(name, Level.WARN, f"there is no {file}", advice)
    else:
        yield Finding(name, Level.OK, f"{count} in {file}")


def users_of(settings: Settings) -> Iterator[Finding]:
    """Can tasks run as the users of the configuration, and can these not read its secrets?"""
    from nimbus.config.load import secret_files
    from nimbus.worker.host.task_user import TaskUserError, find_users, refuse_readable_secrets

    worker = settings.worker
    try:
        users = find_users(worker.run_as, worker.run_as_pipelines)
        refuse_readable_secrets(users, secret_files(settings, os.environ))
    except TaskUserError as exc:
        yield Finding("users of tasks", Level.FAIL, str(exc), "correct worker.run_as")
        return
    if users.all():
        names = ", ".join(sorted({user.name for user in users.all()}))
        yield Finding("users of tasks", Level.OK, names)


def data_of(settings: Settings) -> Iterator[Finding]:
    """Is the folder of outputs there?"""
    worker = settings.worker
    if worker.data is None or worker.data_uri is not None:
        return
    name, folder = f"worker.data {worker.data_dir}", worker.data_dir
    if not folder.is_dir():
        advice = "mount it if workers share it, or make it: a worker would make it on this host's disk"
        yield Finding(name, Level.FAIL, "there is no such folder", advice)
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield Finding(name, Level.FAIL, "cannot be written", "let this user write there")
    else:
        yield Finding(name, Level.OK, "can be written")


def room_of(settings: Settings) -> Iterator[Finding]:
    """Is the worker's disk full, so that it gets no attempts?"""
    from nimbus.worker.host.free_room import FreeRoom, lacking

    folder = settings.worker.work_dir
    if folder.is_dir() and (lacks := lacking(FreeRoom(), folder)):
        yield Finding("worker.work_dir", Level.FAIL, lacks, "make room, or lower worker.keep_attempts")


def advertised(settings: Settings) -> Finding:
    """Does `advertise_url` lead to this scheduler? If none runs, this process listens in its place."""
    scheduler = settings.scheduler
    name, url = "advertise_url", urlsplit(scheduler.advertise_url)
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError as exc:
        advice = "set scheduler.advertise_url to a name that all hosts know"
        return Finding(name, Level.FAIL, f"{host}: {exc.strerror or exc}", advice)
    if url.scheme == "http" and settings.api.tls is not None:
        return Finding(name, Level.FAIL, "says http, and the API has a certificate", "write https")
    family = socket.AF_INET6 if ":" in scheduler.host else socket.AF_INET
    with closing(socket.socket(family)) as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            ours.bind((scheduler.host, scheduler.port))
        except OSError:
            return _served(settings)
        ours.listen()
        ours.settimeout(_DEADLINE_S)
        try:
            socket.create_connection((host, port), _DEADLINE_S).close()
        except OSError as exc:
            return _unreachable(settings, str(exc.strerror or exc))
        try:
            ours.accept()[0].close()
        except OSError:
            why = "something else accepts connections there; that is right only for a proxy"
            return Finding(name, Level.WARN, why, _ADVICE)
    return _of_other_hosts(settings, addresses)


_ADVICE = "set scheduler.advertise_url to the address at which other hosts reach this scheduler"


def _served(settings: Settings) -> Finding:
    import httpx

    try:
        url = f"{settings.scheduler.advertise_url.rstrip('/')}/healthz"
        # Not verified: no secret is sent, and the certificate has its own check.
        found = httpx.get(url, timeout=_DEADLINE_S, verify=False).json()["id"]  # noqa: S501
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as exc:
        return _unreachable(settings, str(exc) or type(exc).__name__)
    if found != settings.scheduler.id:
        return Finding("advertise_url", Level.FAIL, f"leads to scheduler {found}", _ADVICE)
    return _of_other_hosts(settings, set())


def _unreachable(settings: Settings, why: str) -> Finding:
    return Finding("advertise_url", Level.FAIL, f"{settings.scheduler.advertise_url}: {why}", _ADVICE)


def _of_other_hosts(settings: Settings, addresses: set[str | int]) -> Finding:
    url = settings.scheduler.advertise_url
    zookeeper = settings.store_folder is None and "127.0.0.1" not in settings.zookeeper.hosts
    if zookeeper and addresses and all(ip_address(address).is_loopback for address in addresses):
        return Finding("advertise_url", Level.WARN, f"{url}: only this host reaches it", _ADVICE)
    return Finding("advertise_url", Level.OK, f"{url} leads here")


_SECRETS = "secrets"


def secrets_of(settings: Settings, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check the provider of `worker.secrets`, if there is one. Reads no secret."""
    from nimbus.bootstrap.secrets import secret_provider
    from nimbus.worker.secrets import PREFIX, SecretError

    section = settings.worker.secrets
    if section.provider is None:
        return
    try:
        secret_provider(section, environment)
    except SecretError as exc:
        yield Finding(_SECRETS, Level.FAIL, str(exc), "correct worker.secrets")
        return
    if section.provider == "file" and section.folder is not None:
        yield _folder_of_secrets(section.folder)
    elif section.provider == "env":
        count = sum(name.startswith(PREFIX) for name in environment)
        yield Finding(_SECRETS, Level.OK, f"{count} variables {PREFIX}* in this environment", "")
    elif section.provider == "command" and shutil.which(section.command[0]) is None:
        advice = "correct worker.secrets.command"
        yield Finding(_SECRETS, Level.FAIL, f"there is no program {section.command[0]}", advice)
    else:
        yield Finding(_SECRETS, Level.OK, f"provider {section.provider}", "")


def _folder_of_secrets(folder: Path) -> Finding:
    try:
        files = [file for file in sorted(folder.iterdir()) if file.is_file()]
        open_to_all = [file.name for file in files if stat.S_IMODE(file.stat().st_mode) & 0o077]
    except OSError as exc:
        why = f"{folder}: {exc.strerror}"
        return Finding(_SECRETS, Level.FAIL, why, "make it, for the worker's user alone")
    if open_to_all:
        why = f"others may read {', '.join(open_to_all[:5])} in {folder}"
        return Finding(_SECRETS, Level.FAIL, why, "chmod 600: else tasks that need them are refused")
    return Finding(_SECRETS, Level.OK, f"{len(files)} in {folder}", "")
