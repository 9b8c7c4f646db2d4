"""The benchmark of the election runs. The test does not check its figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmark.leader.__main__ import main
from tests.thorough import thorough


@thorough
def test_benchmark_of_the_election_measures_hand_overs_calls_and_traffic(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    quick = "--sizes 3 --rounds 3 --warm-up 1 --first-warm-up 1 --pause-ms 1 --idle-s 0 --write-pairs 3"
    places = ["--data", str(tmp_path / "data"), "--json", str(figures)]

    assert main([*quick.split(), "--only", "ours", *places]) == 0

    found = json.loads(figures.read_text())
    assert len(found["handover_samples_ms"]["3"]["ours"]) == 3
    assert all(took_ms > 0 for took_ms in found["handover_samples_ms"]["3"]["ours"])
    assert found["calls"]["is_leader_ns_best"] > 0
    assert found["calls"]["fenced_write_ms_p50"] > 0
    # A latch is made with a request and deleted with one, at the least; and the 28 others do not all stir.
    wire = found["wire"]["ours"]
    assert wire["join"]["requests"] >= 1
    assert wire["leave"]["requests"] >= 1
    assert wire["others"]["requests"] < 28
    assert not list((tmp_path / "data").iterdir()), "the server's data are removed"


@thorough
def test_profile_of_the_hand_over_shows_the_steps_of_both_sides(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    quick = "--profile-handover --sizes 3 --rounds 3 --warm-up 1 --pause-ms 1"

    assert main([*quick.split(), "--data", str(tmp_path)]) == 0

    shown = capfd.readouterr().out
    assert "old  close() called" in shown
    assert "guard asked" in shown
    assert "new  ELECTED" in shown
