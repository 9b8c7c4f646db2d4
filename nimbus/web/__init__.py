"""Pages for a browser, made on the server over the API's own answers, below `/ui` of every scheduler.

A page is one document: it is whole without scripts, and its scripts fetch the same document again when
something has changed. It holds nothing that the API does not answer; its forms send what the API takes.
"""
