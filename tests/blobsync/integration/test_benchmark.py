"""The benchmark of blobsync runs, at a small scale. The test does not check its figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.benchmark.blobsync.__main__ import main
from tests.thorough import thorough

pytestmark = thorough

COLD = ("small", "medium", "large")


def _run(tmp_path: Path, *words: str) -> dict[str, Any]:
    figures = tmp_path / "figures.json"
    quick = "--scale small --runs 1 --noise 1000000 --patience 0"
    places = ["--data", str(tmp_path / "data"), "--json", str(figures)]
    status = main([*quick.split(), *places, *words])
    found: dict[str, Any] = json.loads(figures.read_text())
    assert found["failed"] == []
    assert status == 0
    assert not list((tmp_path / "data").iterdir()), "the server's data are removed"
    return found


def _sample(found: dict[str, Any], case: str, name: str) -> dict[str, Any]:
    (sample,) = found["cases"][case][name]["samples"]
    assert sample["work"]["wall_s"] > 0
    assert sample["work"]["cpu_s"] > 0
    assert sample["work"]["peak_bytes"] > 1 << 20
    return dict(sample)


def test_benchmark_of_blobsync_measures_other_tools_in_all_cases(tmp_path: Path) -> None:
    # A run with wrong files counts as failed.
    found = _run(tmp_path, "--only", "rclone-tuned", "rclone-checksum", "boto3")

    for case in (*COLD, "nothing", "changed"):
        assert _sample(found, case, "rclone-tuned")["server_cpu_s"] > 0
    for case in COLD:
        _sample(found, case, "boto3")
    _sample(found, "rehash", "rclone-checksum")
    assert {goal["outcome"] for goal in found["goals"]} == {"not measured"}


def test_benchmark_of_blobsync_measures_ours_in_all_cases(tmp_path: Path) -> None:
    ours = ("ours-command", "ours-host", "ours-command-tree", "ours-host-tree")
    with_sha256 = ("ours-command-sha256", "ours-host-sha256")

    found = _run(tmp_path, "--only", *ours, *with_sha256, "ours-open", "ours-open-ready", "floor")

    for case in COLD:
        for name in (*ours, "floor"):
            assert _sample(found, case, name)["server_cpu_s"] > 0
    for name in with_sha256:
        _sample(found, "large", name)
    for case in ("nothing", "changed"):
        for name in ("ours-command", "ours-host", "ours-host-tree"):
            _sample(found, case, name)
    for name in ("ours-host", "ours-host-tree"):
        _sample(found, "rehash", name)
    _sample(found, "readiness", "ours-host")
    _sample(found, "open", "ours-open")
    moved = found["bytes"]
    assert min(moved["publish_all"], moved["publish_changed"]) > 0
    assert moved["sync_all"] > moved["sync_changed"] > 0
