"""The documents of a release: manifest, layout, and the format of packs. Pure."""
