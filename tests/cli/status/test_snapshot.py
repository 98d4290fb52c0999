"""A snapshot of a cluster that has just lost a machine does not keep the user waiting.

The API server is a table of answers here; tests/kube and tests/e2e use real ones.
"""

from dataclasses import replace
from typing import Any

import pytest

from cli.status.reports import SECONDS_OF_LOST, TRY_SECONDS
from cli.status.screen import platform_line
from cli.status.snapshot import Snapshot, take_snapshot
from infra.kube import names
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.pods.dynamic_gpus import SLICES
from infra.kube.record import ALL
from tests.cli.records import RECORD
from tests.cli.resource_slices import slice_of
from tests.cli.status.lost_machine import Server, pod


def seen(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    *,
    with_volume: bool = False,
    wanted: str = "",
) -> Snapshot:
    """Return what one snapshot has, by the clock of this server."""
    monkeypatch.setattr("cli.status.reports.monotonic", lambda: server.seconds)
    api = Api(Access(kubeconfig="{}"), patience_seconds=0)
    api.use(server)
    return take_snapshot(api, "disttrain", with_volume=with_volume, wanted=wanted)


def test_lost_machine_is_waited_for_until_it_should_have_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The snapshot waits for a machine that gives no log only until the machine should have
    reported, and then names it. A second pod on this machine is not asked.
    """
    server = Server(5)
    found = seen(server, monkeypatch)
    assert server.waited == [("a", TRY_SECONDS)] + [("b", TRY_SECONDS)] * 3
    assert set(found.platform.silent) == {"n2"}
    assert found.runs[0].detail.startswith("pod b and 1 more is on node n2, which has not reported")


def test_silent_machine_is_hardly_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has not reported in time is waited for only SECONDS_OF_LOST, and named."""
    server = Server(14)
    found = seen(server, monkeypatch)
    assert server.waited == [("a", TRY_SECONDS), ("b", SECONDS_OF_LOST)]
    assert set(found.platform.silent) == {"n2"}


def test_machine_that_is_slow_and_reports_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine that still reports is waited for as long as for any answer of the cluster (a
    limit of None).
    """
    server = Server(5, reports_again=5)
    found = seen(server, monkeypatch)
    assert server.waited == [("a", TRY_SECONDS), *[("b", TRY_SECONDS)] * 2, ("b", None)]
    assert found.platform.silent == {}
    assert found.runs[0].state == "starting"


def test_without_leases_each_machine_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the Leases, by which nodes report, every machine is waited for."""
    server = Server(50)
    monkeypatch.setattr(server, "leases", lambda: [])
    found = seen(server, monkeypatch)
    assert server.waited == [("a", None), ("b", None)]
    assert found.platform.silent == {}


def test_first_lines_tell_of_the_volume_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line about the volume is read from the beginning of the log, if later lines have pushed
    it out of those that are read. The log's beginning is asked for only if the volume is shown,
    which only `--json` does.
    """
    server = Server(5)
    server.pods[1:] = [pod("b", "n1")]
    server.lines = "step 7/9 loss 2.0 tokens/s 5 mfu - eta 1s\n"
    server.begin = "[node 0] volume: 2 nodes see each other's new files: fast\n"
    (found,) = seen(server, monkeypatch).runs
    assert (found.progress.volume, len(server.waited)) == ("", 2)  # only `--json` shows the volume
    (found,) = seen(server, monkeypatch, with_volume=True).runs
    assert found.progress.volume == "2 nodes see each other's new files: fast"
    assert found.progress.step == 7


def test_volume_in_the_last_lines_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The beginning of the log is not asked for if the last lines tell of the volume, as in a run
    that has just started, or if the run has only one pod.
    """
    server = Server(5)
    server.pods[1:] = [pod("b", "n1")]
    server.lines = "[node 0] volume: 2 nodes: fast\nstep 7/9 loss 2.0 tokens/s 5 mfu - eta 1s\n"
    (found,) = seen(server, monkeypatch, with_volume=True).runs
    assert found.progress.volume == "2 nodes: fast"
    assert [name for name, _ in server.waited] == ["a", "b"]
    server = Server(5)
    server.pods[1:] = []
    server.lines = "step 7/9 loss 2.0 tokens/s 5 mfu - eta 1s\n"
    (found,) = seen(server, monkeypatch, with_volume=True).runs
    assert (found.progress.volume, len(server.waited)) == ("", 1)


def test_gpus_without_a_device_plugin_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no node offers GPUs by a device plugin, those that NVIDIA's driver for Dynamic Resource
    Allocation lists are counted. Of a list that is just replaced, both versions are there. How many
    are in use is not said, because a pod may hold them by a ResourceClaim.
    """
    server = Server(5)
    server.answers[SLICES] = {
        "items": [
            slice_of("n1", {"gpu-0": "gpu", "gpu-1": "gpu", "gpu-0-mig-1g10gb-0": "mig"}),
            slice_of("n1", {"gpu-0": "gpu", "gpu-1": "gpu"}),
            slice_of("n2", {"gpu-0": "gpu"}),
            slice_of("n2", {"nic-0": "gpu"}, driver="nic.example.com"),
            slice_of("n3", {"gpu-0": "gpu"}),  # a node that is gone
        ]
    }
    platform = seen(server, monkeypatch).platform
    assert (platform.gpus, platform.gpus_used, platform.gpus_idle) == (3, None, {})
    assert "3 GPUs offered; how many are in use was not seen: " in platform_line(platform)
    assert "Dynamic Resource Allocation" in platform_line(platform)
    server.answers["/api/v1/nodes"]["items"][0]["status"]["allocatable"] = {"nvidia.com/gpu": "8"}
    platform = seen(server, monkeypatch).platform
    assert (platform.gpus, platform.gpus_used) == (8, 0)


def config_map(run_name: str, owner: str = RECORD.owner) -> dict[str, Any]:
    """Return the configuration of a training, as `pulumi up` makes it."""
    labels = {names.COMPONENT_LABEL: names.TRAINING, names.OWNER_LABEL: owner}
    return {"metadata": {"labels": labels}, "data": {"run.yaml": f"run_name: {run_name}\n"}}


@pytest.mark.parametrize("wanted", ["wide", "dev", RECORD.stack])
def test_run_is_found_by_each_of_its_names(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status RUN` finds a run by its own name and by the name of its stack. The logs of other runs
    are not read.
    """
    server = Server(1)
    other = replace(RECORD, owner="another-owner", stack="organization/disttrain/other")
    records = [each.to_object("disttrain") for each in (other, RECORD)]
    server.answers[ALL] = {"items": records}
    server.configs = [config_map("wide"), config_map("narrow", other.owner)]
    found = seen(server, monkeypatch, wanted=wanted)
    assert [run.stack for run in found.runs] == [RECORD.stack]
    assert found.missing == ""
    assert [name for name, _ in server.waited].count("a") == 1


def test_run_that_is_not_there_is_answered_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """`status RUN` of a run that is not there names the runs that are."""
    server = Server(1)
    server.configs = [config_map("wide")]
    found = seen(server, monkeypatch, wanted="narrow")
    assert found.runs == ()
    assert "'narrow'" in found.missing
    assert "The runs there: wide (stack dev)." in found.missing
