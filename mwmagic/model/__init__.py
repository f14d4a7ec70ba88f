"""What is asked for and what is known, as values that all processes share.

A cluster's declaration is in `option` and `options`, its tasks in `cluster` and its machines in
`machine`; `status` is the status of a run, with what was found out about its tasks, and about what
makes it slow, in `findings`; `live` has live cells, and `ownership` says whose code a file is.
`messages` is what processes send each other, and `values` and `variables` how that is written.

It does no input or output, reads no clock and knows no framework.
"""
