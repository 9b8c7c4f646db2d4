"""The kept demonstration serves the page that it names, and leaves nothing when it is interrupted."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from nimbus.localstack.folder import tagged_processes

ROOT = Path(__file__).parents[3]


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_kept_demonstration_serves_its_page_until_it_is_interrupted(tmp_path: Path) -> None:
    words = [sys.executable, "-u", "-m", "nimbus.cli.main", "demo", "--keep", "--dir", str(tmp_path / "demo")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as demo:
        assert demo.stdout is not None
        try:
            found = next(filter(None, (re.match(r"the run: +(\S+)", line) for line in demo.stdout)))
            page = httpx.get(found[1], timeout=30)
        finally:
            demo.send_signal(signal.SIGINT)
        rest = demo.stdout.read()

    assert page.status_code == 200
    assert found[1].rpartition("/")[2] in page.text
    assert "no process was left behind" in rest
    assert demo.returncode == 0
    assert tagged_processes(tmp_path / "demo") == []
