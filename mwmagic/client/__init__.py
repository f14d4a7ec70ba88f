"""What scripts, magics and the command line use.

`cluster` and `run`, with launches, are the API; `lookup` finds the clusters that are running,
`reading` reads logs, `export` writes a run or a live session as a script, and `records` is what is
done with recorded runs, repeating one included. A sweep is planned in `planning` and runs in
`sweep`, with values that an Optuna `study` may suggest; `scaling` runs a program with several
numbers of workers, and `profiling` profiles one. Live cells are in `live`.
Behind them: `starting` (supervisors, and where they listen), `connection` and `ending`; `arguments`
reads options.
"""
