"""What `make demo` prints of an update, and what the commands of the sandbox print of a cluster."""

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest

from sandbox import cluster_commands
from sandbox.cluster import Cluster, ClusterStatus
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
    """The command that starts a cluster prints the path of its kubeconfig."""
    cluster = SimpleNamespace(up=lambda _: print("it is up"), kubeconfig=Path("/somewhere/config"))
    monkeypatch.setattr(cluster_commands, "_cluster", lambda *_, **__: cluster)
    cluster_commands._up(Namespace(nodes=None, controllers=[]))  # pyright: ignore
    assert capsys.readouterr().out == "it is up\nkubeconfig /somewhere/config\n"


@pytest.mark.parametrize("state", ["up", "down", "broken"])
def test_cluster_that_starts_does_not_name_its_kubeconfig(
    state: Literal["up", "down", "broken"],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A cluster that starts prints no path of its kubeconfig, whether it was up, down or broken
    before. `make demo` shows everything that the cluster prints, and needs none.
    """
    made = Cluster("sample", tmp_path, tmp_path)
    status = ClusterStatus("sample", state, ("a node has ended",))
    started = list[object]()
    monkeypatch.setattr("sandbox.cluster.require_root_on_linux", lambda: None)
    monkeypatch.setattr("sandbox.cluster.problems", lambda *_: [])
    monkeypatch.setattr(made, "status", lambda: status)
    monkeypatch.setattr(made, "_first_problems", lambda: ["a node has ended"])
    monkeypatch.setattr(made, "_start_all", started.append)
    made.up()
    printed = capsys.readouterr().out
    first, last = printed.splitlines()[0], printed.splitlines()[-1]
    said = {"up": "cluster sample is up already", "down": "cluster sample is up after "}
    assert first.startswith(
        said.get(state, "  removing what is left of cluster sample: a node has")
    )
    assert last.startswith("cluster sample is up ")
    assert (started == []) == (state == "up")
    assert "kubeconfig" not in printed
    assert str(made.kubeconfig) not in printed
