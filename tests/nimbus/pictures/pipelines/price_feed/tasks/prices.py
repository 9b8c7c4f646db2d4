"""Fetches the prices."""

print("INFO  no prices", flush=True)
