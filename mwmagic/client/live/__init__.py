"""Live cells, as notebooks and scripts use them.

`session` is the session of a cluster, also with values that are moved, `cell` one of its cells, and
`output` shows it as it runs, and what tasks ask.
"""
