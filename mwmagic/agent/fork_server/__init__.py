"""Forks warm workers: `zygotes` are the handles of the agent, `zygote` is the process."""
