"""Meet the peers, then reduce with them for ever.

python coordinated_worker.py DIRECTORY HEARTBEAT_SECONDS
"""

import json
import os
import sys
from pathlib import Path

from mwmagic.worker import coordination

directory, seconds = Path(sys.argv[1]), float(sys.argv[2])
coordination.install(seconds)
assert "tensorflow" not in sys.modules

import tensorflow as tf  # noqa: E402 - the point is to import it afterwards
from tensorflow.python.eager import context  # noqa: E402 - the same

task = json.loads(os.environ["TF_CONFIG"])["task"]
assert context.context().coordination_service is None
strategy = tf.distribute.MultiWorkerMirroredStrategy()
service = context.context().coordination_service
print("timeout", service.heartbeat_timeout_in_ms, service.service_leader, flush=True)


@tf.function
def total():
    def one():
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones(()))

    return strategy.run(one)


assert float(total()) == strategy.num_replicas_in_sync
(directory / f"ready-{task['type']}-{task['index']}").touch()
while True:
    total()
