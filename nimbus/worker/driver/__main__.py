"""Runs `nimbus.worker.driver.main` as a program."""

from __future__ import annotations

import sys

from nimbus.worker.driver.main import main

main(sys.argv[1:])
