"""Measure the greeting that the task before left."""

import json
import sys

from nimbus.task import context


def main() -> None:
    ctx = context()
    greeting = (ctx.inputs["greet"] / "greeting.txt").read_text(encoding="utf-8")
    result = json.dumps({"greeting": greeting, "characters": len(greeting), "run_id": ctx.run_id})
    (ctx.output / "result.json").write_text(result + "\n", encoding="utf-8")
    sys.stdout.write(result + "\n")


if __name__ == "__main__":
    main()
