"""The versions of the sandbox's tools, and what `setup` builds and reports."""

import io
import re
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.__main__ import main
from sandbox.dataset import plays_text
from sandbox.packages import missing_packages
from sandbox.tools import cluster, controllers, older, services, tool
from sandbox.tools.cluster import TOOLS
from sandbox.tools.tool import GO_FOLDER

PROJECT = Path(__file__).parent.parent.parent.parent


def test_every_tool_can_be_built_from_a_pinned_module() -> None:
    for each in TOOLS:
        folder = GO_FOLDER / each.build.module
        assert (folder / "go.mod").exists(), each.name
        requirements = re.findall(r"^\s*(?:require )?\S+ v\S+", (folder / "go.mod").read_text())
        assert not requirements or (folder / "go.sum").exists(), each.name


@pytest.mark.parametrize(
    ("module", "pin"),
    [
        ("pulumi", f"pulumi/pkg/v3 v{cluster.PULUMI}"),
        ("language-python", f"pulumi/sdk/v3 v{cluster.LANGUAGE_HOST}"),
        ("kubernetes", f"k8s.io/kubernetes v{cluster.KUBERNETES}"),
        ("kubernetes-provider", f"sdk/v4 v{cluster.KUBERNETES_PROVIDER}"),
        ("etcd", f"etcd/server/v3 v{cluster.ETCD}"),
        ("coredns", f"coredns/coredns v{cluster.COREDNS}"),
        # Go requires a major version below 2 there, so 3.13.0 is 0.313.0.
        ("prometheus", f"prometheus/prometheus v0.{services.PROMETHEUS.replace('.', '', 1)}"),
        ("alertmanager", f"prometheus/alertmanager v{services.ALERTMANAGER}"),
        ("jobset", f"sigs.k8s.io/jobset v{controllers.JOBSET}"),
        ("trainer", f"kubeflow/trainer/v2 v{controllers.TRAINER}"),
        ("training-operator", f"kubeflow/trainer v{controllers.TRAINING_OPERATOR}"),
        ("mpi-operator", f"kubeflow/mpi-operator v{controllers.MPI_OPERATOR}"),
        ("volcano", f"volcano.sh/volcano v{controllers.VOLCANO}"),
        ("lws", f"sigs.k8s.io/lws v{controllers.LWS}"),
        *((each.build.module, f"jobset v{each.version}") for each in older.JOBSETS.values()),
        *((each.build.module, f"trainer/v2 v{each.version}") for each in older.TRAINERS.values()),
    ],
)
def test_modules_and_releases_have_the_same_versions(module: str, pin: str) -> None:
    assert pin in (GO_FOLDER / module / "go.mod").read_text()


def test_python_packages_have_the_versions_of_the_plugins() -> None:
    pins = (PROJECT / "requirements.txt").read_text()
    assert f"pulumi=={cluster.PULUMI}\n" in pins
    assert f"pulumi-kubernetes=={cluster.KUBERNETES_PROVIDER}\n" in pins
    assert f"pulumi-command=={cluster.COMMAND_PROVIDER}\n" in pins


def test_key_of_a_tool_changes_with_how_it_is_built() -> None:
    server = services.PROMETHEUS_SERVER
    additions = (("module", "file", "text"),)
    builds = [replace(server.build, tags=()), replace(server.build, additions=additions)]
    keys = {server.key, *(replace(server, build=build).key for build in builds)}
    assert len(keys) == 3


def test_key_of_a_tool_changes_with_its_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pause = next(tool for tool in TOOLS if tool.name == "pause")
    before = pause.key
    (tmp_path / "pause").mkdir()
    (tmp_path / "pause" / "main.go").write_text("package main")
    monkeypatch.setattr(tool, "GO_FOLDER", tmp_path)
    assert pause.key != before


def test_missing_program_names_its_package() -> None:
    wanted = {"sh": "dash", "no-such-program": "some-package", "/no/such/file": "other"}
    assert missing_packages(wanted) == ["other", "some-package"]


def test_plays_are_ascii_in_the_order_of_their_names_with_unix_line_ends(tmp_path: Path) -> None:
    texts = {"x/b_gut.txt": "B\r\nb\xe9", "x/a_gut.txt": "A", "x/a_gut_f.txt": "folio"}
    file = tmp_path / "plays.tar.gz"
    with tarfile.open(file, "w:gz") as tar:
        for name, text in texts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode("latin-1"))
            tar.addfile(entry, io.BytesIO(text.encode("latin-1")))
    assert plays_text(file) == b"A\nB\nb"


def test_missing_tools_are_named_and_nothing_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`setup --missing` names the missing tools and installs nothing. The folder of an interrupted
    build does not count as a tool.
    """
    monkeypatch.setenv("DISTTRAIN_CACHE", str(tmp_path))
    made, interrupted = services.PROMETHEUS_SERVER, services.IMAGE_REGISTRY
    for each in (made, interrupted):
        (tmp_path / "tools" / each.key).mkdir(parents=True)
    (tmp_path / "tools" / made.key / ".complete").touch()
    assert main(["setup", "--missing"]) == 0
    named = capsys.readouterr().out.splitlines()
    assert f"{made.name} {made.version}" not in named
    wanted = (cluster.TOOLS[0], interrupted, controllers.JOBSET_CONTROLLER)
    assert {f"{each.name} {each.version}" for each in wanted} <= set(named)
    assert {path.name for path in (tmp_path / "tools").iterdir()} == {made.key, interrupted.key}
