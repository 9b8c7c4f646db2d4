"""Checks that each version has the file that its attempt wrote; the result names the runs of all versions."""

from nimbus.task import context

WROTE = {"worked": "finish", "middle": "middle"}

ctx = context()
for name, task in WROTE.items():
    for version in ctx.reads[name]:
        text = (version.path / "worked.txt").read_text(encoding="utf-8")
        if not text.startswith(f"{version.run}.{task}."):
            raise SystemExit(f"{name}: {version.partition} of run {version.run} has {text!r}")
ctx.result(**{name: sorted(version.run for version in ctx.reads[name]) for name in WROTE})
