"""A sum over all workers; importing it meets the peers that TF_CONFIG names."""

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()


@tf.function
def total():
    def one():
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones(()))

    return strategy.run(one)


assert float(total()) == strategy.num_replicas_in_sync
