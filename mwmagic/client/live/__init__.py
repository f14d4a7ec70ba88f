"""Live cells, as notebooks and scripts use them.

`session` is the session of a cluster, also with values that are moved, and `cell` one of its cells,
which is shown as it runs, with what tasks ask.
"""
