"""Runs TensorFlow's own server for the task that TF_CONFIG names, until it is ended."""

import tensorflow as tf


def main() -> None:
    """Serve, as a worker or parameter server of a ``ParameterServerStrategy``."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
    ).join()


if __name__ == "__main__":
    main()
