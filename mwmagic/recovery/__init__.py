"""How a training that broke off becomes whole again, with the same state on every task.

`plan` is what a training's state is, whose state all continue from, and in which order the tasks
join again, compare and align: without input or output, it knows nothing of cells or TensorFlow. In
a task, `task/` has the rest: `updates` makes each update of the weights whole and counts it,
`strategies` knows the strategies' variables and keeps several apart, `state` reads the state,
compares it and gives it back, `collectives` frees a task from a collective and lets it join again,
and `private` holds every name of TensorFlow's that is not public.
"""
