"""What the repairs, the recovery and a worker share: they act once a module is imported.

`imports` runs a function right after an import, and `strategy` says which strategy is in use, and
which of its workers this is.
"""
