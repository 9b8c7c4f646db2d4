"""How an election uses ZooKeeper: paths, records, requests, and the steps that consist of requests.

Nothing here does I/O, reads a clock or starts a thread. Steps are generators that yield requests and are sent
the answers. So the same code runs over kazoo and, one request at a time, in the simulator.
"""
