"""`python -m blobsync`. What is printed on stdout is the answer alone; all else is said on stderr."""

import logging
import sys

import structlog

from blobsync.cli.main import main

if __name__ == "__main__":
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    main()
