"""The part of the recovery that runs inside a task; see `mwmagic.recovery`."""
