"""Hosts that cannot work together are named before anything starts there."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from network import NUMBER
from processes import eventually
from pythons import program

from mwmagic import Cluster
from mwmagic.errors import ClusterError
from mwmagic.model.findings import Symptom

pytestmark = [pytest.mark.usefixtures("nothing_survives"), pytest.mark.slow]


def cluster(lab, hosts=None, **options):
    words = ["-F", str(lab.config)]
    hosts = hosts or lab.names[:2]
    return Cluster(2, engine="ssh", hosts=hosts, scheduler=words, warm=False, **options)


def refusal(lab, hosts=None, **options):
    with pytest.raises(ClusterError) as caught:
        cluster(lab, hosts, **options)
    eventually(lambda: not lab.left(), lambda: f"end of {lab.left()}")
    return str(caught.value).splitlines()


@pytest.fixture
def networks(lab, tmp_path, monkeypatch):
    """Give the first two hosts a second network, and break the first between them."""
    monkeypatch.chdir(tmp_path)
    one, two = lab.hosts[:2]
    found = {host.name: f"10.178.{NUMBER}.{host.number}" for host in (one, two)}
    for host in (one, two):
        host.attach("ib0", found[host.name])
    one.shun(two)
    yield found
    one.greet(two)
    for host in (one, two):
        host.detach("ib0")


SCRIPT = """
import json, os, socket
config = json.loads(os.environ["TF_CONFIG"])
own = config["cluster"]["worker"][config["task"]["index"]]
with socket.socket(socket.AF_INET6) as one:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.bind(("::", int(own.rpartition(":")[2])))
    one.listen()
    print(own.rpartition(":")[0], flush=True)
"""


def test_a_network_that_drops_packets_is_named_and_another_is_chosen(lab, networks):
    one, two = lab.hosts[:2]
    first, second, step = refusal(lab)
    assert first.startswith(f"{one.name} cannot connect to {two.name} at {two.address}:")
    assert second.startswith(f"{two.name} cannot connect to {one.name} at {one.address}:")
    assert "nothing answers in time: a firewall that drops packets" in first
    has = f"{two.name} has eth0 ({two.address}), ib0 ({networks[two.name]})"
    assert step.endswith(f"or choose the network with --interface; {has}")
    assert refusal(lab, interface="ib1")[0].startswith(
        f"{one.name} has no network interface 'ib1' with an address; it has eth0 ({one.address}), "
    )
    with cluster(lab, interface="ib0") as found:
        run = found.run("main.py", source=SCRIPT)
        run.wait(120)
        said = [run.logs(task).decode().strip() for task in (0, 1)]
    assert said == [networks[name] for name in lab.names[:2]]


def test_a_name_that_a_host_has_for_itself_is_reported(lab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, two = lab.names[:2]
    hosts = lab.folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 {two}.lab\n")
    bind = f'mount --bind {hosts} /etc/hosts && exec {shlex.quote(sys.executable)} "$@"'
    there = program(
        lab.folder,
        f'[ $(uname -n) = {one} ] && exec unshare --mount sh -c {shlex.quote(bind)} - "$@"',
    )
    said, step = refusal(lab, [one, f"{two}={two}.lab"], python=there)
    assert said.startswith(f"{one} cannot connect to {two} at {two}.lab:")
    assert f"on {one} the name {two}.lab means 127.0.1.1, which is {one} itself; Debian" in said
    assert f"(--hosts {two}={lab.hosts[1].address})" in step


def test_hosts_with_another_framework_and_without_one_are_named(lab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, two = lab.names[:2]
    for name, version in ((one, "2.19.1"), (two, "2.20.0")):
        package = lab.folder / f"site-{name}" / "tensorflow"
        about = package.with_name(f"tensorflow-{version}.dist-info")
        package.mkdir(parents=True)
        about.mkdir()
        (package / "__init__.py").touch()
        (about / "METADATA").write_text(f"Name: tensorflow\nVersion: {version}\n")
    there = program(lab.folder, f"export PYTHONPATH={lab.folder}/site-$(uname -n)")
    [said] = refusal(lab, python=there)
    versions = f"2.19.1 on {one}; 2.20.0 on {two}"
    assert said.startswith(f"the machines have different versions of tensorflow: {versions}. ")
    bare = lab.folder / "bare" / "bin" / "python"
    bare.parent.mkdir(parents=True)
    bare.symlink_to(Path(sys.executable).resolve())
    home = Path(sys.executable).resolve().parent
    (lab.folder / "bare" / "pyvenv.cfg").write_text(f"home = {home}\n")
    [said] = refusal(
        lab, python=program(lab.folder, f'[ $(uname -n) = {two} ] && exec {bare} "$@"')
    )
    assert said.startswith(f"TensorFlow is not installed on {two} for {bare}; install it there")


HANGS = """
import os, time
print("on", os.uname().nodename, flush=True)
time.sleep(600 if os.environ["MWMAGIC_ATTEMPT"] == "1" else 0)
"""


@pytest.mark.parametrize("on_stall", ["report", "restart"])
def test_a_stall_names_a_pair_that_no_longer_connects_and_a_spare_parts_it(
    lab, tmp_path, monkeypatch, on_stall
):
    monkeypatch.chdir(tmp_path)
    one, two, spare = lab.hosts
    options = {"stall_timeout": 3.0, "on_stall": on_stall, "restarts": 1}
    with cluster(lab, lab.names, **options) as found:
        run = found.run("main.py", source=HANGS)
        eventually(lambda: run.words == "running", run.status)
        one.shun(two)
        two.shun(one)
        try:
            if on_stall == "report":
                stall = eventually(lambda: run.status().stall, run.status)
                assert stall.why.finding.symptom is Symptom.HOSTS_APART
                assert {stall.why.finding.host, stall.why.finding.peer} == {one.name, two.name}
                run.stop(grace=0.0)
            else:
                run.wait(120)
                said = [run.logs(task).decode().split()[-1] for task in (0, 1)]
                assert said == [one.name, spare.name]
                [setback] = run.status().setbacks
                assert f"{one.name} cannot connect to {two.name}" in setback.cause.finding.detail
        finally:
            one.greet(two)
            two.greet(one)
