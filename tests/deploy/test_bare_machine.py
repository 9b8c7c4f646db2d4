"""The commands of the README on a Debian that has only Python: the wheel with `try` brings the rest."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.debian import PROJECT, authorities, bare, wheel_into

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="needs debootstrap"),
    pytest.mark.timeout(1800),
]
_MOST = 8
"""Two install, six are Nimbus."""
_BEFORE = """\
set -eu
cd /root
export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin PIP_CERT=/srv/authorities.crt
processes() { ls -d /proc/[0-9]* | wc -l; }
before=$(processes)
"""
_UP = """\
nimbus up --single > up.log 2>&1 &
up=$!
trap 'kill -TERM $up; wait $up || true' EXIT
for _ in $(seq 120); do [ -f .nimbus/client.json ] && break; sleep 0.5; done
"""
_AFTER = """\
nimbus pipeline show orders
nimbus --version
python - <<'END'
import json, re
from urllib.request import urlopen
server = json.load(open(".nimbus/client.json"))["servers"][0]
read = lambda path: urlopen(server + path, timeout=30).read().decode()
places = ("/healthz", "/api/v1/status", "/api/v1/participants", "/api/v1/workers", "/api/v1/cluster/history")
print("releases", [re.findall(r'"version": ?"([^"]+)', read(path)) for path in places])
print(re.search("nimbus_build_info{.*", read("/metrics"))[0])
END
"""


def commands() -> list[str]:
    """The commands that the README gives a person who has Python alone."""
    block = re.search(
        r"^## With Python alone$.*?^```sh$(.*?)^```$", (PROJECT / "README.md").read_text(), re.M | re.S
    )
    assert block
    return [line.partition("  #")[0].rstrip() for line in block[1].strip().splitlines()]


def script(wheel: str) -> str:
    """What the person types, with the file's name of the wheel, each command with its time."""
    lines = [_BEFORE]
    for command in commands():
        lines.append(f"began=$(date +%s); echo '$ {command.replace(chr(39), chr(34))}'")
        lines.append(
            _UP if command.startswith("nimbus up") else re.sub(r"nimbus_scheduler\S+\.whl", wheel, command)
        )
        lines.append("echo took $(($(date +%s) - began)) s")
        if command == "nimbus demo":
            lines += ['[ "$(processes)" = "$before" ]', command]  # nothing is left, and it can be repeated
    return "\n".join([*lines, _AFTER])


def test_first_pipeline_runs_on_a_machine_with_python_alone(tmp_path: Path) -> None:
    root = tmp_path / "debian"
    base = bare("python", "ca-certificates,python3,python3-venv,procps")
    subprocess.run(["cp", "-a", base, root], check=True, timeout=300)
    wheel = wheel_into(root)
    shutil.copy(authorities(), root / "srv/authorities.crt")
    (root / "root/commands").write_text(script(f"/srv/{wheel}"))
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    shutil.copy("/etc/hosts", root / "etc/hosts")
    # In mount and PID namespaces of its own, so that nothing stays mounted or running.
    inside = (
        f"mount -t proc proc {root}/proc && mount --bind /dev {root}/dev && "
        f"exec /usr/sbin/chroot {root} sh /root/commands"
    )
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "env", "-i", "/bin/sh", "-c", inside]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1500, check=False)
    print(done.stdout)  # noqa: T201 - the times, with pytest -s

    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert len(commands()) <= _MOST
    assert done.stdout.count("no process was left behind") == 2
    assert done.stdout.count("  yes no task's code ran twice") == 2
    assert "run succeeded, 2/2 tasks ended" in done.stdout
    assert "0 6 * * *" in done.stdout
    release = re.search(r"^nimbus (0\S+\+([0-9a-f]{12})\S*)$", done.stdout, re.M)
    assert release
    assert f"releases {[[release[1]]] * 5}" in done.stdout
    assert f'commit="{release[2]}' in done.stdout
