"""Measure 5: the size of ZooKeeper's data, and of its writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.benchmark.engine.lab import ROOT, Lab, must
from tests.benchmark.engine.rows import Row
from tests.benchmark.engine.scale import Scale
from tests.benchmark.engine.shapes import attempts_of, described

MEASURE = "store"
LARGEST_KIB = 128.0
_TREE_MB, _TASK_KIB = 50.0, 6.0
_RETRIES = 3


def tree(lab: Lab, live: int, pipelines: int) -> Iterator[Row]:
    """Measure the size of all nodes, and the largest node that was ever written."""
    of = f"{pipelines:,} pipelines, {live:,} live runs"
    said = dict(line.split("\t") for line in lab.server.ask("mntr").decode().splitlines() if "\t" in line)
    yield Row(
        measure=MEASURE, words=f"tree, {of}", unit="MB", value=int(said["zk_approximate_data_size"]) / 1e6,
        goal=_TREE_MB, note=f"{int(said['zk_znode_count']):,} nodes",
    )  # fmt: skip
    yield largest_node(lab, 0, of)


def largest_node(lab: Lab, since: int, of: str) -> Row:
    """The largest node that was written after a transaction."""
    found = max(
        (write for entry in lab.log(since) for write in entry.writes), key=lambda write: write.size_bytes
    )
    return Row(
        measure=MEASURE, words=f"largest node, {of}", unit="KiB", value=found.size_bytes / 1024,
        goal=LARGEST_KIB, note=found.path.removeprefix(ROOT),
    )  # fmt: skip


def logged(lab: Lab, scale: Scale) -> Iterator[Row]:
    """Measure bytes in the transaction log for each task of one large run, without and with retries."""
    plain = described("logged", "wide", scale.logged)
    again = described("logged-again", "wide", scale.logged, fails=_RETRIES)
    for what, words in ((plain, "no retries"), (again, f"{_RETRIES} retries each")):
        yield from _logged(
            lab, scale, what, f"log for each attempt, a run of {scale.logged:,} tasks, {words}"
        )


def _logged(lab: Lab, scale: Scale, what: dict[str, Any], words: str) -> Iterator[Row]:
    if refused := lab.publish([what], scale.patience_s):
        yield Row(
            measure=MEASURE,
            words=words,
            unit="KiB",
            value=None,
            goal=_TASK_KIB,
            note=f"refused: {refused[0]}",
        )
        return
    since, attempts = lab.zxid(), attempts_of(what)
    lab.workers.ask("forget")
    lab.operator.ask("start", runs=[(what["name"], f"{what['name']}-1")])
    must(lab.operator.ask("answers", within_s=scale.patience_s))
    closed = lab.workers.ask("await_closed", count=attempts, within_s=scale.patience_s)["closed"]
    engine = lab.engine.ask("session_id")
    written = [(entry.session == engine, entry.size_bytes) for entry in lab.log(since)]
    total, ours = sum(size for _, size in written), sum(size for mine, size in written if mine)
    yield Row(
        measure=MEASURE,
        words=words,
        unit="KiB",
        value=total / closed / 1024 if closed else None,
        goal=_TASK_KIB,
        note=f"of it the leader's {ours / total:.0%}; {closed:,} of {attempts:,} attempts",
    )
