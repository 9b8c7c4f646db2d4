"""Tasks of a pipeline written in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Union, cast, overload

from nimbus.authoring.options import Kind, ProgramOptions, TaskOptions, TriggerRule
from nimbus.task import TaskContext

if TYPE_CHECKING:
    from typing import Concatenate, ParamSpec, Unpack

    Args = ParamSpec("Args")
else:
    Args = TypeVar("Args")
Returned = TypeVar("Returned")
Needs = Union[Sequence["Task[..., Any] | str"], Mapping["Task[..., Any] | str", TriggerRule]]
"""Tasks, or their names. A mapping has the trigger rule of each; with a list, all must have succeeded."""


class Task(Generic[Args, Returned]):
    """One task. A call of it calls its function."""

    def __init__(
        self,
        name: str,
        kind: Kind,
        function: Callable[Concatenate[TaskContext, Args], Returned] | None,
        needs: Needs,
        options: Mapping[str, Any],
    ) -> None:
        self.name, self.kind, self.function, self.options = name, kind, function, dict(options)
        if isinstance(needs, str):
            raise TypeError(f"task {name}: needs is a list, so write needs=[{needs!r}]")
        self.needs: Needs = dict(needs) if isinstance(needs, Mapping) else tuple(needs)
        self.__doc__ = function.__doc__ if function is not None else None

    def __call__(self, ctx: TaskContext, *args: Args.args, **named: Args.kwargs) -> Returned:
        """Call the function.

        Raises:
            TypeError: the task is a program.
        """
        if self.function is None:
            raise TypeError(f"task {self.name} is of type {self.kind}: it has no function")
        return self.function(ctx, *args, **named)

    def run(self, ctx: TaskContext, args: Sequence[str]) -> None:
        """Call the function as in an attempt: a returned mapping is the task's result."""
        returned: object = self(ctx, *args)  # type: ignore[call-arg, arg-type]  # the function says how many
        if isinstance(returned, Mapping):
            ctx.result(**returned)

    def __repr__(self) -> str:
        return f"<task {self.name}>"


@overload
def task(function: Callable[Concatenate[TaskContext, Args], Returned], /) -> Task[Args, Returned]: ...


@overload
def task(
    name: str, /, *, type: Kind, needs: Needs = (), **options: Unpack[ProgramOptions]
) -> Task[[], None]: ...


@overload
def task(
    *,
    name: str | None = None,
    type: Literal["python", "pyspark"] = "python",
    needs: Needs = (),
    **options: Unpack[TaskOptions],
) -> Callable[[Callable[Concatenate[TaskContext, Args], Returned]], Task[Args, Returned]]: ...


def task(
    first: Any = None,
    /,
    *,
    name: str | None = None,
    type: Kind = "python",  # noqa: A002 - the key of `pipeline.yaml`
    needs: Needs = (),
    **options: Any,
) -> Any:
    """Make a task from a function, or from a program.

    `@task` and `@task(needs=[other], ...)` make a task from a function, which gets its context and then
    `args`, as text. `task("report", type="sql", script="report.sql", needs=[other])` runs a file.

    Args:
        first: The function, or the name of a program's task.
        name: Name of a function's task; None: the function's own name.
        type: Type of the task. For a function, `python` or `pyspark`.
        needs: Tasks that must have ended before this one, or their names.
        options: Keys of a task in `pipeline.yaml`.
    """
    if isinstance(first, str):
        return Task(first, type, None, needs, options)

    def made(function: Callable[..., Any]) -> Task[..., Any]:
        return Task(name or function.__name__, type, function, needs, options)

    return made if first is None else made(cast("Callable[..., Any]", first))
