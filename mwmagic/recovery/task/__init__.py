"""The part of the recovery that runs inside a task; see `mwmagic.recovery`.

`updates` makes each update of the weights whole and counts it, `strategies` knows the strategies'
variables and keeps several apart, `state` reads the state, compares it and gives it back,
`collectives` frees the task from a collective and lets it join again, and `private` has every name
of TensorFlow's that is not public.
"""
