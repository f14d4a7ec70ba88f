"""Live cells in a worker.

`session` is what the tasks of a session run, and `cells` runs its cells; `names` shows what names
and values are, and `parcel` exchanges values with a notebook.
"""
