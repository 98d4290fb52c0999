"""A platform moves from the machine on which Pulumi runs to a machine behind SSH, and back.

The tests use preview, up and destroy, as people type them. Both machines are test hosts with a k3s
of their own, so a test can see what is left on one when the other has the cluster.
"""

import re
from collections.abc import Iterator

import pytest

from sandbox.stack import PulumiFailedError, Stack
from tests.node.lab import DATA_ROOT, UP, Lab, counts, failure, rewritten
from tests.node.own_machine import HERE, THERE, OwnMachine

THEIRS = "organization/disttrain/multipod"
CHECKPOINT = f"{DATA_ROOT}/runs/checkpoint"


@pytest.fixture
def own(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnMachine]:
    """Yield a machine on which Pulumi runs. It must be in its first state after the test."""
    machine = OwnMachine(tmp_path_factory.mktemp("own"), lab)
    try:
        yield machine
        assert machine.lab.differences() == [], "the test left its own machine changed"
    finally:
        machine.close()


def has_cluster(lab: Lab) -> bool:
    """Return whether k3s runs there, with all that a platform puts into it."""
    active = lab.host.try_shell("systemctl is-active k3s").stdout.strip() == "active"
    return active and len(lab.objects()) == 5


def texts(lab: Lab) -> dict[str, str]:
    """Return the text of each file in the data folder that a test has written, by its path."""
    found = lab.host.shell(f"grep -r '' {DATA_ROOT}/runs 2>/dev/null || true").splitlines()
    return dict(line.split(":", 1) for line in found)


def is_refused_while_others_run(own: OwnMachine, stack: Stack, left: Lab) -> None:
    """Check that `up` refuses the move while another stack has a run, before it changes any
    machine.
    """
    left.put_run("theirs", THEIRS, "run-theirs")
    hosts = (own.lab.host, own.other.host)
    state, objects = own.lab.resources(stack), left.objects()
    before = [host.files() for host in hosts]
    said = re.sub(r"\s+", " ", failure(stack))
    assert "host or sshHost: it names another host now" in said
    assert f"pulumi destroy --stack {THEIRS}" in said
    assert (own.lab.resources(stack), left.objects()) == (state, objects)
    for host, files in zip(hosts, before, strict=True):
        assert rewritten(files, host.files()) == []
    left.take_run("run-theirs")


def test_cluster_moves_between_local_and_ssh_and_leaves_nothing(own: OwnMachine) -> None:
    """When `host` or `sshHost` changes, `up` removes k3s from the former machine, and leaves its
    data.

    `destroy` with `dataOnDestroy: purge` removes only the data of the machine with the cluster.
    """
    here, there = own.lab, own.other
    stack = own.stack(dataOnDestroy="purge", purgeConfirmed=DATA_ROOT)
    assert UP in stack.up()
    assert has_cluster(here)
    assert there.differences() == []
    here.host.shell(f"echo of-here >{CHECKPOINT}")

    own.move_to(stack, THERE)
    is_refused_while_others_run(own, stack, here)
    shown = stack.preview()
    for step in (
        r"\+ .*command:remote:Command +cluster-k3s",
        r"- .*command:local:Command +cluster-k3s",
    ):
        assert re.search(step, shown), shown
    assert has_cluster(here), "a preview changes nothing"
    assert UP in stack.up()
    assert has_cluster(there)
    assert here.differences() == []
    assert texts(here) == {CHECKPOINT: "of-here"}
    assert set(counts(again := stack.up())) == {"unchanged"}, again
    there.host.shell(f"echo of-there >{CHECKPOINT}")

    own.move_to(stack)
    is_refused_while_others_run(own, stack, there)
    stack.preview()
    assert has_cluster(there)
    assert UP in stack.up()
    assert has_cluster(here)
    assert there.differences() == []
    assert texts(here) == {CHECKPOINT: "of-here"}
    assert texts(there) == {CHECKPOINT: "of-there"}
    assert set(counts(again := stack.up())) == {"unchanged"}, again

    stack.destroy()
    assert here.resources(stack) == []
    assert here.differences() == there.differences() == []
    assert not here.host.exists(DATA_ROOT)
    assert texts(there) == {CHECKPOINT: "of-there"}


def test_cluster_does_not_move_to_the_machine_that_it_is_on(own: OwnMachine) -> None:
    """`up` and preview refuse `host: ssh` if `sshHost` is the machine on which Pulumi runs.

    Otherwise Pulumi's engine would take it for another machine, and remove k3s from it at the end.
    """
    here = own.lab
    stack = own.stack()
    stack.up()
    settings = stack.settings_file.read_text()
    state, objects, files = here.resources(stack), here.objects(), here.host.files()
    own.move_to(stack, HERE)
    for command in (stack.preview, stack.up):
        with pytest.raises(PulumiFailedError) as refusal:
            command()
        said = re.sub(r"\s+", " ", str(refusal.value))
        assert f"host: 'ssh' cannot be used: sshHost '{HERE}' leads to the machine on" in said
        assert "pulumi config set host local" in said
        assert (here.resources(stack), here.objects()) == (state, objects)
        assert rewritten(files, here.host.files()) == []
    stack.settings_file.write_text(settings)
    assert set(counts(again := stack.up())) == {"unchanged"}, again
    stack.destroy()


def test_lost_host_is_forgotten_after_a_move_that_failed(own: OwnMachine) -> None:
    """A stack can forget a lost host (`hostGone`) also after a failed move to another machine.

    The failed move has already begun on that other machine, and nothing of it is left in the end.
    """
    here, there = own.lab, own.other
    stack = own.stack()
    own.move_to(stack, THERE)
    stack.up()
    own.cut(there)
    try:
        own.move_to(stack)
        failure(stack)
        own.move_to(stack, THERE)
        stack.set("hostGone", "true")
        stack.up()
        stack.destroy()
        assert here.resources(stack) == []
        assert here.differences() == []
    finally:
        own.mend(there)
    there.remove_by_hand()
