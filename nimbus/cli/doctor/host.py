"""Checks of this host: Java, disk, processes, and what a daemon needs: files, secrets, users, addresses."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nimbus.cli.doctor import DEADLINE_S, CheckResult, fail, ok, warn
from nimbus.domain.wording import format_size

if TYPE_CHECKING:
    from nimbus.config import Settings

_DISK_LOW, _DISK_TOO_LOW = 5 << 30, 1 << 30


def python() -> CheckResult:
    """Informs only: the installation refuses older versions."""
    return ok("python", f"{'.'.join(map(str, sys.version_info[:3]))}, {sys.executable}")


def java(*, needed: bool) -> CheckResult:
    """Is there a Java that Spark can use? It may be missing where other workers run the Spark tasks."""
    from nimbus.java import JavaMissingError, find_java

    try:
        runtime = find_java()
    except JavaMissingError as exc:
        first, _, rest = str(exc).partition("\n")
        if needed:
            return fail("java", first, rest.strip())
        advice = f"nothing to do if other workers run the Spark tasks. {rest.strip()}"
        return warn("java", first, advice)
    detail = f"{runtime.version} from {runtime.origin}, {runtime.java_home}"
    if runtime.warnings:
        return warn("java", detail, "passed over: " + "; ".join(runtime.warnings))
    return ok("java", detail)


def executor(settings: Settings) -> CheckResult:
    """Which executor processes of the worker run?"""
    from nimbus.worker.pool.folder import NONE_RUNS, ExecutorFolder

    name, work_dir = "executor", settings.worker.work_dir
    try:
        running = [folder.lock for folder in ExecutorFolder.all_in(work_dir) if folder.lock.is_held()]
        holders = [lock.last_holder() for lock in running]
    except OSError as exc:
        return warn(name, f"{work_dir}: {exc.strerror}", "ask as the worker's user")
    pids = [f"pid {holder.pid}" for holder in holders if holder is not None]
    return ok(name, ", ".join(pids) or NONE_RUNS)


def kept_jvms(settings: Settings) -> CheckResult:
    """Would a worker keep the JVM of a Spark task?"""
    from nimbus.bootstrap.worker import java_home
    from nimbus.worker.host.free_room import available_memory
    from nimbus.worker.jvm.launcher import GIVE_BACK_BYTES
    from nimbus.worker.jvm.plan import JvmPlan

    name, worker = "kept JVMs", settings.worker
    if worker.idle_jvms == 0:
        return ok(name, "off (worker.idle_jvms)")
    plan = JvmPlan(release="", environment={}, master=worker.master, worker_conf=worker.spark_conf)
    if why := plan.why_not():
        return ok(name, f"none: {why}")
    if java_home() is None:
        return ok(name, "none without Java")
    needed = plan.memory_bytes + GIVE_BACK_BYTES
    if (free := available_memory()) < needed:
        why = f"{free / 2**30:.1f} GiB of memory are available, {needed / 2**30:.1f} GiB would be needed"
        return warn(name, f"none: {why}", "Spark tasks start cold; nothing else is wrong")
    return ok(name, f"up to {worker.idle_jvms} idle ones")


def environments(settings: Settings) -> Iterator[CheckResult]:
    """Can tasks run in each environment of the configuration?"""
    from nimbus.bootstrap.worker import find_environments

    for name, environment in find_environments(settings.worker.environments).items():
        if isinstance(environment, str):
            advice = f"mend worker.environments.{name}; tasks that name it wait for another worker"
            yield fail(f"environment {name}", environment, advice)
        else:
            yield ok(f"environment {name}", environment.versions)


def disk(folder: Path) -> CheckResult:
    """Is there free space, and can this user write?"""
    name = f"disk {folder}"
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not os.access(there, os.W_OK):
        return fail(name, f"{there} cannot be written", "let this user write there")
    free = shutil.disk_usage(there).free
    detail = f"{format_size(free)} free"
    if free < _DISK_TOO_LOW:
        return fail(name, detail, "free some: releases and task outputs need room")
    if free < _DISK_LOW:
        return warn(name, detail, "releases and task outputs may need more")
    return ok(name, detail)


def port(host: str, number: int, *, tls: bool = False) -> CheckResult:
    """Is the API's port free, or held by a scheduler?

    The certificate is not verified: no secret is sent, and it need not contain the bound address.
    """
    import httpx

    name = f"port {number}"
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, number))
        except OSError as exc:
            why = exc.strerror or str(exc)
        else:
            return ok(name, "free")
    try:
        url = httpx.URL(scheme="https" if tls else "http", host=host, port=number, path="/healthz")
        answer = httpx.get(url, timeout=DEADLINE_S, verify=False).json()  # noqa: S501
        return ok(name, f"scheduler {answer['id']} serves there")
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        advice = "stop what listens there, or set scheduler.port to another one"
        return fail(name, f"{host}:{number}: {why}", advice)


def certificate_of(settings: Settings) -> Iterator[CheckResult]:
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
        yield fail(name, str(exc), "correct api.tls, or scheduler.advertise_url")
    else:
        yield ok(name, f"valid for {host}")


def tokens_of(settings: Settings) -> Iterator[CheckResult]:
    """Can the tokens file be read?"""
    from nimbus.scheduler.followers import TokensFile, TokensFileError

    name, file = "tokens file", settings.api.tokens_file
    if file is None:
        return
    try:
        count = TokensFile(file).check()
    except TokensFileError as exc:
        yield fail(name, str(exc), "correct api.tokens_file, or the file's owner and mode")
        return
    if count is None:
        advice = "nothing to do if the cluster has tokens; else `nimbus token create --file`"
        yield warn(name, f"there is no {file}", advice)
    else:
        yield ok(name, f"{count} in {file}")


def users_of(settings: Settings) -> Iterator[CheckResult]:
    """Can tasks run as the users of the configuration, and can these not read its secrets?"""
    from nimbus.config.load import secret_files
    from nimbus.worker.host.task_user import TaskUserError, find_users, refuse_readable_secrets

    worker = settings.worker
    try:
        users = find_users(worker.run_as, worker.run_as_pipelines)
        refuse_readable_secrets(users, secret_files(settings, os.environ))
    except TaskUserError as exc:
        yield fail("users of tasks", str(exc), "correct worker.run_as")
        return
    if users.all():
        names = ", ".join(sorted({user.name for user in users.all()}))
        yield ok("users of tasks", names)


def data_of(settings: Settings) -> Iterator[CheckResult]:
    """Is the folder of outputs there?"""
    worker = settings.worker
    if worker.data is None or worker.data_uri is not None:
        return
    name, folder = f"worker.data {worker.data_dir}", worker.data_dir
    if not folder.is_dir():
        advice = "mount it if workers share it, or make it: a worker would make it on this host's disk"
        yield fail(name, "there is no such folder", advice)
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield fail(name, "cannot be written", "let this user write there")
    else:
        yield ok(name, "can be written")


def room_of(settings: Settings) -> Iterator[CheckResult]:
    """Is the worker's disk full, so that it gets no attempts?"""
    from nimbus.worker.host.free_room import FreeRoom, lacking

    folder = settings.worker.work_dir
    if folder.is_dir() and (lacks := lacking(FreeRoom(), folder)):
        yield fail("worker.work_dir", lacks, "make room, or lower worker.keep_attempts")


def advertised(settings: Settings) -> CheckResult:
    """Does `advertise_url` lead to this scheduler? If none runs, this process listens in its place."""
    scheduler = settings.scheduler
    name, url = "advertise_url", urlsplit(scheduler.advertise_url)
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError as exc:
        advice = "set scheduler.advertise_url to a name that all hosts know"
        return fail(name, f"{host}: {exc.strerror or exc}", advice)
    if url.scheme == "http" and settings.api.tls is not None:
        return fail(name, "says http, and the API has a certificate", "write https")
    family = socket.AF_INET6 if ":" in scheduler.host else socket.AF_INET
    with closing(socket.socket(family)) as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            ours.bind((scheduler.host, scheduler.port))
        except OSError:
            return _served(settings)
        ours.listen()
        ours.settimeout(DEADLINE_S)
        try:
            socket.create_connection((host, port), DEADLINE_S).close()
        except OSError as exc:
            return _unreachable(settings, str(exc.strerror or exc))
        try:
            ours.accept()[0].close()
        except OSError:
            why = "something else accepts connections there; that is right only for a proxy"
            return warn(name, why, _ADVICE)
    return _of_other_hosts(settings, addresses)


_ADVICE = "set scheduler.advertise_url to the address at which other hosts reach this scheduler"


def _served(settings: Settings) -> CheckResult:
    import httpx

    try:
        url = f"{settings.scheduler.advertise_url.rstrip('/')}/healthz"
        # Not verified: no secret is sent, and the certificate has its own check.
        server_id = httpx.get(url, timeout=DEADLINE_S, verify=False).json()["id"]  # noqa: S501
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as exc:
        return _unreachable(settings, str(exc) or type(exc).__name__)
    if server_id != settings.scheduler.id:
        return fail("advertise_url", f"leads to scheduler {server_id}", _ADVICE)
    return _of_other_hosts(settings, set())


def _unreachable(settings: Settings, why: str) -> CheckResult:
    return fail("advertise_url", f"{settings.scheduler.advertise_url}: {why}", _ADVICE)


def _of_other_hosts(settings: Settings, addresses: set[str | int]) -> CheckResult:
    url = settings.scheduler.advertise_url
    zookeeper = settings.store_folder is None and "127.0.0.1" not in settings.zookeeper.hosts
    if zookeeper and addresses and all(ip_address(address).is_loopback for address in addresses):
        return warn("advertise_url", f"{url}: only this host reaches it", _ADVICE)
    return ok("advertise_url", f"{url} leads here")


_SECRETS = "secrets"


def secrets_of(settings: Settings, environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check the provider of `worker.secrets`, if there is one. Reads no secret."""
    from nimbus.bootstrap.resources import secret_provider
    from nimbus.worker.secrets import PREFIX, SecretError

    section = settings.worker.secrets
    if section.provider is None:
        return
    try:
        secret_provider(section, environment)
    except SecretError as exc:
        yield fail(_SECRETS, str(exc), "correct worker.secrets")
        return
    if section.provider == "file" and section.folder is not None:
        yield _folder_of_secrets(section.folder)
    elif section.provider == "env":
        count = sum(name.startswith(PREFIX) for name in environment)
        yield ok(_SECRETS, f"{count} variables {PREFIX}* in this environment")
    elif section.provider == "command" and shutil.which(section.command[0]) is None:
        advice = "correct worker.secrets.command"
        yield fail(_SECRETS, f"there is no program {section.command[0]}", advice)
    else:
        yield ok(_SECRETS, f"provider {section.provider}")


def _folder_of_secrets(folder: Path) -> CheckResult:
    try:
        files = [file for file in sorted(folder.iterdir()) if file.is_file()]
        open_to_all = [file.name for file in files if stat.S_IMODE(file.stat().st_mode) & 0o077]
    except OSError as exc:
        why = f"{folder}: {exc.strerror}"
        return fail(_SECRETS, why, "make it, for the worker's user alone")
    if open_to_all:
        why = f"others may read {', '.join(open_to_all[:5])} in {folder}"
        return fail(_SECRETS, why, "chmod 600: else tasks that need them are refused")
    return ok(_SECRETS, f"{len(files)} in {folder}")
