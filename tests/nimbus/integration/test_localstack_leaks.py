"""The leak check fails a test that leaves something; a test that fails shows the logs of its processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[2] / "conftest.py"

SUSPECTS = {
    "thread": "gate = threading.Event(); threading.Thread(target=gate.wait, args=(5,), name='T').start()",
    "daemon": "threading.Thread(target=threading.Event().wait, daemon=True, name='D').start()",
    "child": "subprocess.Popen(['sleep', '321'])",
    "forked": "os.fork() or os.execvpe('sleep', ['sleep', '322'], {})",
    # It waits for the program: while it executes, /proc shows no environment.
    "detached": "subprocess.run(['sh', '-c', 'setsid sleep 323 >/dev/null 2>&1 & "
    "until grep -q sleep /proc/$!/comm; do :; done'], check=True)",
    # Kept, because Python reaps an ended process when its object is dropped.
    "unreaped": "request.config.kept = subprocess.Popen(['true'])",
}
INNOCENT = {
    "pool": "with ThreadPoolExecutor(2) as pool: list(pool.map(str, range(4)))",
    "reaped": "subprocess.run(['true'], check=True)",
    "scoped": "request.getfixturevalue('wide')",
}
WIDE = """
@pytest.fixture(scope="session")
def wide(long_lived):
    process = subprocess.Popen(["sleep", "324"])
    long_lived.pids.add(process.pid)
    yield
    process.kill()
    process.wait()
"""


def test_leaks_of_every_kind_fail_their_test_and_nothing_else_does(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        CONFTEST.read_text().replace("LEAK_GRACE_S = 60.0", "LEAK_GRACE_S = 0.3")
    )
    lines = ["import os, subprocess, threading, pytest"]
    lines.append("from concurrent.futures import ThreadPoolExecutor")
    lines.append(WIDE)
    lines += [f"def test_{name}(request):\n    {body}" for name, body in (SUSPECTS | INNOCENT).items()]
    (tmp_path / "test_inner.py").write_text("\n".join(lines))

    done = _pytest(tmp_path)

    failed = {line.split("::test_")[1].split()[0] for line in done.stdout.splitlines() if line[:5] == "ERROR"}
    assert failed == set(SUSPECTS), done.stdout
    assert f"{len(SUSPECTS | INNOCENT)} passed, {len(SUSPECTS)} errors" in done.stdout


def test_test_that_fails_shows_the_ends_of_the_logs_that_were_written_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    writes = "    (tmp_path / 'w1').mkdir()\n    (tmp_path / 'w1/runner.log').write_text('refused\\n')\n"
    passes, fails = (f"def test_{name}(tmp_path):\n{writes}    assert {name}\n" for name in ("True", "False"))
    (tmp_path / "test_inner.py").write_text(passes + fails)

    done = _pytest(tmp_path)

    assert "test_False0/w1/runner.log" in done.stdout
    assert done.stdout.count("\nrefused\n") == 1, done.stdout


def _pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-qrEf", "-Wignore", "-pno:cacheprovider", "-c", "/dev/null", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
