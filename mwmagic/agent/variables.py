"""The environment variables that tie processes to the agent; it imports nothing."""

LABEL = "MWMAGIC_PROCESS"
"""The variable by which a worker's descendants are recognised: the agent's pid and a name."""

LABEL_BYTES = 256
"""The room for a label in a zygote's environment, which its workers overwrite."""

LINE = "MWMAGIC_LINE"
"""The variable with the descriptor of the worker's end of its line."""

SCRATCH = "MWMAGIC_SCRATCH"
"""The variable with a folder for temporary files, which the agent removes after the worker."""
