"""The shipped alert rules, evaluated by Prometheus' own tool over series of whole clusters.

Needs `promtool` (Debian: `prometheus`). Without it the tests are skipped, and fail in CI.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

RULES = Path(__file__).parents[3] / "configs" / "prometheus" / "nimbus-alerts.yaml"
_HOUR = 60
"""Samples: one a minute."""


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            "not here: promtool (apt-get install prometheus)"
        )
    return str(found)


def scheduler(job: str, instance: str, *, leads: bool = False, dies: bool = False) -> dict[str, str]:
    """The series of a scheduler of two hours, which answers for the first half hour if it dies."""
    alive = f"1x{_HOUR // 2}" if dies else f"1x{3 * _HOUR}"
    labels = f'{{job="{job}", instance="{instance}"}}'
    figure = alive if leads else alive.replace("1x", "0x")
    return {
        f"up{labels}": f"{alive} 0x{3 * _HOUR}" if dies else alive,
        f"nimbus_leader{labels}": f"{figure} stale" if dies else figure,
        f"nimbus_ready{labels}": f"{alive} stale" if dies else alive,
    }


def firing(promtool: str, folder: Path, series: Mapping[str, str], expected: Sequence[str]) -> str:
    """What promtool says about the alerts that fire after two hours; empty: exactly the expected ones."""
    query = 'count by (alertname, job, instance) (ALERTS{alertstate="firing"})'
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": query,
                        "eval_time": "2h",
                        "exp_samples": [{"labels": labels, "value": 1} for labels in expected],
                    }
                ],
            }
        ],
    }
    place = folder / "test.yaml"
    place.write_text(yaml.safe_dump(test))
    done = subprocess.run(
        [promtool, "test", "rules", str(place)], check=False, capture_output=True, text=True
    )
    return done.stdout + done.stderr if done.returncode else ""


def alert(name: str, job: str, instance: str = "") -> str:
    more = f', instance="{instance}"' if instance else ""
    return f'{{alertname="{name}", job="{job}"{more}}}'


A, B = "nimbus-a", "nimbus-b"
WORKER = {f'up{{job="{A}", instance="w1"}}': f"1x{3 * _HOUR}"}


def cluster(job: str, **said: bool) -> dict[str, str]:
    """A cluster of three schedulers, of which s1 leads."""
    return {
        **scheduler(job, "s1", leads=True, dies=said.get("s1_dies", False)),
        **scheduler(job, "s2", dies=said.get("s2_dies", False)),
        **scheduler(job, "s3", dies=said.get("s3_dies", False)),
    }


def test_no_alert_fires_for_whole_clusters_of_three_and_of_one(promtool: str, tmp_path: Path) -> None:
    series = {**cluster(A), **WORKER, **scheduler(B, "s1", leads=True)}

    assert firing(promtool, tmp_path, series, []) == ""


@pytest.mark.parametrize(("second", "worker"), [("-1.7", "0.1"), ("0.1", "-1.7")])
def test_clocks_that_differ_are_alerted_with_their_cluster(
    promtool: str, tmp_path: Path, second: str, worker: str
) -> None:
    clocks = {
        f'{name}_clock_ahead_seconds{{job="{job}", instance="{instance}"}}': f"{ahead}x{3 * _HOUR}"
        for name, job, instance, ahead in (
            ("nimbus", A, "s1", "0.4"),
            ("nimbus", A, "s2", second),
            ("nimbus_worker", A, "w1", worker),
            ("nimbus", B, "s1", "0.9"),
            ("nimbus_worker", B, "s1", "0.9"),
            ("nimbus_worker", B, "w1", "-0.9"),
        )
    }

    told = firing(
        promtool, tmp_path, {**cluster(A), **cluster(B), **clocks}, [alert("NimbusClocksDiffer", A)]
    )

    assert told == ""


def test_loss_of_two_schedulers_of_three_is_alerted(promtool: str, tmp_path: Path) -> None:
    expected = [
        alert("NimbusProcessDown", A, "s2"),
        alert("NimbusProcessDown", A, "s3"),
        alert("NimbusNoReadySuccessor", A),
    ]

    assert (
        firing(promtool, tmp_path, {**cluster(A, s2_dies=True, s3_dies=True), **cluster(B)}, expected) == ""
    )


def test_schedulers_that_are_no_longer_scraped_are_no_loss(promtool: str, tmp_path: Path) -> None:
    """Two of three were removed for good, and from the targets of Prometheus."""
    dead = {**scheduler(A, "s2", dies=True), **scheduler(A, "s3", dies=True)}
    ended = {name: f"{values.split()[0]} stale" for name, values in dead.items()}

    assert firing(promtool, tmp_path, {**scheduler(A, "s1", leads=True), **ended, **WORKER}, []) == ""


def test_loss_of_a_worker_is_alerted(promtool: str, tmp_path: Path) -> None:
    worker = {f'up{{job="{A}", instance="w1"}}': f"1x{_HOUR} 0x{_HOUR}"}

    told = firing(promtool, tmp_path, {**cluster(A), **worker}, [alert("NimbusProcessDown", A, "w1")])

    assert told == ""


def test_dead_cluster_is_alerted_while_another_one_lives(promtool: str, tmp_path: Path) -> None:
    series = {**cluster(A), **cluster(B, s1_dies=True, s2_dies=True, s3_dies=True)}
    down = [alert("NimbusProcessDown", B, instance) for instance in ("s1", "s2", "s3")]

    assert firing(promtool, tmp_path, series, [alert("NimbusNobodyLeads", B), *down]) == ""


def test_cluster_that_was_never_seen_alive_is_alerted(promtool: str, tmp_path: Path) -> None:
    dead = {f'up{{job="{B}", instance="s1"}}': f"0x{3 * _HOUR}"}
    expected = [alert("NimbusNobodyLeads", B), alert("NimbusProcessDown", B, "s1")]

    assert firing(promtool, tmp_path, {**cluster(A), **dead}, expected) == ""


def test_only_cluster_that_is_dead_is_alerted_once(promtool: str, tmp_path: Path) -> None:
    expected = [alert("NimbusNobodyLeads", A), alert("NimbusProcessDown", A, "s1")]

    assert firing(promtool, tmp_path, scheduler(A, "s1", leads=True, dies=True), expected) == ""


def test_missing_metrics_are_alerted_whatever_the_jobs_are_called(promtool: str, tmp_path: Path) -> None:
    series = {'up{job="other", instance="s1"}': f"0x{3 * _HOUR}"}

    assert firing(promtool, tmp_path, series, ['{alertname="NimbusNobodyLeads"}']) == ""


def test_cluster_without_a_leader_is_alerted(promtool: str, tmp_path: Path) -> None:
    series = {**cluster(A), **scheduler(B, "s1"), **scheduler(B, "s2")}

    assert firing(promtool, tmp_path, series, [alert("NimbusNobodyLeads", B)]) == ""


def test_certificate_that_has_expired_is_alerted(promtool: str, tmp_path: Path) -> None:
    """The evaluation is two hours after the epoch, and the certificate ended one hour after it."""
    name = "nimbus_api_certificate_expiry_timestamp_seconds"
    series = {f'{name}{{job="{A}", instance="s1"}}': f"3600x{3 * _HOUR}"}
    expected = [alert(f"NimbusCertificateExpiresInTwo{span}", A, "s1") for span in ("Days", "Weeks")]

    assert firing(promtool, tmp_path, {**cluster(A), **WORKER, **series}, expected) == ""


def test_all_rules_are_valid(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", str(RULES)], check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_logs_that_a_worker_cannot_store_are_alerted(promtool: str, tmp_path: Path) -> None:
    logs = {f'nimbus_worker_leftover_logs{{job="{A}", instance="w1"}}': f"3x{3 * _HOUR}"}
    expected = [alert("NimbusWorkerLogsLeft", A, "w1")]

    assert firing(promtool, tmp_path, {**cluster(A), **WORKER, **logs}, expected) == ""
