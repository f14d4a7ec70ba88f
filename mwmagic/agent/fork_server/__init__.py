"""Forks warm workers, which have imported what the program needs.

`zygotes` are the agent's handles; `zygote` is the process that forks, and `imports` what it imports
and what that has read.
"""
