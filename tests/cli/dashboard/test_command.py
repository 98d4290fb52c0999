"""A port that cannot be had is said in one sentence, before any pod is started."""

import socket
from argparse import Namespace

import pytest

from cli.dashboard import command
from cli.dashboard.server import HERE
from cli.stack_outputs import VolumePlace
from infra.kube.access import Access

PLACE = VolumePlace(Access(kubeconfig_path="none"), "disttrain", "o-1", "image", "claim", "/data")


@pytest.fixture(autouse=True)
def stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "volume_place", lambda _: PLACE)
    monkeypatch.setattr(command, "end_in_order", lambda: None)  # it is for the whole process


def test_port_that_is_taken_is_named() -> None:
    with socket.create_server((HERE, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ValueError, match=f"--port: {port} cannot be used: Address already"):
            command.run(Namespace(stack="", port=port))


@pytest.mark.parametrize("port", [-1, 65536])
def test_number_that_is_no_port_is_named(port: int) -> None:
    with pytest.raises(ValueError, match=rf"--port: {port} cannot be used: .*0 for any"):
        command.run(Namespace(stack="", port=port))
