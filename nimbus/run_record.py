"""A run as nodes: a header, the plan, and pages of task states. Only what changed is written.

`""` is the run's own node, the header. The plan (rendered tasks, parameters) never changes: `plan-0`,
`plan-1` and so on are its pieces. `tasks-k` holds the states of `PAGE` tasks, `pins-<read>` the versions that
the run reads. The plan of a small run, and its one page, are in the header: most runs are read and written in
one call. Plan and pages are compressed. Fields at their default are left out, so a default must keep its
meaning.

The largest size of each node is checked when the run is created: see `nimbus.domain.runs.growth`.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from pydantic import TypeAdapter, ValidationError

from nimbus.domain.data.publications import Read, Version
from nimbus.domain.errors import RecordTooLargeError
from nimbus.domain.pipelines.pipeline import TaskSpec
from nimbus.domain.runs.child_runs import Lists
from nimbus.domain.runs.run import ListedRun, Run, RunHeader
from nimbus.domain.runs.task_run import TaskRun, TaskState
from nimbus.domain.runs.tasks import PAGE, Page, Tasks
from nimbus.records import UnreadableRecordError

SCHEMA = 1
_BEGINS = b'{"schema":%d,' % SCHEMA
PIECE_BYTES = 96 * 1024
"""Limit of one node of a plan."""
LARGEST_INLINE = 4 * 1024
"""Limit of a plan inside the header, in compressed bytes."""
LARGEST_PLAN = 384 * 1024
"""Limit of a plan, in compressed bytes: one transaction writes it with the rest of a new run."""
LARGEST_UNFOLDED = 64 << 20
"""Limit of a compressed record after decompression, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanNode:
    parameters: Mapping[str, Any]
    variables: Mapping[str, str] = field(default_factory=dict)
    python_path: tuple[str, ...]
    reads: tuple[Read, ...] = ()
    tasks: tuple[TaskSpec, ...]


PINS = "pins-"
"""Prefix of the node with the versions of a read."""
LISTS = "lists-"
"""Prefix of the nodes with the lists of `for_each` that came from results and files, by task."""
ITEMS_IN_NODE = 250
"""Items of 500 bytes at most, so such a node has less than 128 KiB."""
WRITTEN_ONCE = (PINS, LISTS)
"""Prefixes of nodes that never change, and may be new in an old run."""
_PINNED = "pinned"
_LISTS = "lists"
_PINS = TypeAdapter(tuple[Version, ...])
_PLAN = TypeAdapter(_PlanNode)
_LISTED = TypeAdapter(ListedRun)
_TASK = TypeAdapter(TaskRun)
_HEADER = TypeAdapter(RunHeader)
_APART: Any = {"spec": True, "children": {"lists"}}
"""Fields of tasks that other nodes have."""
_IN_NODES = ("plan_pieces", _PINNED, _LISTS)
"""Fields of a header that say what other nodes have."""
_IN_PLAN = ("parameters", "variables", "python_path", "reads")
"""Fields of a header that never change."""
_HEADER_FIELDS = tuple(field.name for field in fields(RunHeader))
_header_of = attrgetter(*_HEADER_FIELDS)
_encoded: dict[int, tuple[TaskRun, bytes]] = {}
"""Encoded tasks by id, each with the task, so that the id is no other one's. A change of a task writes its
whole page, of which the other tasks are the same objects as before."""
_MAX_ENCODED = 4096
_ahead: WeakKeyDictionary[object, tuple[tuple[Page, ...], dict[str, bytes]]] = WeakKeyDictionary()
"""Pages and body of runs that were encoded ahead, by plan."""
_plans: WeakKeyDictionary[object, bytes] = WeakKeyDictionary()
"""Encoded plans. The key is the plan object that all versions of a run share."""


Encode = Callable[[], bytes]
"""Encodes a node. Of the versions of a run that are written together, only the last one is encoded."""


def encode_new(run: Run) -> dict[str, bytes]:
    """All nodes of a run, the header first.

    Raises RecordTooLargeError: the plan does not fit into one transaction.
    """
    return {"": _header(run), **_body(run), **_encode_pins(run.pins, {}), **_encode_lists(run, None)}


def encode_ahead(run: Run) -> None:
    """Encode a new run for `encoded_ahead`. Any thread. RecordTooLargeError: see `encode_new`."""
    _ahead[run.tasks.plan] = run.tasks.pages, _body(run)


def encoded_ahead(run: Run) -> dict[str, bytes] | None:
    """As `encode_new`, once, of a run whose tasks were encoded ahead; None: they were not."""
    pages, body = _ahead.pop(run.tasks.plan, (None, {}))
    if pages is not run.tasks.pages:
        return None
    return {"": _header(run), **body, **_encode_pins(run.pins, {}), **_encode_lists(run, None)}


def _body(run: Run) -> dict[str, bytes]:
    """Plan and pages, if the header does not have them."""
    plan = _plan_of(run)
    if len(plan) > LARGEST_PLAN:
        raise RecordTooLargeError(f"the plan of run {run.id}, compressed,", len(plan), LARGEST_PLAN)
    if _is_small(run):
        return {}
    nodes = {f"plan-{number}": piece for number, piece in enumerate(_pieces(plan))}
    return nodes | {f"tasks-{number}": _encode_page(page) for number, page in enumerate(run.tasks.pages)}


def changes(run: Run, before: Run) -> dict[str, Encode]:
    """The nodes of a run that differ from those of `before`, an earlier version."""
    new = _encode_pins(run.pins, before.pins) | _encode_lists(run, before.tasks)
    nodes: dict[str, Encode] = {name: partial(bytes, data) for name, data in new.items()}
    if _is_small(run):
        return {"": partial(_header, run), **nodes}
    if _header_of(run) != _header_of(before):
        nodes[""] = partial(_header, run)
    for number in run.tasks.changed_pages(before.tasks):
        page = run.tasks.pages[number]
        if _must_be_written(run, before.tasks.pages[number], page):
            nodes[f"tasks-{number}"] = partial(_encode_page, page)
    return nodes


class RunNode(NamedTuple):
    """A run's own node."""

    body: Mapping[str, Any]
    children: tuple[str, ...]
    """Names of the nodes below it that hold the rest of the run."""


def head_of(header: bytes, place: str) -> RunNode:
    """Read a run's own node. Raises UnreadableRecordError: it is broken, or of a newer schema."""
    fields = _object(header, place)
    if fields.pop("schema", None) != SCHEMA:
        raise UnreadableRecordError(place, f"not of schema {SCHEMA}, which this version knows; upgrade it")
    plans, pages, pins = fields.get("plan_pieces", 0), fields.get("pages", 0), fields.get(_PINNED, [])
    lists = fields.get(_LISTS, {})
    counts = [plans, pages, *(lists.values() if isinstance(lists, dict) else [None])]
    if not (isinstance(pins, list) and all(isinstance(count, int) for count in counts)):
        raise UnreadableRecordError(place, "the number of its pages is no number")
    names = (
        ()
        if fields.keys().isdisjoint(_IN_NODES)
        else (
            *(f"plan-{n}" for n in range(plans)),
            *(f"tasks-{n}" for n in range(pages)),
            *(f"{PINS}{read}" for read in pins),
            *(f"{LISTS}{task}-{n}" for task, count in lists.items() for n in range(count)),
        )
    )
    return RunNode(fields, names)


def decode(nodes: Mapping[str, bytes], place: str) -> Run:
    """Read a run from all its nodes. UnreadableRecordError: see `head_of` and `completed`."""
    return completed(head_of(nodes[""], place), nodes, place)


def completed(head: RunNode, nodes: Mapping[str, bytes], place: str) -> Run:
    """Read a run from its own node and those below it.

    Raises UnreadableRecordError: a node is missing or broken.
    """
    header, names = dict(head.body), head.children
    try:
        if "plan" in header:
            packed, pages = base64.b64decode(header.pop("plan")), [base64.b64decode(header.pop("page"))]
        else:
            packed = b"".join(nodes[name] for name in names if name.startswith("plan-"))
            pages = [nodes[name] for name in names if name.startswith("tasks-")]
        plan, fresh = _decode_plan(packed)
        progress = [row for page in pages for row in json.loads(_unfolded(page))]
        lists = _decoded_lists(nodes, header.pop(_LISTS, {}))
        pins = {
            read: _PINS.validate_python(json.loads(_unfolded(nodes[f"{PINS}{read}"])))  # values may be deep
            for read in header.pop(_PINNED, ())
        }
        run = _HEADER.validate_python(header | {name: getattr(plan, name) for name in _IN_PLAN})
        run = replace(run, pins=pins) if pins else run
        return Run.of(run, fresh.replaced(_begun(run, fresh, progress, lists)))
    except KeyError as exc:
        raise UnreadableRecordError(place, f"its part {exc} is missing") from exc
    except ValidationError as exc:
        raise UnreadableRecordError.of(place, exc) from exc
    except (ValueError, TypeError, RecursionError, zlib.error) as exc:
        raise UnreadableRecordError(place, str(exc)) from exc


def listed(data: bytes, place: str) -> ListedRun:
    """The fields that lists need, from a run's own node.

    Raises UnreadableRecordError: the node is broken, or of a newer schema.
    """
    if not data.startswith(_BEGINS):
        raise UnreadableRecordError(place, f"not of schema {SCHEMA}, which this version knows; upgrade it")
    try:
        record = _LISTED.validate_json(data)
    except ValidationError as exc:
        raise UnreadableRecordError.of(place, exc) from exc
    # Times that share one object for UTC are sorted 30 times as fast. A copy of the whole takes 3 us more.
    object.__setattr__(record, "created_at", record.created_at.astimezone(UTC))
    return record


def _object(data: bytes, place: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError as exc:
        raise UnreadableRecordError(place, f"no JSON object with a schema number ({exc})") from exc
    if not isinstance(document, dict):
        raise UnreadableRecordError(place, "no JSON object with a schema number")
    return document


def _header(run: Run) -> bytes:
    body: dict[str, Any] = _HEADER.dump_python(
        run, mode="json", exclude={*_IN_PLAN, "pins"}, exclude_defaults=True
    )
    plan = _plan_of(run)
    if run.pins:
        body[_PINNED] = [*run.pins]
    if lists := {task.spec.name: _nodes_of(lists) for task, lists in _with_lists(run.tasks, None)}:
        body[_LISTS] = lists
    if _is_small(run):
        page = _encode_page(run.tasks.pages[0] if run.tasks.pages else ())
        body |= {"plan": base64.b64encode(plan).decode(), "page": base64.b64encode(page).decode()}
    else:
        body |= {"plan_pieces": len(list(_pieces(plan))), "pages": len(run.tasks.pages)}
    # Lists read the state from the header alone, so it is there even if it is the default.
    return json.dumps({"schema": SCHEMA, "state": run.state, **body}, separators=(",", ":")).encode()


def _is_small(run: Run) -> bool:
    return len(run.tasks) <= PAGE and len(_plan_of(run)) <= LARGEST_INLINE


def _plan_of(run: Run) -> bytes:
    packed = _plans.get(run.tasks.plan)
    if packed is None:
        plan = _PlanNode(
            parameters=run.parameters,
            variables=run.variables,
            python_path=run.python_path,
            reads=run.reads,
            tasks=tuple(task.spec for task in run.tasks.values()),
        )
        packed = _plans[run.tasks.plan] = zlib.compress(_PLAN.dump_json(plan, exclude_defaults=True))
    return packed


def _encode_pins(pins: Mapping[str, tuple[Version, ...]], before: Collection[str]) -> dict[str, bytes]:
    """The nodes of pins that `before` does not have. Pins never change."""
    return {
        f"{PINS}{read}": zlib.compress(_PINS.dump_json(versions, exclude_defaults=True))
        for read, versions in pins.items()
        if read not in before
    }


def _with_lists(tasks: Tasks, before: Tasks | None) -> Iterator[tuple[TaskRun, Lists]]:
    """Tasks with lists from results or files, which they did not have before."""
    for was, task in tasks.changes_since(before) if tasks.parents else ():
        is_old = was is not None and was.children is not None and was.children.lists
        if task.children is not None and task.children.lists and not is_old:
            yield task, task.children.lists


def _nodes_of(lists: Lists) -> int:
    return max(1, -(-max(map(len, lists.values())) // ITEMS_IN_NODE))


def _encode_lists(run: Run, before: Tasks | None) -> dict[str, bytes]:
    """The nodes of lists that `before` does not have. Lists never change."""
    nodes = {}
    for task, lists in _with_lists(run.tasks, before):
        for number in range(_nodes_of(lists)):
            part = slice(number * ITEMS_IN_NODE, (number + 1) * ITEMS_IN_NODE)
            part_of_lists = {name: values[part] for name, values in lists.items()}
            nodes[f"{LISTS}{task.spec.name}-{number}"] = zlib.compress(json.dumps(part_of_lists).encode())
    return nodes


def _decoded_lists(nodes: Mapping[str, bytes], counts: Mapping[str, int]) -> dict[str, Lists]:
    """The lists of a run by task, from the number of their nodes."""
    lists: dict[str, dict[str, list[Any]]] = {}
    for task, count in counts.items():
        for number in range(count):
            for name, values in json.loads(_unfolded(nodes[f"{LISTS}{task}-{number}"])).items():
                lists.setdefault(task, {}).setdefault(name, []).extend(values)
    return {task: {name: tuple(values) for name, values in lists.items()} for task, lists in lists.items()}


def _pieces(plan: bytes) -> Iterator[bytes]:
    yield from (plan[start : start + PIECE_BYTES] for start in range(0, len(plan), PIECE_BYTES))


@lru_cache(maxsize=1024)
def _decode_plan(packed: bytes) -> tuple[_PlanNode, Tasks]:
    """Read a plan. Runs with equal plans share one parsed plan, its tasks and their initial states."""
    plan = _PLAN.validate_json(_unfolded(packed))
    return plan, Tasks(TaskRun(spec=spec) for spec in plan.tasks)


def _must_be_written(run: Run, old: Page, new: Page) -> bool:
    """True when a page has a change that `_begun` cannot derive from the header."""
    return any(
        was is not task
        and not (
            was.state is TaskState.WAITING and task.state is TaskState.NOT_RUN and _never(run, task.spec)
        )
        for was, task in zip(old, new, strict=True)
    )


def _never(head: RunHeader, spec: TaskSpec) -> bool:
    """True when the header implies that a task which has not begun never begins."""
    if head.is_cleaning_up:
        return not spec.is_clean_up
    return head.state.is_ending


def _begun(
    head: RunHeader, fresh: Tasks, progress: list[Mapping[str, Any]], lists: Mapping[str, Lists]
) -> Iterator[TaskRun]:
    """The tasks that are not in their initial states any more."""
    ends = head.is_cleaning_up or head.state.is_ending
    for new, values in zip(fresh.in_order(), progress, strict=True):
        task = _TASK.validate_python({**values, "spec": new.spec}) if values else new
        if task.children is not None and new.spec.name in lists:
            task = replace(task, children=replace(task.children, lists=lists[new.spec.name]))
        if ends and task.state is TaskState.WAITING and _never(head, task.spec):
            task = replace(task, state=TaskState.NOT_RUN)
        if task is not new:
            yield task


def _encode_page(page: Page) -> bytes:
    return zlib.compress(b"[" + b",".join(map(_encode_task, page)) + b"]", 1)


def _encode_task(task: TaskRun) -> bytes:
    known, data = _encoded.get(id(task), (None, b""))
    if known is not task:
        if len(_encoded) >= _MAX_ENCODED:
            _encoded.clear()
        data = _TASK.dump_json(task, exclude=_APART, exclude_defaults=True)
        _encoded[id(task)] = task, data
    return data


def _unfolded(data: bytes) -> bytes:
    unfolding = zlib.decompressobj()
    unfolded = unfolding.decompress(data, LARGEST_UNFOLDED)
    if not unfolding.eof:
        raise ValueError(f"a part is cut off, or unfolds to more than {LARGEST_UNFOLDED} bytes")
    return unfolded
