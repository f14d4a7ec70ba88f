"""Ports are held for workers, and for nobody else."""

from __future__ import annotations

import socket

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
    agent.say("ping", n=1)
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
        for number in range(100):
            server.accept()[0].sendall(b"%d" % number)
        """,
    )
    agent.says("a", "up")
    for number in range(100):
        host = "127.0.0.1" if number % 2 else "::1"
        with socket.create_connection((host, port), 10) as client:
            assert client.recv(100) == b"%d" % number
    agent.wait("exited", code=0)
    bind(port, way).close()  # still held for the next attempt
    with pytest.raises(OSError, match="Address already in use"):
        bind(port)


def test_nobody_is_connected_to_a_placeholder(agent):
    [port] = held(agent, 1, 1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 10)
