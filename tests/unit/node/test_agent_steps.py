"""The steps by which a machine joins the cluster and leaves it, at the server and at the machine:
their order, and what is told when one fails.

The scripts are short stand-ins that run on this machine; tests/node has the real ones, on hosts
over SSH.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.kube.gone_cluster import VARIABLE
from infra.node.agent import (
    ForgottenError,
    Job,
    Name,
    StepError,
    clear,
    join,
    leave,
    prepare,
    unprepare,
)

SCRIPTS: dict[Name, str] = {
    "look": 'echo "look $1" >>"$NOTES"; echo new_machine=yes; echo done=yes',
    "member": 'echo "member $1 ${NEW_MACHINE:-}${STARTED:-}" >>"$NOTES"; '
    '[ "$1" != join ] || printf "token=hunter2\\ngpu_pods=a/b \\ndone=yes\\n"',
    "agent": 'echo "agent $1 ${K3S_TOKEN:-} ${GPU_PODS:-}" >>"$NOTES"; '
    "echo said; echo started=12:00",
}
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample"
JOINED = ["look look", "member join yes", "agent create hunter2 a/b ", "member await 12:00"]


def job(
    notes: Path, changes: dict[Name, str] | None = None, *, server: bool = False, gone: bool = False
) -> Job:
    """Return a job whose scripts write their steps into `notes`. `server` says that the server is
    lost, and `gone` that the machine is lost.
    """
    way: dict[str, Any] = {"ssh": None, "sudo_password": ""}
    variables: dict[Name, dict[str, str]] = {name: {"NOTES": str(notes)} for name in SCRIPTS}
    texts: dict[Name, str] = {**SCRIPTS, **(changes or {})}
    return Job({**way, "gone": server}, {**way, "gone": gone}, texts, variables)


def lines(notes: Path) -> list[str]:
    """Return the steps that the scripts have written."""
    return notes.read_text().splitlines() if notes.exists() else []


def test_token_goes_from_the_server_to_the_machine_and_is_not_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`join` passes the token of the cluster from the server's script to the machine's and prints
    it nowhere.
    """
    notes = tmp_path / "notes"
    join(job(notes))
    assert lines(notes) == JOINED
    said = "".join(capfd.readouterr())
    assert "said" in said
    assert "hunter2" not in said


def test_machine_is_told_that_its_node_is_missing(tmp_path: Path) -> None:
    """If the cluster has no Node for the machine, the machine's script is told so. Its k3s runs,
    and makes the Node only when it is started once more.
    """
    notes = tmp_path / "notes"
    member = SCRIPTS["member"].replace("done=yes", "has_node=no\\ndone=yes")
    agent = SCRIPTS["agent"].replace("${GPU_PODS:-}", "missing=${NODE_MISSING:-}")
    join(job(notes, {"member": member, "agent": agent}))
    assert "agent create hunter2 missing=1" in lines(notes)


def test_files_come_without_the_server_and_none_to_a_lost_machine(tmp_path: Path) -> None:
    """`prepare` and `unprepare` need only the machine, and do nothing on a lost one. With a lost
    server `prepare` does nothing, but `unprepare` still cleans the machine.
    """
    notes = tmp_path / "notes"
    for step in (prepare, unprepare):
        step(job(notes))
        step(job(notes, gone=True))
    assert [line.split() for line in lines(notes)] == [["agent", "prepare"], ["agent", "unprepare"]]
    prepare(job(notes, server=True))
    unprepare(job(notes, server=True))
    assert lines(notes)[2:] == ["agent unprepare  "]


@pytest.mark.parametrize(
    ("there", "role", "steps"),
    [
        ("yes", "agent", ["member drain", "agent delete", "member forget"]),
        ("no", "agent", ["agent delete"]),
        ("no", "server", ["agent delete"]),
    ],
)
def test_machine_whose_join_was_broken_off_leaves(
    tmp_path: Path, there: str, role: str, steps: list[str]
) -> None:
    """`clear` lets a machine leave whose `join` was broken off. If the server has no k3s any more,
    only the machine's own k3s is removed. The engine does not know of such a join, so no other
    command would undo it.
    """
    notes = tmp_path / "notes"
    agent = SCRIPTS["agent"].replace("echo said", '[ "$1" = delete ] || echo left=joined; exit 0')
    member = SCRIPTS["member"] + f'\n[ "$1" != look ] || printf "there={there}\\ndone=yes\\n"'
    clear(replace(job(notes, {"agent": agent, "member": member}), role=role))
    found = [" ".join(line.split()[:2]) for line in lines(notes)]
    assert found == ["agent clear", "member look", *steps]


def test_greeting_of_a_shell_keeps_no_machine_in_the_cluster(tmp_path: Path) -> None:
    """A machine leaves the cluster although its shell prints a greeting before the script's output,
    as with a .bashrc that bash reads before a command over SSH. Otherwise `pulumi destroy` would
    succeed and leave k3s there.
    """
    notes = tmp_path / "notes"
    agent = SCRIPTS["agent"].replace("echo said", "echo Welcome to gpu2; echo left=joined; exit 0")
    member = SCRIPTS["member"] + '\n[ "$1" != look ] || printf "there=no\\ndone=yes\\n"'
    clear(job(notes, {"agent": agent, "member": member}))
    assert [line.split()[1] for line in lines(notes)] == ["clear", "look", "delete"]


def test_server_that_goes_meanwhile_is_left_out(tmp_path: Path) -> None:
    """If the server's k3s is removed while a machine leaves, the machine's k3s is removed without
    the server. `pulumi destroy` removes both at the same time.
    """
    notes = tmp_path / "notes"
    agent = SCRIPTS["agent"].replace("echo said", '[ "$1" = delete ] || echo left=joined; exit 0')
    goes = 'if [ -e "$NOTES.gone" ]; then echo there=no; else echo there=yes; fi; echo done=yes'
    member = (
        f'echo "member $1" >>"$NOTES"; [ "$1" != look ] || {{ {goes}; exit 0; }}\n'
        'touch "$NOTES.gone"; echo "k3s does not answer" >&2; exit 1'
    )
    clear(job(notes, {"agent": agent, "member": member}))
    assert [" ".join(line.split()[:2]) for line in lines(notes)] == [
        "agent clear",
        "member look",
        "member drain",
        "member look",
        "agent delete",
    ]


def test_server_gets_the_agents_secret_too_and_neither_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A further server also gets the secret of the agents, because agents may join through it. An
    agent does not get this secret, even if the server's script prints it. No secret is printed.
    """
    member = SCRIPTS["member"].replace("done=yes", "agent_secret=hunter3\\ndone=yes")
    agent = SCRIPTS["agent"].replace("$1 ", "$1 ${AGENT_SECRET:-} ")
    for role, secret in (("server", "hunter3"), ("agent", "")):
        notes = tmp_path / role
        join(replace(job(notes, {"member": member, "agent": agent}), role=role))
        assert lines(notes)[2] == f"agent create {secret} hunter2 a/b "
    assert "hunter" not in "".join(capfd.readouterr())


def test_server_leaves_etcd_before_its_k3s_goes_and_does_not_come_back(tmp_path: Path) -> None:
    """A server leaves in the order: its pods end, systemd may not start its k3s again, etcd lets it
    go, its k3s is removed, its Node is deleted. If systemd started it after it has left etcd, it
    would join anew.
    """
    notes = tmp_path / "notes"
    leave(replace(job(notes), role="server"))
    assert [line.split()[:2] for line in lines(notes)] == [
        ["member", "drain"],
        ["agent", "retire"],
        ["member", "leave"],
        ["agent", "delete"],
        ["member", "forget"],
    ]


@pytest.mark.parametrize("role", ["agent", "server"])
def test_machine_that_may_not_leave_keeps_its_k3s(tmp_path: Path, role: str) -> None:
    """A machine keeps its k3s if the first step, `drain`, refuses to let it leave. It does so for a
    server without which etcd would have no majority.
    """
    notes = tmp_path / "notes"
    member = SCRIPTS["member"] + '\n[ "$1" != drain ] || { echo "cannot leave" >&2; exit 1; }'
    with pytest.raises(StepError, match="cannot leave"):
        leave(replace(job(notes, {"member": member}), role=role))
    assert lines(notes) == ["member drain "]


def test_drained_machine_that_stays_is_told(tmp_path: Path) -> None:
    """If a step fails after the drain, the error says that the Node takes no new pods and how to
    uncordon it. Without a server there was no drain, and the error does not mention it.
    """
    agent = 'echo "k3s is busy" >&2; exit 1'
    left = job(tmp_path / "notes", {"agent": agent})
    with_name = {**left.variables, "agent": {**left.variables["agent"], "NODE": "gpu2"}}
    with pytest.raises(StepError) as told:
        leave(replace(left, variables=with_name))
    said = str(told.value)
    assert said.startswith("k3s is busy\nNode gpu2 is drained and takes no new pods until it has")
    assert said.endswith("kubectl uncordon gpu2")
    with pytest.raises(StepError) as told:
        leave(job(tmp_path / "notes", {"agent": agent}, server=True))
    assert str(told.value) == "k3s is busy\n"


@pytest.mark.parametrize(
    ("server", "gone", "steps"),
    [
        (False, False, ["member drain ", "agent delete  ", "member forget "]),
        (False, True, ["member forget "]),
        (True, False, ["agent delete  "]),
        (True, True, []),
    ],
)
def test_who_is_gone_is_not_asked_when_a_machine_leaves(
    tmp_path: Path, server: bool, gone: bool, steps: list[str]
) -> None:
    notes = tmp_path / "notes"
    leave(job(notes, server=server, gone=gone))
    assert lines(notes) == steps


def test_machine_that_is_gone_is_forgotten_and_a_lost_server_not_asked(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    join(job(notes, server=True))
    assert lines(notes) == []
    join(job(notes, gone=True))
    assert lines(notes) == ["member forget "]


def test_node_that_does_not_come_up_is_explained_by_the_log_of_its_machine(tmp_path: Path) -> None:
    member = SCRIPTS["member"] + '\n[ "$1" != await ] || { echo "not Ready" >&2; exit 1; }'
    look = SCRIPTS["look"] + '\n[ "$1" != log ] || echo "Node password rejected"'
    with pytest.raises(StepError) as error:
        join(job(tmp_path / "notes", {"member": member, "look": look}))
    assert "not Ready\nthe last log lines of k3s on the machine:" in str(error.value)
    assert "Node password rejected" in str(error.value)


def test_failed_step_never_shows_the_token(tmp_path: Path) -> None:
    """The error of a failed `join` does not contain the token, which the server's script prints
    before it may fail.
    """
    member = SCRIPTS["member"] + '\n[ "$1" != join ] || { echo "the reason" >&2; exit 1; }'
    with pytest.raises(StepError) as error:
        join(job(tmp_path / "notes", {"member": member}))
    assert str(error.value) == "the reason\n"


@pytest.mark.parametrize(("step", "has_left_the_list"), [(join, False), (leave, True)])
def test_way_to_a_lost_machine_fits_the_list(
    tmp_path: Path, step: Callable[[Job], None], has_left_the_list: bool
) -> None:
    """The error about a machine that cannot be reached says how to mark it as lost. If it is to
    leave, its item may not be in `nodes` any more, or may be another machine's, so the user has to
    put it back.
    """
    with pytest.raises(StepError) as error:
        step(with_lost_machine(tmp_path))
    said = str(error.value)
    assert "127.0.0.1 cannot be reached. Try again when it can be. If it is lost for good" in said
    back = "put it back into nodes as it was (name: gpu2, address: 127.0.0.1) with `gone: true`"
    assert (back in said) is has_left_the_list
    assert ("set `gone: true` in its item of nodes" in said) is not has_left_the_list


def with_lost_machine(folder: Path, *, server: bool = False) -> Job:
    """Return a job for a machine at which no SSH server answers. `server` says that the server is
    lost.
    """
    there = job(folder / "notes", server=server)
    away = {"host": "127.0.0.1", "port": 1, "user": "me", "host_key": KEY, "private_key": None}
    return replace(
        there,
        machine={**there.machine, "ssh": {**away, "jump": None}},
        variables={**there.variables, "agent": {**there.variables["agent"], "NODE": "gpu2"}},
    )


@pytest.mark.parametrize("step", [leave, clear, unprepare])
def test_machine_that_is_lost_with_the_server_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Callable[[Job], None]
) -> None:
    """A machine that is lost together with the server is forgotten by `pulumi destroy` if the user
    has set the variable. Marking it in `nodes` would not help, because `pulumi up` would have to
    make the cluster again on a lost host.
    """
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(StepError) as error:
        step(with_lost_machine(tmp_path, server=True))
    said = str(error.value)
    assert f"lost for good, let the stack forget it: {VARIABLE}=true pulumi destroy" in said
    assert "nodes" not in said
    monkeypatch.setenv(VARIABLE, "true")
    with pytest.raises(ForgottenError, match=r"cannot be reached\. .* is forgotten"):
        step(with_lost_machine(tmp_path, server=True))
    with pytest.raises(StepError, match="put it back into nodes"):  # the cluster still exists
        step(with_lost_machine(tmp_path))


def test_answer_that_is_cut_off_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="not complete"):
        join(job(tmp_path / "notes", {"look": "echo new_machine=no"}))
