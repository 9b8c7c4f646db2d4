"""The program: `python -I -S <this folder> PID PIDFD HOSTS [TLS...]`, with the pipe as standard input.

The program is started by its path. The package `leader` would import kazoo, which costs 30 MB and a quarter
of a second. So in this process an empty package with the same name and folder replaces it.
"""

import os
import sys
import types


def _main() -> int:
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib costs 10 ms
    package = types.ModuleType("leader")
    package.__path__ = [folder]
    sys.modules["leader"] = package
    from leader.sentinel.program import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(_main())
