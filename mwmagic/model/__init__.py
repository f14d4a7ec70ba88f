"""The data that all processes share: tasks, clusters, options, status, messages.

It does no input or output, reads no clock and knows no framework.
"""
