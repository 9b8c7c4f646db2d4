"""Users' templates, which are rendered and checked in a separate process that can be killed.

Jinja's sandbox prevents access to Python, but does not limit memory and time. Jinja also computes constants
when it compiles. So neither a scheduler nor the command line compiles or renders a user's template. They call
`nimbus.templates.helper`, which runs this package as a program with limits
(docs/adr/0019-templates-are-rendered-in-a-helper-process.md).

- `client`, `helper`, `answers`, `names`, `wire`: for other packages. They do not import Jinja.
- `dates`: also for SQL files, which are rendered in the driver.
- `__main__`, `program`, `checking`, `rendering`, `sandbox`: the program. No other package imports them.

This module imports nothing, because the program imports it and must start quickly.
"""
