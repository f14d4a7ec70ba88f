"""Live cells in a worker.

`cells` is what the tasks of a session run; `names` shows what names and values are, and `parcel`
exchanges values with a notebook.
"""
