"""What a kernel does with messages while ``%mw_wait`` waits."""

from __future__ import annotations

import os
import signal
from uuid import uuid4

import pytest
from kernels import execute

pytestmark = pytest.mark.slow

DECLARE = "%mw_cluster 2 --no-warm --grace 0.2 --quiet"
SLEEP = """%%mw_worker
import os, time
print("up", flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
"""
WAITS = pytest.mark.parametrize("wait", ["%mw_wait", "%mw_wait --quiet"])


def said(kernel, kind, content, **metadata):
    message = kernel.client.session.msg(kind, content, metadata=metadata)
    kernel.client.shell_channel.send(message)
    return message["header"]["msg_id"]


def answered(kernel, request, kind):
    """Wait for the answer to a request, and for the kernel to say that it is handled."""
    while True:
        reply = kernel.client.get_shell_msg(timeout=120)
        if reply["parent_header"]["msg_id"] == request:
            assert reply["msg_type"] == kind
            return reply["content"]


def waiting(kernel, wait, *, start=execute):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    kernel.run("order = []")
    begun = []
    kernel._execute_input = lambda message: begun.append(message["parent_header"]["msg_id"])
    kernel.request = start(kernel.client, wait)
    kernel.until(lambda: kernel.request in begun, "the cell that waits")
    first = kernel.page("first")
    kernel.until(lambda: len(first.lines) == 2, "both workers")


@WAITS
def test_a_page_that_is_loaded_meanwhile_is_answered(kernel, tmp_path, wait):
    waiting(kernel, wait)
    cell = kernel.request
    assert answered(kernel, said(kernel, "kernel_info_request", {}), "kernel_info_reply")
    comms = answered(kernel, said(kernel, "comm_info_request", {}), "comm_info_reply")["comms"]
    assert kernel.comm in comms
    control = uuid4().hex
    opened = {"comm_id": control, "target_name": "jupyter.widget.control", "data": {}}
    said(kernel, "comm_open", opened, version="1.0.0")
    states = []
    kernel._comm_msg = lambda message: (
        states.append(message) if message["content"]["comm_id"] == control else None
    )
    said(kernel, "comm_msg", {"comm_id": control, "data": {"method": "request_states"}})
    kernel.until(lambda: states, "the state of all widgets")
    assert kernel.comm in states[0]["content"]["data"]["states"]
    del kernel._comm_msg
    second = kernel.page("second")
    kernel.until(lambda: len(second.lines) == 2, "what it lacks")
    kernel.message({"kind": "stacks"})
    kernel.until(lambda: second.stacks, "the stacks")
    assert kernel.replied != cell, "the cell still waits"
    (tmp_path / "go").touch()
    kernel.until(lambda: kernel.replied == cell, "the end of the cell")
    assert not kernel.error


@WAITS
def test_cells_wait_in_order_and_none_is_lost(kernel, tmp_path, wait):
    waiting(kernel, wait)
    sent = []
    for number in range(20):
        sent.append(execute(kernel.client, f"order.append({number})"))
        said(kernel, "comm_info_request", {})
        said(kernel, "complete_request", {"code": "ord", "cursor_pos": 3})
    assert answered(kernel, said(kernel, "kernel_info_request", {}), "kernel_info_reply")
    sent.append(execute(kernel.client, "assert order == [*range(20)], order"))
    (tmp_path / "go").touch()
    replies = []
    while len(replies) < len(sent) + 1:
        reply = kernel.client.get_shell_msg(timeout=120)
        if reply["msg_type"] == "execute_reply":
            assert reply["content"]["status"] == "ok", reply
            replies.append(reply["parent_header"]["msg_id"])
    assert replies == [kernel.request, *sent]


def test_an_error_of_the_wait_skips_the_cells_that_were_sent_with_it(kernel):
    waiting(kernel, "%mw_wait", start=lambda client, code: client.execute(code))
    request = kernel.client.execute("order.append(1)")
    assert answered(kernel, said(kernel, "kernel_info_request", {}), "kernel_info_reply")
    kernel.message({"kind": "stop"})
    assert answered(kernel, request, "execute_reply")["status"] == "aborted"
    kernel.until(lambda: kernel.error.startswith("RunStopped"), "the error")
    kernel.error = ""


@WAITS
def test_ctrl_c_ends_the_wait_in_the_middle_of_messages(kernel, tmp_path, wait):
    waiting(kernel, wait)
    pid = kernel.manager.provisioner.pid
    asked = []
    for number in range(200):
        asked.append(said(kernel, "kernel_info_request", {}))
        if number == 100:
            os.kill(pid, signal.SIGINT)
    kernel.until(lambda: "stopped waiting" in kernel.error, "the interrupt")
    kernel.error = ""
    left = set(asked)
    while left:
        left.discard(kernel.client.get_shell_msg(timeout=120)["parent_header"]["msg_id"])
    kernel.run("order.append(1)")
    (tmp_path / "go").touch()
