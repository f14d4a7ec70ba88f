"""Ports are held for workers, and for nobody else."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest


def bind(port, way=None, address="::"):
    """Bind a port as a server would: as gRPC's, as PyTorch's, or without any sharing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM)
    if way is not None:
        one.setsockopt(socket.SOL_SOCKET, way, 1)
    try:
        one.bind((address, port))
    except OSError:
        one.close()
        raise
    return one


def held(agent, number, count):
    agent.say("hold", id=number, count=count)
    return agent.wait("held", id=number)["ports"]


@pytest.mark.slow
def test_eight_agents_of_eight_never_collide(speak):
    agents = [speak() for _ in range(8)]
    for agent in agents:
        agent.say("hold", id=1, count=8)
    ports = [port for agent in agents for port in agent.wait("held")["ports"]]
    assert len(set(ports)) == 64
    for port in ports:
        for address in ("::", "0.0.0.0", "127.0.0.1"):
            bind(port, socket.SO_REUSEPORT, address).close()
            with pytest.raises(OSError, match="Address already in use"):
                bind(port, None, address)


def test_the_kernel_gives_a_held_port_to_nobody(agent):
    ports = set(held(agent, 1, 64))
    ways = (socket.SO_REUSEPORT, socket.SO_REUSEADDR, None)
    others = [bind(0, way) for way in ways for _ in range(500)]
    taken = {one.getsockname()[1] for one in others}
    for one in others:
        one.close()
    assert len(taken) == 1500
    assert not ports & taken


def test_ports_are_released(agent):
    first, second = held(agent, 1, 2)
    agent.say("release", ports=[first])
    agent.say("ping", n=1, until=None)
    agent.wait("pong")
    bind(first).close()
    with pytest.raises(OSError, match="Address already in use"):
        bind(second)
    agent.close()
    bind(second).close()


def test_more_are_held_beside_the_first(agent):
    assert len({*held(agent, 1, 3), *held(agent, 2, 3)}) == 6
    assert held(agent, 3, 0) == []


@pytest.mark.parametrize("way", [socket.SO_REUSEPORT, socket.SO_REUSEADDR])
def test_a_worker_listens_beside_the_placeholder_and_gets_every_connection(agent, way):
    [port] = held(agent, 1, 1)
    agent.start(
        "a",
        f"""
        import socket
        server = socket.socket(socket.AF_INET6)
        server.setsockopt(socket.SOL_SOCKET, {int(way)}, 1)
        server.bind(("::", {port}))
        server.listen(100)
        print("up")
        number = 0
        while number < 100:
            client = server.accept()[0]
            if client.recv(4) == b"mine":  # another test may look for a kernel that had this port
                client.sendall(b"%d" % number)
                number += 1
        """,
    )
    agent.says("a", "up")
    for number in range(100):
        host = "127.0.0.1" if number % 2 else "::1"
        with socket.create_connection((host, port), 10) as client:
            client.sendall(b"mine")
            assert client.recv(100) == b"%d" % number
    agent.wait("exited", code=0)
    bind(port, way).close()  # still held for the next attempt
    with pytest.raises(OSError, match="Address already in use"):
        bind(port)


def test_no_client_reaches_a_placeholder_of_a_port(agent):
    [port] = held(agent, 1, 1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 10)


def listening(agent, number=1, word="the word"):
    [port] = held(agent, number, 1)
    agent.say("listen", id=number + 100, port=port, word=word)
    agent.wait("listening", id=number + 100)
    return port


def reached(agent, *targets, number=9, within=10.0):
    agent.say("reach", id=number, targets=targets, within=within)
    return agent.wait("reached", id=number)["results"]


def test_an_agent_that_listens_is_reached_and_known(agent, speak):
    other = speak()
    port = listening(other)
    every = [[f"{host}:{port}", "the word"] for host in ("127.0.0.1", "[::1]", "localhost")] * 10
    assert reached(agent, *every) == [None] * 30
    [result] = reached(agent, [f"127.0.0.1:{port}", "another"], number=10)
    assert result == {"why": "stranger", "at": ["127.0.0.1"], "error": "another answer"}
    assert reached(agent, number=11) == []


def test_why_an_address_is_not_reached_is_reported(agent):
    [port] = held(agent, 1, 1)
    targets = [f"localhost:{port}", "nowhere.invalid:1", "localhost:none", "[:1"]
    refused, *others = reached(agent, *([one, "w"] for one in targets))
    assert (refused["why"], refused["error"]) == ("refused", "Connection refused")
    assert set(refused["at"]) <= {"127.0.0.1", "::1"}
    assert [one["why"] for one in others] == ["unresolved"] * 3


@pytest.mark.slow
def test_what_says_nothing_is_not_the_agent(agent):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        [result] = reached(agent, [f"127.0.0.1:{port}", "w"], within=0.3)
    assert (result["why"], result["error"]) == ("stranger", "no answer")


def test_one_that_stays_connected_does_not_keep_the_port(agent):
    port = listening(agent)
    guests = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(300)]
    assert all(guest.recv(100) == b"the word" for guest in guests)
    agent.say("unlisten")
    agent.say("ping", n=1, until=None)
    agent.wait("pong")
    states = [line.split()[1:4] for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    assert not [one for one in states if one[0].endswith(f":{port:04X}")]
    bind(port, socket.SO_REUSEPORT).close()
    for guest in guests:
        guest.close()


@pytest.mark.parametrize("way", [socket.SO_REUSEPORT, socket.SO_REUSEADDR])
def test_a_worker_gets_the_port_at_which_the_agent_listened(agent, speak, way):
    port = listening(agent)
    assert reached(speak(), [f"127.0.0.1:{port}", "the word"]) == [None]
    agent.say("unlisten")
    agent.start(
        "a",
        f"""
        import socket
        server = socket.socket(socket.AF_INET6)
        server.setsockopt(socket.SOL_SOCKET, {int(way)}, 1)
        server.bind(("::", {port}))
        server.listen(100)
        print("up")
        for number in range(20):
            server.accept()[0].sendall(b"worker")
        """,
    )
    agent.says("a", "up")
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port), 10) as client:
            assert client.recv(100) == b"worker"
    agent.wait("exited", code=0)


def test_an_agent_listens_only_at_ports_that_it_holds_and_until_a_worker_starts(agent):
    agent.say("listen", id=1, port=1, word="w")
    assert agent.wait("refused", id=1)["error"] == "port 1 is not held"
    port = listening(agent, 2)
    agent.start("a", "print('up')")
    agent.wait("exited")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 10)


@pytest.mark.parametrize("target", ["a:1", ["a:1"], ["a:1", 2], ["a:1", "w", "w"]])
def test_targets_are_checked(agent, target):
    agent.say("reach", id=1, targets=[target], within=1)
    assert "an address and a word" in agent.wait("refused", id=1)["error"]
