"""Every command of the tutorial, in its order, on a cluster of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
BEFORE = """\
set -eu
trap '[ -z "${up:-}" ] || { kill "$up"; wait "$up" || true; }' EXIT
"""
WAIT = """\
for _ in $(seq 600); do
  nimbus backfill show last-days -o json | grep -q '"finished"' && break
  sleep 0.5
done
"""


AFTER = 'nimbus dataset show daily_totals | grep "$again"\n'


def script() -> str:
    """The commands; those that install or activate are left out, and the cluster runs in the background."""
    found = [BEFORE]
    for block in re.findall(r"^```sh\n(.*?)^```$", (PROJECT / "docs/tutorial.md").read_text(), re.M | re.S):
        if "pip install" in block:
            continue
        text = block.replace(". .venv/bin/activate\n", "")
        if text == "nimbus up --single\n":
            text = "nimbus up --single > up.log 2>&1 &\nup=$!\n"
            text += "for _ in $(seq 240); do [ -f .nimbus/client.json ] && break; sleep 0.5; done\n"
        found.append(text)
        if "backfill show" in block:
            found.append(WAIT)
    return "".join([*found, AFTER])


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_every_command_of_the_tutorial_works(tmp_path: Path) -> None:
    paths = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-xc", script()],
        cwd=tmp_path,
        env={**os.environ, "PATH": paths},
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "the source has no orders" in done.stdout
    assert "daily_totals, by interval: published 3 times" in done.stdout
    assert len(list((tmp_path / "totals-of-today").rglob("*.parquet"))) == 1
