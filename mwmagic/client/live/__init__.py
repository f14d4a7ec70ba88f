"""Live cells, as notebooks and scripts use them.

`session` is the session of a cluster, `cell` one of its cells, and `output` shows it as it runs,
and what tasks ask; `transfer` moves values, and `transcript` makes a program of a session.
"""
