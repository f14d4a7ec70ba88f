"""Machines as a supervisor sends them."""

from __future__ import annotations

from dataclasses import asdict

from mwmagic.model.machine import Gpu, Machine, MachineStatus, Warm

GPU = Gpu(0, "NVIDIA H100", 80 << 30)
STATUS = MachineStatus(
    "here", "localhost", ("worker:0",), warm=Warm("ready", 3.5), machine=Machine(4, gpus=(GPU,))
)


def test_a_status_is_read_back():
    assert MachineStatus.read(asdict(STATUS)) == STATUS


def test_what_a_newer_supervisor_adds_is_ignored():
    values = asdict(STATUS)
    for part in (values, values["warm"], values["machine"], values["machine"]["gpus"][0]):
        part["later"] = 1
    assert MachineStatus.read(values) == STATUS
