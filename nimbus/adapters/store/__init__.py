"""The live state as a tree of nodes: paths, records, and the adapters of the ports, over any `Calls`."""
