"""Hosts of a page: systemd-nspawn machines with own roots, addresses and names, in a network of their own.

Outside, under a fourth address, are an S3 server and a receiver of alerts.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen

from tests.deploy.debian import PROJECT, Machine, authorities, bare, booted

HOSTS = ("nimbus1", "nimbus2", "nimbus3")
_BASE = "systemd,dbus,openssh-server,iproute2,procps,ca-certificates"
_NET = "10.66.0"
_HUB = "nimbus-test-hub"
_SSH = """\
mkdir -p -m 700 /root/.ssh
ssh-keygen -q -t ed25519 -N "" -f /root/.ssh/id_ed25519
cp /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys
echo StrictHostKeyChecking accept-new > /root/.ssh/config
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
"""
_S3_OPTIONS = (
    *("--config=/dev/null", "--no-checksum", "--vfs-read-wait=0", "--buffer-size=0"),
    *("--vfs-read-chunk-size=0", "--dir-cache-time=24h"),
)
"""Those of `nimbus.localstack.s3`."""
_RECEIVER = """\
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(sys.argv[1], "ab") as file:
            file.write(body + b"\\n")
        self.send_response(204)
        self.end_headers()

HTTPServer(("0.0.0.0", 9001), Receiver).serve_forever()
"""


def base(commands: str, lock: Path) -> Path:
    """A root in which these commands were run, in `/root` beside the lock; made once for the same of both."""
    key = hashlib.sha256(f"{_BASE}{_SSH}{commands}".encode() + lock.read_bytes()).hexdigest()[:12]
    root = PROJECT / "build/debian" / f"hosts-{key}"
    ready = root.with_name(f"{root.name}.ready")
    if not ready.exists():
        shutil.rmtree(root, ignore_errors=True)
        run("cp", "-a", bare("hosts", _BASE), root)
        shutil.copy(lock, root / "root")
        in_root(root, _SSH + commands)
        ready.touch()
    return root


def in_root(root: Path, commands: str) -> None:
    """Run lines of bash in `/root` of a root that is not booted, with the network of this machine."""
    (root / "srv/commands").write_text(f"cd /root\n{commands}")
    shutil.copy(authorities(), root / "srv/authorities.crt")
    for file in ("resolv.conf", "hosts"):
        shutil.copy(f"/etc/{file}", root / "etc" / file)
    variables = (
        "HOME=/root",
        "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "DEBIAN_FRONTEND=noninteractive",
    )
    # In mount and PID namespaces of its own, so that nothing stays mounted or running.
    inside = (
        f"mount -t proc proc {root}/proc && mount --bind /dev {root}/dev && "
        f"exec chroot {root} bash -eu /srv/commands"
    )
    words = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "env", "-i", *variables)
    run(*words, "PIP_CERT=/srv/authorities.crt", "/bin/sh", "-c", inside)


@contextmanager
def layer(below: str, folder: Path) -> Iterator[Path]:
    """A root whose changes go into `folder`; what is below it (roots with colons between) stays as it is."""
    upper, work, merged = (folder / name for name in ("upper", "work", "merged"))
    for made in (upper, work, merged):
        made.mkdir(parents=True, exist_ok=True)
    run(
        "mount", "-t", "overlay", "overlay", "-o", f"lowerdir={below},upperdir={upper},workdir={work}", merged
    )
    try:
        yield merged
    finally:
        run("umount", "-l", merged)


@contextmanager
def network(alerts: Path, objects: Path) -> Iterator[None]:
    """A network of its own with the services outside; alerts go into a file, objects below a folder."""
    with ExitStack() as stack:
        stack.enter_context(_namespace(_HUB))
        run("ip", "-n", _HUB, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", _HUB, "addr", "add", f"{_NET}.1/24", "dev", "br0")
        run("ip", "-n", _HUB, "link", "set", "br0", "up")
        for number, name in enumerate(HOSTS, 1):
            stack.enter_context(_namespace(name))
            run("ip", "-n", _HUB, "link", "add", name, "type", "veth", "peer", "eth0", "netns", name)
            run("ip", "-n", _HUB, "link", "set", name, "master", "br0", "up")
            run("ip", "-n", name, "addr", "add", f"{_NET}.1{number}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
        here = Path(sys.executable).parent
        s3 = (
            here / "rclone",
            "serve",
            "s3",
            f"--addr={_NET}.1:9000",
            "--auth-key=an-access-key,a-secret-key",
        )
        stack.enter_context(_service(*s3, *_S3_OPTIONS, objects))
        stack.enter_context(_service(sys.executable, "-c", _RECEIVER, alerts))
        yield


@contextmanager
def host(root: Path, name: str) -> Iterator[Machine]:
    """Boot a root as the host of this name."""
    (root / "etc/hostname").write_text(f"{name}\n")
    names = [f"{_NET}.1{number} {host}.example.com {host}\n" for number, host in enumerate(HOSTS, 1)]
    others = f"127.0.0.1 localhost\n{_NET}.1 s3.example.com alerts.example.com\n"
    (root / "etc/hosts").write_text(others + "".join(names))
    with booted(root, "--resolv-conf=off", f"--network-namespace-path=/run/netns/{name}") as machine:
        yield machine


def lose(name: str, machine: Machine) -> None:
    """A host disappears from the network, and all its processes with it."""
    run("ip", "-n", _HUB, "link", "set", name, "down")
    machine.kill()


@contextmanager
def _namespace(name: str) -> Iterator[None]:
    run("ip", "netns", "add", name)
    try:
        run("ip", "-n", name, "link", "set", "lo", "up")
        yield
    finally:
        run("ip", "netns", "del", name)


@contextmanager
def _service(*command: str | Path) -> Iterator[None]:
    words = ["ip", "netns", "exec", _HUB, *map(str, command)]
    with Popen(words, stdout=DEVNULL, stderr=DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def run(*command: str | Path) -> None:
    """Run a command of this machine."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
