"""Meet the peers, then end: the chief at once, the others later, while it is still there.

python bootstrap.py parting_worker.py SECONDS
"""

import json
import os
import socket
import sys
import time

import reduction  # noqa: F401 - for its effect

config = json.loads(os.environ["TF_CONFIG"])
if config["task"]["type"] == "worker":
    time.sleep(float(sys.argv[1]))
    host, port = config["cluster"]["chief"][0].split(":")
    socket.create_connection((host, port)).close()  # refused if nothing listens
