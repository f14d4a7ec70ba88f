"""Worker logs: their visible text, and in it noise, errors and progress.

`terminal` and `noise` serve `lines`, which follows a growing log as marked lines; `progress` reads
training, and custom ones with `loops`; `phases` reads the start-up, and `tracebacks` what ended a
worker; `guard` is the boundary for parsers that raise.
"""
