"""A kernel that restarts while the machines of its cluster are kept."""

from __future__ import annotations

import pytest
from processes import eventually

from mwmagic.cli import main

pytestmark = pytest.mark.slow

THERE = "--engine command --hosts a=127.0.0.1,b=127.0.0.1 -- env {python} -"
SUPERVISOR = "import mwmagic; next(mwmagic.clusters())._connection.news['cluster']['pid']"
DECLARE = f"%mw_cluster 2 --no-warm --hold 30m {THERE}"


def test_the_machines_of_all_clusters_are_a_default_of_the_session(kernel):
    for name, value in (
        ("engine", "'command'"),
        ("hosts", "('a=127.0.0.1', 'b=127.0.0.1')"),
        ("scheduler", "('env', '{python}', '-')"),
        ("lease", "5"),
    ):
        assert kernel.run(f"%config MWMagic.{name} = {value}").error is None
    assert kernel.run("cluster = %mw_cluster 2 --no-warm").error is None
    assert kernel.run("[one.name for one in cluster.machines]").value == "['a', 'b']"
    assert kernel.run("cluster.options.lease").value == "5.0"


@pytest.mark.parametrize("now", [False, True])
def test_the_next_kernel_takes_over_what_was_kept(kernel, capsys, now):
    assert kernel.run(DECLARE).error is None
    first = kernel.run(SUPERVISOR).value
    kernel.run("%%mw_worker\nimport time; print('up', flush=True); time.sleep(600)")
    kernel.restart(now=now)
    listed = []

    def kept():
        main(["ps"])
        listed.append(capsys.readouterr().out.splitlines()[0])
        return "run 1: stopped" in listed[-1]

    eventually(kept, lambda: listed)
    assert listed[-1].startswith("cluster  2 tasks on 2 hosts  kept for a new owner, ")
    assert kernel.run(DECLARE.replace(" 2 ", " 3 ")).error == (
        "ClusterError: the machines of the cluster 'cluster' were kept with --hold, but this "
        "declaration needs others to get workers 3 (was 2). Declare the cluster as it was to use "
        "them, give them back with `%mw_stop --cluster`, or give the new cluster a --name"
    )
    again = kernel.run(DECLARE)
    assert again.text.startswith("reusing the cluster 'cluster'; ")
    assert kernel.run(SUPERVISOR).value == first
    kernel.run("%%mw_worker\nprint('well')")
    assert kernel.run("%mw_wait").error is None
    assert kernel.run("%mw_logs 0").text == "well\n"
    assert "ended" in kernel.run("%mw_stop --cluster").text
    assert kernel.run("list(mwmagic.clusters())").value == "[]"
