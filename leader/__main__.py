"""`python -m leader`. Only the answer goes to stdout; errors and warnings go to stderr."""

import logging
import sys

import structlog

from leader.cli.main import main

if __name__ == "__main__":
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    main()
