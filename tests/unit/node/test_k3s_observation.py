"""What follows from what a host says about its k3s. tests/node asks real hosts."""

import re
from collections.abc import Iterable
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pulumi
import pytest

from infra.node.k3s_observation import HostAccess, K3sObservation, judge, observe_k3s, parse_facts
from infra.platform.k3s_state import ALL_INPUTS, K3sState, further_machine, k3s_state
from infra.settings import HostSettings, SshSettings

NEW = "20261121T221005.000000Z"
OURS = {
    "state": "ours",
    "healthy": "yes",
    "noted_data": "yes",
    "repair": "repair-1",
    "generation": "generation-1",
    "owner": "owner-1",
    "kubeconfig": "sum-1",
}


def test_healthy_k3s_keeps_its_ids() -> None:
    assert judge(OURS, NEW) == K3sObservation("repair-1", "generation-1", owner="owner-1")


def test_stopped_k3s_is_repaired_and_not_replaced() -> None:
    """A k3s that is not healthy gets a new repair id, so that `up` repairs it, and keeps its
    generation id, so that nothing in the cluster is made anew.
    """
    assert judge({**OURS, "healthy": "no"}, NEW) == K3sObservation(
        NEW, "generation-1", owner="owner-1"
    )


def test_wiped_k3s_is_replaced() -> None:
    """A k3s whose data are gone gets a new generation id, so that all that was in the cluster is
    made anew.
    """
    assert judge({**OURS, "healthy": "no", "noted_data": "no"}, NEW) == K3sObservation(
        NEW, NEW, owner="owner-1"
    )


def test_install_that_was_cut_off_is_gone_on_with() -> None:
    """An installation that was cut off gets new ids, so that `up` completes it."""
    cut_off = {"healthy": "no", "noted_data": "no", "repair": "", "generation": ""}
    assert judge({**OURS, **cut_off}, NEW) == K3sObservation(NEW, NEW, owner="owner-1")


def test_bare_host_gets_new_ids() -> None:
    assert judge({"state": "absent", "kubeconfig": ""}, NEW) == K3sObservation(NEW, NEW)


def test_k3s_of_others_is_never_replaced_and_its_kubeconfig_is_renewed() -> None:
    """A k3s that somebody else has installed has no generation id, so it is never replaced. Its
    repair id is the checksum of its kubeconfig, so `up` fetches the kubeconfig again when it has
    changed.
    """
    assert judge({"state": "others", "kubeconfig": "sum-1"}, NEW) == K3sObservation(
        "sum-1", "", kubeconfig="sum-1"
    )
    assert judge({"state": "others", "kubeconfig": "sum-2"}, NEW) == K3sObservation(
        "sum-2", "", kubeconfig="sum-2"
    )


@pytest.mark.parametrize("text", ["", "state=ours\nhealthy=yes\n", "done=yes\n", "what?\n"])
def test_answer_that_is_cut_off_is_no_answer(text: str) -> None:
    """An answer without its last line is refused as not complete, because a connection may break in
    the middle.
    """
    with pytest.raises(ValueError, match="not complete"):
        parse_facts(text)


def test_host_that_cannot_be_reached_is_a_problem_and_no_error() -> None:
    """If a host cannot be reached, the observation gives the reason and raises nothing. A
    preview must not fail then, because the host may not exist yet.
    """
    ssh = {"host": "127.0.0.1", "port": 1, "user": "root", "host_key": "ssh-ed25519 AAAA"}
    observation = observe_k3s(HostAccess({**ssh, "private_key": None, "jump": None}))
    assert "refused" in observation.problem
    assert observation.repair_id == observation.generation_id != ""


READ_ONLY = """#!/bin/sh
exec unshare --mount /bin/sh -c '
  mount -t tmpfs -o ro none /run && mount -o remount,bind,ro / && exec /bin/sh "$@"
' sh "$@"
"""


def test_observation_on_a_machine_without_k3s_changes_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The observation of a machine without k3s gives new ids, and needs to write nothing there: it
    succeeds even if all files can only be read.
    """
    (tmp_path / "sh").write_text(READ_ONLY)
    (tmp_path / "sh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    now = datetime(2026, 11, 21, 22, 10, 5, tzinfo=UTC)
    assert observe_k3s(HostAccess(None), now) == K3sObservation(NEW, NEW)


# --- what the commands do with an observation ---


def state_of(
    observation: K3sObservation | None, *, is_preview: bool, existing: str = "refuse"
) -> K3sState:
    """Return what this observation means for the commands; None stands for a host that is lost. The
    settings have only the parts that `k3s_state` reads.
    """

    class Part:
        def __init__(self, **fields: object) -> None:
            self.__dict__.update(fields)

    future: Future[K3sObservation] | None = None
    if observation:
        future = Future()
        future.set_result(observation)
    cluster, host = Part(k3s=Part(existing=existing)), Part(ssh=None)
    return k3s_state(future, cast(Any, cluster), cast(Any, host), is_preview=is_preview)


UNREACHED = K3sObservation("new", "new", problem="Connection refused")


@pytest.mark.parametrize("state", ["ours", "others"])
def test_observation_says_the_authority_of_k3s(state: str) -> None:
    """The observation has the checksum of the cluster's authority, whoever has installed k3s. By it
    an adopted k3s is known when its host has another name.
    """
    observation = judge({**OURS, "state": state, "authority": "sum-of-authority"}, NEW)
    assert observation.authority == "sum-of-authority"


def ignored(observation: K3sObservation | None, is_preview: bool) -> Iterable[str]:
    """Return the inputs of which the command ignores changes."""
    return state_of(observation, is_preview=is_preview).ignored


def test_observation_that_was_answered_hides_no_change() -> None:
    assert ignored(K3sObservation("1", "1"), is_preview=True) == ()
    assert ignored(K3sObservation("1", "1"), is_preview=False) == ()


def test_preview_without_access_to_the_host_shows_no_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A preview that cannot ask the host, as in CI, shows no change of k3s and warns that it could
    not ask.
    """
    warnings: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", warnings.append)
    assert ignored(UNREACHED, is_preview=True) == ALL_INPUTS
    assert "could not be asked about its k3s (Connection refused)" in warnings[0]


@pytest.mark.parametrize("healthy", ["yes", "no"])
def test_adopted_k3s_of_another_stack_keeps_its_id(healthy: str) -> None:
    """The id of an adopted k3s is the checksum of its kubeconfig, even if another stack owns it and
    it is not healthy. Otherwise each `up` of this stack would run its command.
    """
    observation = judge({**OURS, "healthy": healthy, "noted_data": healthy}, NEW)
    assert state_of(observation, is_preview=False, existing="adopt").observation == K3sObservation(
        "sum-1", ""
    )


def test_up_without_an_answer_runs_the_install_and_never_replaces_k3s() -> None:
    """An `up` that cannot ask the host runs the install again, and ignores the ids that would
    replace k3s.
    """
    assert ignored(UNREACHED, is_preview=False) == ("triggers",)


@pytest.mark.parametrize(("noted", "role"), [("k3s-server", "server"), ("k3s-agent", "agent")])
@pytest.mark.parametrize("is_preview", [True, False])
def test_further_machine_cannot_become_the_first(noted: str, role: str, is_preview: bool) -> None:
    """A further machine is refused as the first machine. The error has all six steps to a new
    platform, for a user who has lost the first machine and names another one instead.
    """
    observation = judge({**OURS, "role": noted}, NEW)
    with pytest.raises(pulumi.RunError) as raised:
        state_of(observation, is_preview=is_preview)
    reason, stays, leaves, *way = str(raised.value).splitlines()
    assert reason.startswith("host: 'localhost' cannot be used: this machine has joined a cluster")
    assert f"as a further machine ({role})" in reason
    assert reason.endswith("Nothing was changed.")
    assert (
        stays == "If the first machine is to stay, set host back to it, and nodes to what it was."
    )
    assert leaves.startswith("If it is lost for good, or has to leave, make a new platform")
    steps = [line for line in way if re.match(r"  \d\. ", line)]
    assert [line[2] for line in steps] == ["1", "2", "3", "4", "5", "6"]
    assert all(line.startswith("     ") for line in way if line not in steps)
    words = ("Set host and", "./disttrain stop", "Only if the first machine does not answer")
    words += ("pulumi destroy", "set host to it, nodeAddress", "pulumi up")
    for step, expected in zip(steps, words, strict=True):
        assert expected in step


def test_each_line_of_the_way_out_fits_a_screen() -> None:
    """The lines of the way out have at most 90 characters, because users type the steps from the
    screen. Only the reason before them is longer.
    """
    ssh = SshSettings("gpu-node-with-a-long-name.example.com", 22, "root", None, "", None)
    host = HostSettings(ssh, sudo_password=None, gone=False, defaults=ssh)
    _, *lines = further_machine(host, "server").splitlines()
    assert "set sshHost to it, sshHostKey and nodeAddress" in "\n".join(lines)
    assert max(len(line) for line in lines) <= 90


def test_first_machine_stays_the_first() -> None:
    """A host that has noted its role as the first machine is not refused."""
    observation = judge({**OURS, "role": "k3s"}, NEW)
    assert state_of(observation, is_preview=False).ignored == ()


def test_lost_host_is_not_asked_and_nothing_is_run_there() -> None:
    """Of a lost host, all inputs of the commands are ignored, so that no command runs there."""
    assert ignored(None, is_preview=False) == ALL_INPUTS


def test_adopted_k3s_is_never_replaced() -> None:
    """An adopted k3s never has a generation id. Its data do not belong to this program, so they
    must not be wiped.
    """
    for generation in ("1", "2"):
        state = state_of(K3sObservation("r", generation), is_preview=False, existing="adopt")
        assert cast(K3sObservation, state.observation).generation_id == ""
