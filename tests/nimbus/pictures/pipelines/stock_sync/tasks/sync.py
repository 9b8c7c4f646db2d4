"""Copies levels."""

import time

print("INFO  340 levels", flush=True)
time.sleep(0.3)
