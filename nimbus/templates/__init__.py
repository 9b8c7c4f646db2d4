"""Users' templates: Jinja's syntax, evaluated at a bounded cost.

A template may come from anybody, and is checked and rendered in the process that leads, so Jinja's compiler,
which computes constants, is not used (docs/adr/0054-templates-are-evaluated-at-a-bounded-cost.md).

- `client`: for other packages; `checking`, `rendering`, `evaluation`, `sandbox` below it.
- `names`, `lists`: do not import Jinja.
- `dates`, `sandbox`: also for SQL files, which are rendered in the driver.
"""
