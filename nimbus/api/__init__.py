"""The HTTP API that every scheduler serves: reads answered by any of them, writes as durable commands.

Knows ports only. Handlers are synchronous, since ports block; they run on the server's worker threads.
"""
