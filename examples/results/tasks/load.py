"""Do what the plan says."""

import sys

sys.stdout.write(f"load {sys.argv[1:]}\n")
