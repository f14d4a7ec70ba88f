"""Reduce once with the peers, then end: the leader at once, the others later.

python bootstrap.py parting_worker.py SECONDS
"""

import json
import os
import sys
import time

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()


@tf.function
def total():
    def one():
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones(()))

    return strategy.run(one)


assert float(total()) == strategy.num_replicas_in_sync
if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "worker":
    time.sleep(float(sys.argv[1]))
print("done", flush=True)
