"""Experiments are readers of the record: what a run was given, and what runs differ in.

`forms` finds what a program calls its parameters, and `parameters` reads and sets them. Nothing
here talks to a supervisor, and nothing here runs a program.
"""
