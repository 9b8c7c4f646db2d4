"""The commands of the README on a Debian that has only Python: the wheel with `try` brings the rest."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.debian import authorities, bare, wheel_into

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="needs debootstrap"),
    pytest.mark.timeout(1800),
]
_COMMANDS = """\
set -eu
cd /root
export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin
python3 -m venv nimbus
. nimbus/bin/activate
pip install -q --cert /srv/authorities.crt "$(ls /srv/*.whl)[try]"
nimbus init orders
nimbus up --single > up.log 2>&1 &
up=$!
trap 'kill -TERM $up; wait $up || true' EXIT
for _ in $(seq 120); do [ -f .nimbus/client.json ] && break; sleep 0.5; done
nimbus pipeline publish orders --activate
nimbus run start orders --watch
"""


def test_first_pipeline_runs_on_a_machine_with_python_alone(tmp_path: Path) -> None:
    root = tmp_path / "debian"
    base = bare("python", "ca-certificates,python3,python3-venv,procps")
    subprocess.run(["cp", "-a", base, root], check=True, timeout=300)
    wheel_into(root)
    shutil.copy(authorities(), root / "srv/authorities.crt")
    (root / "root/commands").write_text(_COMMANDS)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    shutil.copy("/etc/hosts", root / "etc/hosts")
    # In mount and PID namespaces of its own, so that nothing stays mounted or running.
    inside = (
        f"mount -t proc proc {root}/proc && mount --bind /dev {root}/dev && "
        f"exec /usr/sbin/chroot {root} sh /root/commands"
    )
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "env", "-i", "/bin/sh", "-c", inside]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)

    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "run succeeded, 2/2 tasks" in done.stdout
