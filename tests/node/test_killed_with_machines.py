"""`pulumi up` is killed in each phase in which a machine joins or leaves; the next one finishes it.

What a killed `up` has begun on a machine goes on there for a while, as after a cut line.
"""

from collections.abc import Callable

import pytest

from sandbox.stack import Stack
from tests.node.lab import background_up, counts, wait_for
from tests.node.lan import NAMES, Lan
from tests.node.members import SERVER, set_nodes

pytestmark = pytest.mark.stand_in("its agents, which need no other machine's container runtime")
TWO, THREE = NAMES
CALLS = "/lab/calls"  # the calls of the stand-in of k3s on each host

# The phases in their order, and the sign that each has begun: a shell command that succeeds on
# the machine, or words of a call of kubectl at the server.
ON_MACHINE, AT_SERVER = "machine", "server"
JOINING = {
    "k3s is downloaded": (ON_MACHINE, "test -s /var/lib/rancher/disttrain-scratch/k3s"),
    "k3s is there": (ON_MACHINE, "test -e /usr/local/bin/k3s"),
    "the token is read": (AT_SERVER, f"get pods .*nodeName={TWO}"),
    "the token is there": (ON_MACHINE, "test -e /etc/rancher/k3s/disttrain-token"),
    "k3s runs": (ON_MACHINE, "systemctl is-active --quiet k3s-agent"),
    "the node gets its labels": (AT_SERVER, "apply --server-side"),
}
SERVER_JOINING = {
    "k3s is there": (ON_MACHINE, "test -e /usr/local/bin/k3s"),
    "the token is there": (ON_MACHINE, "test -e /etc/rancher/k3s/disttrain-token"),
    "k3s runs": (ON_MACHINE, "systemctl is-active --quiet k3s"),
    "the node gets its labels": (AT_SERVER, "apply --server-side"),
}
LEAVING = {
    "its pods end": (AT_SERVER, f"drain {TWO}"),
    "k3s is removed": (ON_MACHINE, f"grep -q uninstall {CALLS}"),
    "the node is deleted": (AT_SERVER, f"delete node {TWO}"),
    "its password is deleted": (AT_SERVER, f"delete secret {TWO}"),
}


def begun(lan: Lan, phase: tuple[str, str]) -> Callable[[], bool]:
    """Return a function that tells whether the phase has begun."""
    where, sign = phase
    host = lan.lab.host if where == AT_SERVER else lan.machines[TWO].host
    command = f"grep -q -e '{sign}' {CALLS}" if where == AT_SERVER else sign
    return lambda: host.try_shell(command).returncode == 0


def kill_up(lan: Lan, stack: Stack, what: str, phase: tuple[str, str]) -> None:
    """Start `pulumi up`, and kill it when a phase has begun, unless it has ended by then."""
    for host in (lan.lab.host, lan.machines[TWO].host):
        host.shell(f": >{CALLS}")
    has_begun = begun(lan, phase)
    with background_up(stack) as up:
        wait_for(what, lambda: has_begun() or up.poll() is not None)


class Story:
    """Two machines beside the first one. One is in the cluster all the time and must not be
    restarted.
    """

    def __init__(self, lan: Lan) -> None:
        self.lan, self.machine, self.other = lan, lan.machines[TWO], lan.machines[THREE]
        self.stack = lan.stack(THREE)
        self.stack.up()
        self.started = self._started()

    def want(self, *names: str) -> None:
        """Write these machines into the settings, with a label that shows which node has joined."""
        set_nodes(self.stack, self.lan.settings(*names, labels={"rack": "a"}))

    def up(self, *names: str) -> None:
        """Run `up`: it must finish what was begun, and a second `up` must change nothing."""
        output = self.stack.up()
        assert sorted(self.lan.members()) == sorted([SERVER, *names]), output
        assert self.lan.passwords() == sorted(names), output
        again = self.stack.up()
        assert set(counts(again)) == {"unchanged"}, again
        assert self._started() == self.started

    def end(self) -> None:
        """Run `destroy`, and check that it leaves nothing on the first machine and on the other
        one.
        """
        self.stack.destroy()
        assert self.lan.lab.differences() == self.other.differences() == []

    def _started(self) -> str:
        return self.other.host.shell("systemctl show --property=MainPID --value k3s-agent")


@pytest.mark.timeout(1200)  # about twenty runs of `up`
def test_killed_up_is_finished_while_a_machine_joins(lan: Lan) -> None:
    """An `up` that was killed in any phase of a machine's joining is finished by the next `up`."""
    story = Story(lan)
    for what, phase in JOINING.items():
        story.want(THREE, TWO)
        lan.lab.mirror.slow(what == "k3s is downloaded")
        kill_up(lan, story.stack, what, phase)
        lan.lab.mirror.slow(False)
        story.up(TWO, THREE)
        assert lan.members()[TWO]["metadata"]["labels"]["rack"] == "a", what
        story.want(THREE)
        story.up(THREE)
        assert story.machine.differences() == [], what
    story.end()


@pytest.mark.parametrize("gone", ["the machine", "the stack"])
@pytest.mark.timeout(1200)  # two runs of `up` in each phase
def test_machine_that_has_joined_in_a_killed_up_can_go(lan: Lan, gone: str) -> None:
    """A machine that has joined in a killed `up` leaves when it is removed from `nodes`, or by
    `destroy`.

    Pulumi's engine does not know that the machine has joined. Nothing may be left on the machine,
    and no node of it in the cluster.
    """
    story = Story(lan)
    for what, phase in JOINING.items():
        story.want(THREE, TWO)
        kill_up(lan, story.stack, what, phase)
        if gone == "the machine":
            story.want(THREE)
            story.up(THREE)
        else:
            story.end()
            story = Story(lan)
        assert story.machine.differences() == [], what
    story.end()


@pytest.mark.timeout(1200)  # about fifteen runs of `up`
def test_killed_up_is_finished_while_a_machine_leaves(lan: Lan) -> None:
    """An `up` that was killed in any phase of a machine's leaving is finished by the next `up`."""
    story = Story(lan)
    for what, phase in LEAVING.items():
        story.want(THREE, TWO)
        story.up(TWO, THREE)
        story.want(THREE)
        kill_up(lan, story.stack, what, phase)
        story.up(THREE)
        assert story.machine.differences() == [], what
    story.end()


@pytest.mark.parametrize("after", ["up", "up without them", "destroy"])
@pytest.mark.timeout(1200)  # three runs of `up` in each phase
def test_killed_up_leaves_etcd_whole(lan: Lan, after: str) -> None:
    """After an `up` that was killed while servers join, etcd has exactly the wanted members.

    The next `up` or `destroy` finishes what the killed one has begun, or takes it back.
    """
    for what, phase in SERVER_JOINING.items():
        stack = lan.stack()
        stack.up()
        set_nodes(stack, lan.settings(*NAMES, role="server"))
        kill_up(lan, stack, what, phase)
        if after != "destroy":
            joined = NAMES if after == "up" else ()
            set_nodes(stack, lan.settings(*joined, role="server"))
            stack.up()
            assert lan.etcd() == dict.fromkeys((SERVER, *joined), True), what
            assert sorted(lan.members()) == sorted([SERVER, *joined]), what
            assert set(counts(stack.up())) == {"unchanged"}, what
        stack.destroy()
        assert lan.lab.differences() == [], what
        assert [machine.differences() for machine in lan.machines.values()] == [[], []], what
