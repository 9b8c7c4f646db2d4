"""Metrics of a real leader, follower and worker, and shipped files that name them: table, board, alerts."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from nimbus.cli.main import cli
from nimbus.localstack.daemons import StackTuning, WorkerProcess, worker_command, write_settings
from nimbus.localstack.ports import free_port
from nimbus.localstack.stack import LocalStack
from tests.leader.integration.test_tls import Authority
from tests.nimbus.worker_bench import eventually

REPOSITORY = Path(__file__).parents[3]
CLUSTER_WIDE = {
    "nimbus_runs",
    "nimbus_tasks",
    "nimbus_ready_tasks",
    "nimbus_task_wait_seconds",
    "nimbus_slots",
    "nimbus_open_attempts",
    "nimbus_commands_waiting",
    "nimbus_quarantined_pipelines",
    "nimbus_parked_keys",
    "nimbus_schedule_lag_seconds",
    "nimbus_last_success_timestamp_seconds",
    "nimbus_outbox_entries",
    "nimbus_outbox_oldest_seconds",
}
UNSEEN = {
    "nimbus_attempt_spark_shuffle_write_bytes_total": {"pipeline"},
    "nimbus_attempt_spark_spill_bytes_total": {"pipeline"},
    "nimbus_attempt_spark_task_seconds_total": {"pipeline"},
    "nimbus_schedule_skipped_fires_total": {"pipeline"},
    "nimbus_telemetry_dropped_runs_total": {"kind"},
    "nimbus_telemetry_failed_tries_total": {"kind"},
}
"""They have no series in the stack below, which runs no Spark, skips no fire time and abandons no run."""
NOT_HERE = {"nimbus_oidc_fetches_total"}
"""Only with an identity provider: tested by `nimbus/integration/test_api_oidc.py`."""
PATIENCE = timedelta(minutes=3)
OF_THE_SCRAPE = {"job", "instance"}
"""Labels that Prometheus adds."""
PIPELINE = """\
schema: 1
name: quick
tasks:
  only: {type: python, script: only.py}
"""


@dataclass(frozen=True)
class Exported:
    """The metrics of one process."""

    kinds: Mapping[str, str]
    """By name, as in the table: a counter with `_total`."""
    labels: Mapping[str, frozenset[str]]
    """Labels of the metrics that have a series."""
    samples: Mapping[str, float]
    """Sum of all series by the name of the sample, such as `..._bucket`."""


def read(text: str) -> Exported:
    kinds, labels, samples = {}, {}, dict[str, float]()
    for family in text_string_to_metric_families(text):
        if family.name.endswith("_created"):  # the client library adds it to each counter and histogram
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        kinds[name] = family.type
        for sample in family.samples:
            labels[name] = labels.get(name, frozenset()) | (sample.labels.keys() - {"le"})
            samples[sample.name] = samples.get(sample.name, 0) + sample.value
    return Exported(kinds, labels, samples)


@dataclass(frozen=True)
class Scraped:
    """The metrics of all processes, after a run has succeeded."""

    leader: Exported
    follower: Exported
    worker: Exported

    @property
    def kinds(self) -> dict[str, str]:
        return {**self.leader.kinds, **self.follower.kinds, **self.worker.kinds}

    @property
    def labels(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {name: set(labels) for name, labels in UNSEEN.items()}
        for one in (self.leader, self.follower, self.worker):
            for name, labels in one.labels.items():
                found[name] = found.get(name, set()) | labels
        return found

    def metric_of(self, sample: str) -> str | None:
        """The metric of a name in an expression; None: there is no such metric."""
        if self.kinds.get(sample, "histogram") != "histogram":
            return sample
        base = re.sub(r"_(bucket|sum|count)$", "", sample)
        return base if base != sample and self.kinds.get(base) == "histogram" else None


def ask(stack: LocalStack, *words: str) -> None:
    server = ",".join(stack.addresses.schedulers)
    done = CliRunner().invoke(cli, [*words, "--server", server])
    assert done.exit_code == 0, done.output


def own_worker(stack: LocalStack, folder: Path, authority: Authority) -> tuple[WorkerProcess, str]:
    """A separate worker with TLS, and the address of its metrics."""
    config, address = folder / "worker.yaml", f"127.0.0.1:{free_port()}"
    certificate = str(authority.certificate("worker"))
    document: dict[str, Any] = yaml.safe_load(stack.config_file(1).read_text())
    document["scheduler"] |= {"id": "own", "state_dir": str(folder / "own")}
    document["worker"]["metrics"] = address
    document["api"] = {"tls": {"certificate": certificate, "key": certificate}}
    write_settings(config, document)
    command = worker_command(config)
    return WorkerProcess(name="own", command=command, log=folder / "own.log", environment={}), address


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory, long_lived: Any) -> Iterator[Scraped]:
    folder = tmp_path_factory.mktemp("metrics")
    source = folder / "quick"
    source.mkdir()
    (source / "pipeline.yaml").write_text(PIPELINE)
    (source / "only.py").write_text("print('done')\n")
    authority = Authority(folder, "ours")
    telemetry = {"lineage": {"file": str(folder / "lineage.jsonl")}}
    tuning = StackTuning(keeps_jvms=False, session_timeout=timedelta(seconds=30), telemetry=telemetry)
    with LocalStack(folder / "stack", 2, tuning=tuning) as stack:
        worker, address = own_worker(stack, folder, authority)
        try:
            worker.spawn()
            stack.wait_ready(PATIENCE)
            worker.wait_ready(PATIENCE)
            config = str(stack.config_file(1))
            ask(stack, "pipeline", "publish", str(source), "--activate", "--config", config)
            ask(stack, "run", "start", "quick", "--watch")
            yield _scrape(stack, address, ssl.create_default_context(cafile=authority.file))
        finally:
            worker.stop()


def _scrape(stack: LocalStack, worker: str, trust: ssl.SSLContext) -> Scraped:
    def schedulers() -> list[Exported]:
        """The schedulers, leader first, once it has counted the succeeded run."""
        found = [read(httpx.get(f"{url}/metrics").text) for url in stack.addresses.schedulers]
        found.sort(key=lambda one: -one.samples["nimbus_leader"])
        return found if "nimbus_last_success_timestamp_seconds" in found[0].labels else []

    leader, follower = eventually(schedulers, "the leader has counted the run", PATIENCE.total_seconds())
    return Scraped(leader, follower, read(httpx.get(f"https://{worker}/metrics", verify=trust).text))


def test_the_leader_alone_tells_of_the_cluster(scraped: Scraped) -> None:
    assert scraped.leader.labels.keys() >= CLUSTER_WIDE
    for other in (scraped.follower, scraped.worker):
        assert not CLUSTER_WIDE & other.kinds.keys()


def test_each_process_tells_its_release_and_its_workers_slots(scraped: Scraped) -> None:
    for one in (scraped.leader, scraped.follower, scraped.worker):
        assert one.samples["nimbus_build_info"] == 1
        assert one.samples["nimbus_worker_slots"] == 1
    assert scraped.leader.samples["nimbus_takeover_seconds_count"] >= 1
    ended = [one.samples["nimbus_worker_attempts_ended_total"] for one in (scraped.leader, scraped.follower)]
    assert sum(ended) + scraped.worker.samples["nimbus_worker_attempts_ended_total"] == 1


def table() -> Iterator[tuple[list[str], str, set[str]]]:
    """Rows of the reference of metrics: names, kinds, labels."""
    text = (REPOSITORY / "docs" / "reference" / "metrics.md").read_text()
    for line in text.splitlines():
        if line.startswith("| `"):
            names, kind, _ = (cell.strip() for cell in line.strip("|").split(" | ", 2))
            labels = set(re.findall(r"`(\w+)`", kind))
            yield re.findall(r"`(\w+)`", names), re.sub(r", `\w+`", "", kind), labels


def test_table_of_metrics_lists_what_is_exported_with_kind_and_labels(scraped: Scraped) -> None:
    listed = {name: (kinds, labels) for names, kinds, labels in table() for name in names}

    assert sorted(listed) == sorted(scraped.kinds.keys() | NOT_HERE)
    for name in NOT_HERE:
        del listed[name]
    for name, (kinds, labels) in listed.items():
        assert scraped.kinds[name] in kinds.split(", "), name
        assert labels == scraped.labels[name], name


def test_metrics_without_a_series_are_those_that_are_said_to_have_none(scraped: Scraped) -> None:
    seen = {name for one in (scraped.leader, scraped.follower, scraped.worker) for name in one.labels}

    assert scraped.kinds.keys() - seen == UNSEEN.keys()


def shipped() -> Iterator[tuple[str, str, set[str]]]:
    """Expressions of the board and the alerts: place, expression, and the labels that its text names."""
    board = json.loads((REPOSITORY / "configs" / "grafana" / "nimbus.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            words = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            yield panel["title"], target["expr"], words
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            name, label = re.findall(r"label_values\((\w+), (\w+)\)", variable["definition"])[0]
            yield variable["name"], name, {label}
    rules = yaml.safe_load((REPOSITORY / "configs" / "prometheus" / "nimbus-alerts.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            notes = " ".join(rule["annotations"].values())
            yield rule["alert"], rule["expr"], set(re.findall(r"\$labels\.(\w+)", notes))


def faults(expression: str, words: set[str], scraped: Scraped) -> Iterator[str]:
    known = set(OF_THE_SCRAPE)
    for sample, matchers in re.findall(r"\b((?:nimbus|leader)_\w+)(?:\{([^}]*)\})?", expression):
        metric = scraped.metric_of(sample)
        if metric is None:
            yield f"there is no metric {sample}"
            continue
        own = scraped.labels[metric] | OF_THE_SCRAPE | ({"le"} if sample.endswith("_bucket") else set())
        known |= own
        yield from (
            f"{metric} has no label {one}" for one in set(re.findall(r"(\w+)\s*[=!]", matchers)) - own
        )
    grouped = re.findall(r"\b(?:by|on|without|ignoring) \(([^)]*)\)", expression)
    used = words | {label for labels in grouped for label in labels.split(", ")}
    yield from (f"no metric of it has the label {label}" for label in used - known)


def test_board_and_alerts_name_metrics_and_labels_that_are_exported(scraped: Scraped) -> None:
    found = {(where, fault) for where, what, words in shipped() for fault in faults(what, words, scraped)}

    assert found == set()


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("nimbus_run > 1", set()),
        ("nimbus_runs_total", set()),
        ("nimbus_runs_count", set()),
        ("nimbus_takeover_seconds > 1", set()),
        ('sum(nimbus_runs{status="queued"})', set()),
        ("sum by (job, pipeline) (nimbus_runs)", set()),
        ("max by (job) (nimbus_runs)", {"pipeline"}),
        ("sum by (le) (rate(nimbus_takeover_seconds_sum[5m]))", set()),
    ],
)
def test_a_name_or_label_that_is_not_exported_is_found(
    expression: str, words: set[str], scraped: Scraped
) -> None:
    assert list(faults(expression, words, scraped))


def test_each_alert_says_how_bad_it_is_what_is_wrong_and_what_to_do() -> None:
    rules = yaml.safe_load((REPOSITORY / "configs" / "prometheus" / "nimbus-alerts.yaml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]

    assert len({alert["alert"] for alert in alerts}) == len(alerts) > 20
    for alert in alerts:
        assert alert["labels"]["severity"] in ("page", "ticket", "info"), alert["alert"]
        assert alert["annotations"].keys() == {"summary", "description"}, alert["alert"]
