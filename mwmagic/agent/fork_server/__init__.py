"""Forks warm workers, which have imported what the program needs.

`zygotes` are the agent's handles; `zygote` is the process that forks, with `imports` for what it
imports and `basis` for what that has read.
"""
