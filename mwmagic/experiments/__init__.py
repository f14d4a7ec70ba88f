"""What runs are given and differ in, without a supervisor: nothing here runs a program.

`parameters` reads and sets what a program calls its parameters, in each of the `forms` that they
have (`program` is its tree). `series` reads a run's metrics as points of charts, `compare` puts
runs side by side, `runs` has the facts of recorded runs, with a copy of them beside the runs, from
which Python programs get theirs, and `filters` choose among them. A `sweep` has a plan and
`trials`, whose values are those of a `space`; `scaling` is one of numbers of workers, and measures
how fast each trains. `trackers` writes runs for TensorBoard, also while they go, and for MLflow.
"""
