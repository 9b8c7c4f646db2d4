"""A cluster with the workloads of a shop, and pictures of its pages: `make pictures`.

`python -m tests.nimbus.pictures` starts three schedulers with their workers in a temporary folder, fills them
in about a minute, and takes pictures of fifteen pages (`shots.pages`) in light, in dark and at 390 pixels, in
`build/pictures` or the folder that is named. `--docs` also replaces the pictures of README and documents.

To look at pages while you change them: `python -m tests.nimbus.pictures --keep` takes no pictures and prints
the address of each page until Ctrl-C. It uses code and templates of the folder in which it is started.
With `--server` and one of these addresses, another call takes the pictures of that cluster.

What the cluster shows: `cluster.py`. Where its past comes from: `past.py`.
"""
