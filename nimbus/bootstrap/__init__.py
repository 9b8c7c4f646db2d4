"""Builds the processes of Nimbus from their settings. The only room that knows every adapter.

`run_scheduler` and `run_worker` are what the command line calls.
"""

from nimbus.bootstrap.processes import run_scheduler, run_worker

__all__ = ["run_scheduler", "run_worker"]
