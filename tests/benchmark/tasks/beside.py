"""Processor time of our processes during a long Spark task, without its driver and JVM."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tests.benchmark.tasks.ours import Ask, our_stack, until
from tests.benchmark.tasks.usage import DRIVERS, cpu_s
from tests.benchmark.tasks.whole_run import Plan

_COLD = Ask(settings={"worker": {"idle_jvms": 0}})
_OF_THE_TASK = (DRIVERS, "other")
_NAME = "beside"
_BEFORE_ITS_END_S = 3.0


def beside(plan: Plan, seconds: float) -> Mapping[str, float]:
    """Processor time in seconds by kind of process, from the order to shortly before the task's end.

    Raises:
        BenchFailedError: the task did not succeed.
    """
    plan.say(f"beside a Spark task of {seconds:.0f} s")
    marks = plan.place / _NAME
    task = {"type": "pyspark", "script": "spark_task.py", "args": [str(marks), str(seconds)]}
    with our_stack(plan.after, plan.place, _COLD) as stack:
        stack.start()
        stack.publish(_NAME, {"task": task})
        threading.Event().wait(plan.scale.settle_s)
        before = cpu_s(stack.pid)
        stack.begin(_NAME, _NAME)
        until("the task's code", plan.scale.patience_s, marks.exists)
        threading.Event().wait(max(0.0, seconds - _BEFORE_ITS_END_S))
        after = cpu_s(stack.pid)
        stack.ended(_NAME, plan.scale.patience_s)
    used = {kind: after[kind] - before[kind] for kind in after if kind not in _OF_THE_TASK}
    return {kind: round(value, 2) for kind, value in used.items() if value}
