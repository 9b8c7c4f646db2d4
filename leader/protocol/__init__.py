"""What an election says to ZooKeeper: paths, records, requests, and the steps that are made of them.

Nothing here does I/O, reads a clock or starts a thread. Steps are generators that yield requests and are sent
the answers, so the same code runs over kazoo and, request by request, in the simulator.
"""
