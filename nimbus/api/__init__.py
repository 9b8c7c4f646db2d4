"""The HTTP API of every scheduler. Each scheduler answers reads; writes become durable commands.

It uses ports only. Ports block, so they are called on the server's worker threads, never on its event loop.
"""
