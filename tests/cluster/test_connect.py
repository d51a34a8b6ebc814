"""What is refused before Ray is started: no Ray, no address, nobody at the address."""

import socket
import sys

import pytest

from qwen3nb.cluster.nodes import ClusterError, connected


def refusal(address):
    with pytest.raises(ClusterError) as error, connected(address):
        raise AssertionError("connected")
    return error.value.message


def test_without_ray_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'qwen3nb[ray]'" in refusal("local")


@pytest.mark.parametrize("address", ["sweep.toml", "http://head:8265", "head", ":6379", "head:"])
def test_what_is_no_address_is_refused_with_what_is(address):
    message = refusal(address)
    assert repr(address) in message
    assert "expected auto, host:port or ray://host:port" in message


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_nobody_at_the_address_is_said_at_once(scheme):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"{scheme}127.0.0.1:{server.getsockname()[1]}"
    message = refusal(address)
    assert f"no Ray cluster answers at {address}: " in message
    assert "ray start --head" in message


def test_a_machine_without_a_cluster_says_so(monkeypatch):
    from ray._private import services

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(services, "find_bootstrap_address", lambda folder: None)
    assert "belongs to no Ray cluster, and RAY_ADDRESS is not set" in refusal("auto")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    assert "no Ray cluster answers at 127.0.0.1:9" in refusal("auto")
