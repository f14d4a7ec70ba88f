"""The supervisor: the process that owns a cluster and its gang."""
