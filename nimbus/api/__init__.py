"""The HTTP API that every scheduler serves: reads answered by any of them, writes as durable commands.

Knows ports only. Ports block, so they are called on the server's worker threads, never on its event loop.
"""
