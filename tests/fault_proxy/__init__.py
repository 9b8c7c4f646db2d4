"""A TCP proxy that injects faults, and reads ZooKeeper's frames to choose the moment. See `proxy`."""
