"""Pages for a browser, rendered on the server from the API's answers, below `/ui` of every scheduler.

A page is one document. It is complete without scripts; its scripts fetch the same document again after a
change. It shows only data that the API also returns, and its forms send requests of the API.
"""
