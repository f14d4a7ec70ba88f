"""What scripts, magics and the command line use.

`cluster` and `run` are the API; `lookup` finds the clusters that are running, `prompts` shows what
tasks ask, `reading` reads logs, and `export` writes a run as a script; `records` is
what is done with recorded runs, `rerun` repeats one, `sweep` runs a program many times, and
`scaling` with other numbers of workers; `profiling` profiles one. Live cells are in `live`. Behind
them: `starting` (supervisors, and where they listen), `connection` and `ending`; `arguments` reads
options.
"""
