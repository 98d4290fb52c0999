"""`dashboard` and `tensorboard` refuse a port that cannot be had in one sentence, before any pod is
started.
"""

import socket

import pytest

from cli import tensorboard
from cli.__main__ import main
from cli.dashboard import command
from cli.dashboard.server import LOOPBACK
from cli.stack_outputs import VolumePlace
from infra.kube.api_server.access import Access

# A command that asked the cluster would fail with another error.
ACCESS = Access(kubeconfig_path="none")
VOLUME = VolumePlace(ACCESS, "disttrain", "o-1", "image", "claim", "/data/mine/runs")


@pytest.fixture(params=["dashboard", "tensorboard"])
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a command that has the option `--port`, whose stack is a stand-in."""
    for module in (command, tensorboard):
        monkeypatch.setattr(module, "volume_place", lambda _: VOLUME)
        # `end_in_order` sets signal handlers of the whole process.
        monkeypatch.setattr(module, "end_in_order", lambda: None)
    return request.param


def test_port_that_is_taken_is_named(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        assert main([name, "--port", str(port)]) == 2
    assert f"--port: {port} cannot be used: Address already" in capsys.readouterr().err


@pytest.mark.parametrize("port", [-1, 65536])
def test_number_that_is_no_port_is_named(
    name: str, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: --port: {port} cannot be used: ")
    assert "it is no port, which is a number from 1 to 65535. Give another one, or 0" in said


def test_port_is_looked_at_before_the_stack(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port that cannot be had is refused before the stack is asked for. Otherwise users without
    Pulumi would first install Pulumi, and then read that the port is wrong.
    """

    def without_pulumi(_: str) -> VolumePlace:
        raise ValueError("there is no pulumi")

    for module in (command, tensorboard):
        monkeypatch.setattr(module, "volume_place", without_pulumi)
    assert main([name, "--port", "99999"]) == 2
    assert capsys.readouterr().err.startswith("error: --port: 99999 cannot be used: ")


def test_tensorboard_needs_no_run_of_the_stack() -> None:
    """`tensorboard` shows the runs of all stacks on the volume, from a pod that cannot write to the
    volume. It works for a platform without a run, too.
    """
    pod = tensorboard.board_pod(VOLUME)
    assert pod.command[:3] == ("tensorboard", "--logdir", "/data/mine/runs")
    assert pod.read_only
