"""Templates that users write: rendered and checked in a process of their own, which can be ended.

Jinja's sandbox keeps a template from Python, but not from using up memory and minutes; and Jinja computes
constants when it compiles. So neither a scheduler nor the command line compiles or renders a user's template:
they ask `nimbus.templates.helper`, which runs this package as a program with limits
(docs/adr/0019-templates-are-rendered-in-a-helper-process.md).

- `client`, `helper`, `answers`, `names`, `wire`: for other packages. They do not import Jinja.
- `dates`: also for SQL files, which are rendered in the driver.
- `__main__`, `program`, `checking`, `rendering`, `sandbox`: the program. No other package imports them.

This module imports nothing, because the program passes through it and must start quickly.
"""
