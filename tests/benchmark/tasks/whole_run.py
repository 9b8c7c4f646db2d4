"""All workloads of all products, one product at a time."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.benchmark.blobsync.line_process import BenchFailedError
from tests.benchmark.engine.revision import Revision
from tests.benchmark.leader.figures import summary
from tests.benchmark.tasks.marks import check_once, gaps_ms, read_marks, span_s
from tests.benchmark.tasks.ours import Ask, OurProduct, our_stack, until
from tests.benchmark.tasks.peers import PEERS, NotInstalledError, peer
from tests.benchmark.tasks.shapes import CHAIN, FANOUT, LOGS, SLOTS, Scale, Shape, shapes
from tests.benchmark.tasks.usage import watched

POOLED, ISOLATED, PARENT = "pooled", "isolated", "parent"
PRODUCTS = (POOLED, ISOLATED, PARENT, *PEERS)
_WARM_UP = Shape("warm-up", FANOUT, 2 * SLOTS)
_STORED_S = 2.0
"""If the number of logs has not changed for this time, all logs are stored."""


class Product(Protocol):
    """Runs workloads."""

    pid: int
    """Pid of the process that is the ancestor of all its processes."""

    def prepare(self, shape: Shape, marks: Path) -> None:
        """Prepare a workload. This is not measured."""
        ...

    def run(self, shape: Shape, marks: Path, within_s: float) -> None:
        """Run a workload to its end."""
        ...


@dataclass(frozen=True)
class Figures:
    """One product, one workload.

    Args:
        skipped: Why it was left out.
        gap_ms: Percentiles; for chains only.
        cpu_ms: Processor time for a task, by kind of process.
        idle_mib: PSS of all its processes before the workload; `peak_mib`: the largest during the workload.
        objects: Number of objects in S3 for the logs; ours only.
    """

    product: str
    workload: str
    tasks: int = 0
    failure: str = ""
    skipped: str = ""
    gap_ms: dict[str, float] = field(default_factory=dict)
    tasks_per_s: float = 0.0
    cpu_ms: dict[str, float] = field(default_factory=dict)
    idle_mib: float = 0.0
    peak_mib: float = 0.0
    objects: int | None = None

    @property
    def all_cpu_ms(self) -> float:
        return sum(self.cpu_ms.values())

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Args:
        place: Folder for all data.
        before: The commit that is measured as the product `parent`.
        say: Called with the name of each part before it starts.
    """

    place: Path
    scale: Scale
    products: Sequence[str]
    workloads: Sequence[str]
    after: Revision
    before: Revision | None
    say: Callable[[str], None]


def whole_run(plan: Plan) -> Iterator[Figures]:
    """Run all workloads of all products. If a product breaks down, only its remaining workloads are lost."""
    wanted = [shape for name, shape in shapes(plan.scale).items() if name in plan.workloads]
    for product in plan.products if wanted else ():
        plan.say(product)
        try:
            yield from _of_product(plan, product, wanted)
        except NotInstalledError as exc:
            yield Figures(product, "-", skipped=str(exc))
        except BenchFailedError as exc:
            yield Figures(product, "-", failure=str(exc).splitlines()[0])


def _of_product(plan: Plan, name: str, wanted: Sequence[Shape]) -> Iterator[Figures]:
    place = plan.place / f"marks-{name}"
    place.mkdir()
    with ExitStack() as closing:
        found: list[Figures] = []
        if name in PEERS:
            product: Product = closing.enter_context(peer(name, plan.place))
            objects = None
        else:
            ours = closing.enter_context(_ours(plan, name))
            product, objects = ours, ours.objects_of_logs
        _prepared_run(product, _WARM_UP, place, plan.scale.patience_s)
        for shape in wanted:
            if shape.workload == LOGS and objects is None:
                continue
            plan.say(f"{name}: {shape.workload}, {shape.tasks} tasks")
            found.append(_measured(product, name, shape, place, plan.scale))
            yield found[-1]
        if objects is not None and any(each.workload == LOGS for each in found):
            shape = shapes(plan.scale)[LOGS]
            yield Figures(name, "objects", tasks=shape.tasks, objects=_settled(lambda: objects(shape)))
    shutil.rmtree(place)


def _settled(count: Callable[[], int]) -> int:
    """Wait until the number of stored logs does not change, and return it."""
    seen = [-1, count()]

    def same() -> bool:
        threading.Event().wait(_STORED_S)
        seen.append(count())
        return seen[-1] == seen[-2]

    until("all logs are stored", 60, same)
    return seen[-1]


@contextmanager
def _ours(plan: Plan, name: str) -> Iterator[OurProduct]:
    revision = plan.before if name == PARENT else plan.after
    if revision is None:
        raise BenchFailedError("no --before")
    ask = Ask(task={"isolation": "isolated"} if name == ISOLATED else {})
    with our_stack(revision, plan.place, ask) as stack:
        stack.start()
        yield OurProduct(stack)


def _prepared_run(product: Product, shape: Shape, place: Path, within_s: float) -> None:
    marks = place / shape.workload
    product.prepare(shape, marks)
    product.run(shape, marks, within_s)


def _measured(product: Product, name: str, shape: Shape, place: Path, scale: Scale) -> Figures:
    marks = place / shape.workload
    product.prepare(shape, marks)
    threading.Event().wait(scale.settle_s)
    with watched(product.pid) as used:
        product.run(shape, marks, scale.patience_s)
    seen = read_marks(marks)
    check_once(seen, shape.tasks)
    return Figures(
        product=name,
        workload=shape.workload,
        tasks=shape.tasks,
        gap_ms=summary(gaps_ms(seen)) if shape.workload == CHAIN else {},
        tasks_per_s=round(shape.tasks / span_s(seen), 2),
        cpu_ms={kind: round(took_s * 1000 / shape.tasks, 2) for kind, took_s in used.cpu_s.items()},
        idle_mib=round(used.idle_mib, 1),
        peak_mib=round(used.peak_mib, 1),
    )
