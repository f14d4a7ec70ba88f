"""The supervisor: the process that owns a cluster and its runs.

`server` serves clients, and `supervisor` their requests. A run: `run` carries out the gang's
actions, `report` has its status and record, `processes` its processes, and `stalls` finds out where
its tasks are. A task: `process`, `training` (also why it is slow), and `program` (what runs on it,
and the variables that this sets before it imports). `session` has live cells. Machines: `pool`,
`node` (one, with its warm process), `preparation` (shares, environments and commands; do they meet,
and have the same versions?) and `files` (disks, and copies of files, also for the user).
"""
