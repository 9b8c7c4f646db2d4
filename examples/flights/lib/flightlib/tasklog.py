"""The task's log: plain lines on standard output, where Nimbus keeps them."""

import logging
import sys


def start_log() -> logging.Logger:
    """Set the log up once, in the task's script."""
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    return logging.getLogger("flights")
