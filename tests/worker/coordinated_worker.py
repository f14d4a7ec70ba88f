"""Meet the peers, then reduce with them for ever.

python coordinated_worker.py DIRECTORY HEARTBEAT_SECONDS
"""

import inspect
import json
import os
import sys
from pathlib import Path

from mwmagic.worker import runtime

directory, seconds = Path(sys.argv[1]), float(sys.argv[2])
runtime.shorten_heartbeat(seconds)
assert "tensorflow" not in sys.modules

from tensorflow.python.eager import context  # noqa: E402 - the point is to import it afterwards

assert context.context().coordination_service is None

from reduction import total  # noqa: E402 - the same

own = context.Context.configure_coordination_service
print("takes", *inspect.signature(own).parameters, flush=True)
service = context.context().coordination_service
print("timeout", service.heartbeat_timeout_in_ms, service.service_leader, flush=True)
task = json.loads(os.environ["TF_CONFIG"])["task"]
(directory / f"ready-{task['type']}-{task['index']}").touch()
while True:
    total()
