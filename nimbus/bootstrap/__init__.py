"""Builds the processes of Nimbus from their settings. The only package that imports every adapter.

The command line calls `run_scheduler` and `run_worker`.
"""

import nimbus.telemetry.logging  # noqa: F401 - first, because it imports structlog without rich
from nimbus.bootstrap.processes import run_scheduler, run_worker

__all__ = ["run_scheduler", "run_worker"]
