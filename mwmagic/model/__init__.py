"""What is asked for and what is said of it: tasks, clusters, options, status, messages.

No input or output, no clock, no framework.
"""
