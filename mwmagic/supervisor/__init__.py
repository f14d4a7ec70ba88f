"""The supervisor: the process that owns a cluster and its runs.

`server` serves clients, and `supervisor` their requests. A run: `run` carries out the gang's
actions, `report` has its status and record, `processes` its processes, `stalls` finds out where
its tasks are, and `slowness` why they are slow. A task: `process`, `training`, and `program` (what
runs on it, and the variables that this sets before it imports). `session` has live cells. Machines:
`pool`, `node` (one, with its warm process), `preparation` (shares, environments and commands; do
they meet, and have the same versions?), `files` (disks, and copies of files) and `fetches` (files
for the user).
"""
