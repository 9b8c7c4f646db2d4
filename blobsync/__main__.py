"""`python -m blobsync`. Prints the answer, and nothing else, on stdout; everything else on stderr."""

import atexit
import gc
import sys

from blobsync.cli.main import main
from blobsync.log import log_errors_alone
from blobsync.malloc import give_back_large_blocks


def _to_stderr() -> None:
    import structlog

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


if __name__ == "__main__":
    give_back_large_blocks()
    # At exit, the garbage collector need not search for cycles: all memory is freed anyway.
    atexit.register(gc.freeze)
    log_errors_alone(_to_stderr)
    main()
