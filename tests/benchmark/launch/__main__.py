"""Measures the cost of an empty task on its worker's host, through the real launcher and runner."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.benchmark.engine.revision import Revision, checkout_of, interpreter, this_checkout

_PATIENCE_S = 60 + 5.0
"""Timeout of the start, and of an attempt."""


def main(words: list[str] | None = None) -> int:
    """Run the benchmark. Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.launch", description=__doc__)
    parser.add_argument("--attempts", type=int, default=50)
    parser.add_argument("--board", choices=("zookeeper", "files"), default="zookeeper")
    parser.add_argument("--before", metavar="REV", help="a commit to compare with")
    options = parser.parse_args(words)
    place = Path(tempfile.mkdtemp(prefix="nimbus-bench-launch-"))
    found: dict[str, dict[str, float]] = {}
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        revisions = [this_checkout()]
        if options.before is not None:
            revisions.insert(0, stack.enter_context(checkout_of(options.before, place)))
        for revision in revisions:
            found[revision.label] = _measured(revision, place / f"of-{revision.label}", options)
    _print(found)
    return 0


def _measured(revision: Revision, place: Path, options: argparse.Namespace) -> dict[str, float]:
    place.mkdir()
    command = [interpreter(revision, place / "venv"), "-m", "tests.benchmark.launch.child"]
    command += [str(options.attempts), str(place / "bench")]
    with contextlib.ExitStack() as stack:
        if options.board == "zookeeper":
            server = ZooKeeperServer(place / "zookeeper")
            server.start()
            stack.callback(server.stop)
            command.append(server.hosts)
        done = subprocess.run(
            command,
            env=revision.environment(),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=_PATIENCE_S + options.attempts * _PATIENCE_S,
        )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _print(found: dict[str, dict[str, float]]) -> None:
    for name, value in found["after"].items():
        line = f"{name:45}{value:9.1f}"
        if "before" in found:
            line += f"   before {found['before'][name]:9.1f}   ratio {value / found['before'][name]:.3f}"
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
