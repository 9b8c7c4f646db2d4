"""The pipeline of examples/hello, written in Python. `python pipeline.py` writes pipeline.yaml."""

import json

from nimbus.authoring import pipeline, task
from nimbus.task import TaskContext


@task(args=["{{ params.name }}"])
def greet(ctx: TaskContext, name: str) -> None:
    """Greet the one named."""
    (ctx.output / "greeting.txt").write_text(f"Hello, {name}!", encoding="utf-8")


@task(needs=[greet])
def measure(ctx: TaskContext) -> None:
    """Measure the greeting that the task before left."""
    greeting = (ctx.inputs["greet"] / "greeting.txt").read_text(encoding="utf-8")
    result = json.dumps({"greeting": greeting, "characters": len(greeting), "run_id": ctx.run_id})
    (ctx.output / "result.json").write_text(result + "\n", encoding="utf-8")


hello = pipeline(
    "hello_python",
    file=__file__,
    tasks=[greet, measure],
    description="The smallest pipeline that still passes something on, written in Python.",
    timeout="2m",
    parameters={"name": {"type": "string", "default": "world", "description": "Whom to greet."}},
    files=["pipeline.py"],
    defaults={"timeout": "30s", "retries": {"limit": 1, "delay": "1s"}},
)

if __name__ == "__main__":
    hello.main()
