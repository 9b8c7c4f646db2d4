"""The leader's engine: facts in, one decision at a time out, each a fenced transaction.

`facts` is what the leader knows, `rules` are pure functions from facts and time to the next decision,
`reign` is one epoch of leadership, `loop` the one thread that reads, decides, writes and starts effects.
There is no code of its own for a takeover: a new leader loads the same facts and applies the same rules.
"""
