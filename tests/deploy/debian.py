"""A Debian of its own, made by debootstrap, in which the wheel is installed and a real systemd runs.

Needs root, debootstrap and systemd-nspawn. The root is made once, in `build/debian`; tests use copies.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PROJECT = Path(__file__).parents[2]
UNITS = PROJECT / "deploy" / "systemd"
_PACKAGES = "systemd,dbus,python3,python3-venv,ca-certificates,openjdk-17-jre-headless,procps"
_BOOT_S = 60
# Each machine has a control group of its own, since its systemd takes all that are below.
_GROUPED = """\
for folder in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
  [ -e $folder/cgroup.procs ] || continue
  mkdir -p $folder/$0
  echo $$ > $folder/$0/cgroup.procs
done
exec "$@"
"""


def missing_tools() -> str:
    """What this machine lacks, as a reason to skip; empty: nothing."""
    lacks = [name for name in ("debootstrap", "systemd-nspawn") if shutil.which(name) is None]
    return f"needs {' and '.join(lacks)} (apt-get install debootstrap systemd-container)" if lacks else ""


def bare(name: str = "bare", packages: str = "ca-certificates", suite: str = "bookworm") -> Path:
    """A root with Debian 12, or another suite, and these packages, made once."""
    root = PROJECT / "build" / "debian" / name
    ready = root.with_name(f"{name}.ready")
    if not ready.exists():
        shutil.rmtree(root, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        _run("debootstrap", "--variant=minbase", f"--include={packages}", suite, root, _mirror())
        subprocess.run(["umount", "-q", root / "proc"], check=False)  # Debian 13 leaves it mounted
        ready.touch()
    return root


def authorities() -> Path:
    """The file with the certificate authorities that this machine trusts, for pip inside a root."""
    found = ssl.get_default_verify_paths()
    file = Path(found.cafile) if found.cafile else Path(found.capath or "", "ca-certificates.crt")
    assert file.exists(), f"{file} does not exist: name the file in SSL_CERT_FILE"
    return file


def wheel_into(root: Path) -> str:
    """Build the wheel of this project into `/srv` of a root; its file's name."""
    _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", root / "srv", PROJECT)
    return next((root / "srv").glob("*.whl")).name


def installed(folder: Path) -> Path:
    """A root with Debian 12, the wheel of this project in `/opt/nimbus`, its units, and its folders."""
    base = bare("systemd", _PACKAGES)
    if not (base / "opt/nimbus/bin/pip").exists():
        _run("chroot", base, "python3", "-m", "venv", "/opt/nimbus")
        packages = base / "opt/nimbus/lib/python3.11/site-packages"
        of_tests = Path(sys.executable).parents[1] / "lib/python3.11/site-packages"
        _run("cp", "-an", f"{of_tests}/.", packages)  # the locked packages; Debian 12's Python is 3.11, too
        for ours in (*packages.glob("__editable__*"), *packages.glob("nimbus_scheduler*")):
            shutil.rmtree(ours) if ours.is_dir() else ours.unlink()
    root = folder / "debian"
    _run("cp", "-a", base, root)
    wheel = wheel_into(root)
    _run("chroot", root, "/opt/nimbus/bin/pip", "install", "-q", "--no-deps", "--no-index", f"/srv/{wheel}")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    for unit in (*UNITS.glob("*.service"), *UNITS.glob("*.timer")):
        shutil.copy(unit, root / "etc/systemd/system")
    shutil.copy(UNITS / "nimbus-sysusers.conf", root / "usr/lib/sysusers.d/nimbus.conf")
    shutil.copy(UNITS / "nimbus-tmpfiles.conf", root / "usr/lib/tmpfiles.d/nimbus.conf")
    return root


@contextmanager
def booted(root: Path, *more: str) -> Iterator[Machine]:
    """Boot a root with systemd-nspawn, in the network of this machine; power it off at the end.

    `more` are options of systemd-nspawn, such as another network.
    """
    command = ["systemd-nspawn", "-D", str(root), "-b", "--register=no", "--keep-unit", "--console=pipe"]
    group = f"nimbus-test-{os.getpid()}-{root.parent.name}"
    command = ["sh", "-c", _GROUPED, group, *command, *more]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as nspawn:
        machine = None
        try:
            machine = Machine(_init_of(nspawn.pid))
            machine.await_start()
            yield machine
            if nspawn.poll() is None:
                machine.run("systemctl", "poweroff")
                nspawn.wait(_BOOT_S)
        finally:
            if machine and nspawn.poll() is None:
                machine.kill()  # it does not end with nspawn
            nspawn.kill()


class Machine:
    """A machine that runs. Commands are run as root inside it."""

    def __init__(self, init: int) -> None:
        self._init = init
        self._enter = ["nsenter", "-t", str(init), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w"]

    def await_start(self) -> None:
        """Wait until systemd has started its units."""
        ask = [*self._enter, "systemctl", "is-system-running"]
        until(
            "the machine runs",
            lambda: b"running" in subprocess.run(ask, capture_output=True, timeout=60, check=False).stdout,
        )

    def run(self, *command: str | Path) -> str:
        """Run a command; its standard output."""
        return _run(*self._enter, *command)

    def shell(self, commands: str, folder: str) -> str:
        """Run lines of a shell in a folder, until one fails; their standard output."""
        environment = ("env", "-i", "HOME=/root", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        return self.run(*environment, "bash", "-euc", f"cd {folder}\n{commands}")

    def kill(self) -> None:
        """End all of the machine at once, as a loss of power does."""
        os.kill(self._init, signal.SIGKILL)

    def state(self, unit: str, what: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", "-P", what, unit).strip()


def exposure(root: Path, unit: str) -> float:
    """What `systemd-analyze security` says of a unit: 0 is the best, 10 the worst."""
    told = _run("systemd-analyze", "security", "--offline=true", f"--root={root}", "--no-pager", unit)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", told)
    assert found, told
    return float(found[1])


def _init_of(nspawn: int) -> int:
    """The process that is number 1 in the machine."""
    children = Path(f"/proc/{nspawn}/task/{nspawn}/children")
    ends = time.monotonic() + _BOOT_S
    while time.monotonic() < ends:
        for child in children.read_text().split():
            if Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0].endswith(b"/systemd"):
                return int(child)
        time.sleep(0.1)
    raise AssertionError("systemd did not start in the machine")


def _mirror() -> str:
    """Debian's address in the configuration of apt here."""
    for file in (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("debian*")):
        if file.exists() and (found := re.search(r"https?://\S*/debian(?=\s|$)", file.read_text())):
            return found[0]
    raise AssertionError("the configuration of apt on this machine names no mirror of Debian")


def until(what: str, holds: Callable[[], object], within_s: float = 90) -> None:
    """Wait until something holds; fail after `within_s` seconds."""
    ends = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < ends, f"not in {within_s:g} s: {what}"
        time.sleep(0.5)


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout
