"""What `make demo` prints of an update, and what the commands of the sandbox print of a cluster."""

import inspect
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox import cluster_commands
from sandbox.cluster import Cluster
from sandbox.demo import worth_saying


@pytest.mark.parametrize(
    ("line", "news"),
    [
        (" +  kubernetes:core/v1:Namespace ns creating (0s) ", ""),
        (" +  kubernetes:core/v1:Namespace ns created (0.06s) ", "Namespace ns created"),
        (" +  command:local:Command a creating (3s) import: 12 bytes", "a: import: 12 bytes"),
        (" +  kubernetes:core/v1:Pod p creating (0s) Skipping await logic", ""),
        (' +  command:local:Command image creating (3s) {"image": "a", "built": false}', ""),
        (
            " +  kubernetes:batch/v1:Job j creating (3s) warning: [Pod ns/j-x]: "
            'Container "trainer" completed with exit code 0',
            "",
        ),
        ("@ updating....", ""),
        ("Resources:", ""),
    ],
)
def test_only_news_of_an_update_is_said(line: str, news: str) -> None:
    assert worth_saying(line) == news


def test_command_that_starts_a_cluster_says_how_to_reach_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that starts a cluster prints the path of its kubeconfig. The cluster itself does
    not, because `make demo` shows everything that the cluster prints.
    """
    cluster = SimpleNamespace(up=lambda _: print("it is up"), kubeconfig=Path("/somewhere/config"))
    monkeypatch.setattr(cluster_commands, "_cluster", lambda *_, **__: cluster)
    cluster_commands._up(Namespace(nodes=None, controllers=[]))  # pyright: ignore
    assert capsys.readouterr().out == "it is up\nkubeconfig /somewhere/config\n"
    assert "kubeconfig" not in inspect.getsource(Cluster.up)
