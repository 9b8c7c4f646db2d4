"""Pipelines written in Python: the same definition as `pipeline.yaml`, typed, and testable without a cluster.

    from nimbus.authoring import pipeline, task
    from nimbus.task import TaskContext

    @task(args=["{{ params.name }}"], retries={"limit": 2})
    def greet(ctx: TaskContext, name: str) -> None:
        (ctx.output / "greeting.txt").write_text(f"Hello, {name}!")

    hello = pipeline("hello", file=__file__, tasks=[greet])

    if __name__ == "__main__":
        hello.main()

`python pipeline.py` writes `pipeline.yaml` beside it. Only that file is published: no scheduler runs this
code. Workers run it, one function for each attempt. A test calls `hello.test({"name": "you"})`.
"""

from nimbus.authoring.pipelines import Pipeline, pipeline
from nimbus.authoring.tasks import Task, task

__all__ = ["Pipeline", "Task", "pipeline", "task"]
