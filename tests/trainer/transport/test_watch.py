"""When a node reads what NCCL has printed for its ranks, and what it then says, from files of the
test's own folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.transport.recorded import RECORDED
from trainer.config import RunConfig
from trainer.events.event import Name
from trainer.launch.exit_codes import ExitCode
from trainer.launch.membership import Round
from trainer.launch.node import Node
from trainer.launch.status_files import ExitReport, StatusFiles
from trainer.monitoring.text import as_text
from trainer.transport import watch as module
from trainer.transport.watch import TransportWatch

SOCKETS = RECORDED["EFA is not in the pod, so sockets"][0]
IB = RECORDED["InfiniBand with GPUDirect"][0]
LONG = 3600.0


class Events:
    """A stand-in for the event log that keeps what is noted."""

    def __init__(self) -> None:
        self.noted = list[tuple[str, dict[str, Any]]]()

    def write(self, name: Name, **values: Any) -> None:
        self.noted.append((str(name), values))


class Pod:
    """A node's watch, its clock and what it says.

    `more` has the pod's `environment` and settings of the run. `ends` has the reports with which
    the watch would end the run.
    """

    def __init__(self, folder: Path, nodes: int = 2, ranks: int = 2, **more: Any) -> None:
        environment = more.pop("environment", {})
        mapping = {"data_root": str(folder), **more}
        if "program" not in mapping:
            mapping["dataset"] = {"file": "/text"}
        self.status = StatusFiles(folder / "status")
        self.events: Any = Events()
        self.seconds, self.said = 0.0, list[str]()
        self.ends = list[ExitReport]()
        self.node = Node(nodes, ranks, 1 if nodes > 1 else 0, "node-0", 29500)
        self.watch = TransportWatch(
            RunConfig.from_mapping(mapping),
            self.node,
            self.status,
            self.events,
            self.said.append,
            lambda: self.seconds,
        )
        first = ranks if nodes > 1 else 0
        self.here = Round(1, "node-0", 29501, tuple(range(nodes)), first, nodes * ranks, ranks, "")
        self.environments = [
            {**environment, **self.watch.variables(environment, rank)} for rank in range(ranks)
        ]
        self.watch.begins(self.here, self.environments)

    def prints(self, local_rank: int, lines: tuple[str, ...], process: int = 7) -> None:
        """Write these lines into the file that a rank's variable names, as NCCL does."""
        name = self.environments[local_rank]["NCCL_DEBUG_FILE"].replace("%p", str(process))
        Path(name).write_text("\n".join(lines) + "\n")

    def after(self, seconds: float, has_stepped: bool = True) -> None:
        """Turn the clock on by `seconds`, and let the watch look once in each second."""
        for _ in range(int(seconds)):
            self.seconds += 1
            if (why := self.watch.poll(has_stepped)) is not None:
                self.ends.append(why)

    def page(self) -> str:
        return as_text(self.watch.samples(), {})


NCCL: dict[str, Any] = {"train": {"backend": "nccl"}}
ASKED: dict[str, Any] = {"environment": {"DISTTRAIN_TRANSPORTS": "efa"}}


def test_fallback_is_said_noted_and_offered_to_prometheus(tmp_path: Path) -> None:
    """A fallback to sockets is reported after the first step in the log, as an event and as
    metrics.
    """
    pod = Pod(tmp_path, **NCCL, **ASKED)
    for rank in range(2):
        pod.prints(rank, SOCKETS)
    pod.after(3, has_stepped=False)
    assert pod.said == []
    pod.after(1)
    (said,) = pod.said
    assert said.startswith("warning: transport not as asked: rank 2, 3 by NCCL over TCP sockets")
    assert "(1) the pod has no EFA device" in said
    assert 'disttrain_transport_as_asked{asked="efa"} 0' in pod.page()
    labels = 'rank="2",library="nccl",transport="socket",device="eth0",gpu_direct="no",inside=""'
    assert f"disttrain_transport_info{{{labels}}} 1" in pod.page()
    ((name, values),) = pod.events.noted
    assert name == "transport"
    assert values == {
        "rank": "2,3",
        "transport": "socket",
        "device": "eth0",
        "gpu_direct": "no",
        "asked": "efa",
        "as_asked": False,
    }


STOP: dict[str, Any] = {"train": {"backend": "nccl", "transport_policy": "stop"}}


@pytest.mark.parametrize("has_stepped", [True, False])
def test_policy_stop_ends_the_run_within_a_minute(tmp_path: Path, *, has_stepped: bool) -> None:
    """With the policy stop, a fallback ends the run within a minute, with three likely causes. The
    reason is not said a second time as a warning.
    """
    pod = Pod(tmp_path, **STOP, **ASKED)
    for rank in range(2):
        pod.prints(rank, SOCKETS)
    pod.after(60, has_stepped)
    (why,) = pod.ends
    assert (why.code, pod.said) == (ExitCode.FATAL, [])
    assert why.reason.startswith("transport not as asked: rank 2, 3 by NCCL over TCP sockets")
    assert all(f"({number}) " in why.reason for number in (1, 2, 3))
    assert why.reason.endswith("The run ends because train.transport_policy is stop")
    ((name, values),) = pod.events.noted
    assert (name, values["as_asked"]) == ("transport", False)


def test_policy_stop_lets_what_was_asked_for_go_on(tmp_path: Path) -> None:
    """With the policy stop, a run goes on that has what was asked for, that asks for nothing, of
    which nothing is known, or that uses no network.
    """
    for place, environment, lines, nodes in (
        ("as asked", {"DISTTRAIN_TRANSPORTS": "socket"}, SOCKETS, 2),
        ("not asked", {}, SOCKETS, 2),
        ("unknown", {"DISTTRAIN_TRANSPORTS": "efa"}, (), 2),
        ("inside", {"DISTTRAIN_TRANSPORTS": "efa"}, RECORDED["one machine with NVLink"][0], 1),
    ):
        pod = Pod(tmp_path / place, nodes=nodes, **STOP, environment=environment)
        for rank in range(2):
            pod.prints(rank, lines)
        pod.after(LONG)
        assert pod.ends == [], place


@pytest.mark.parametrize("policy", ["warn", "stop"])
def test_one_rank_without_lines_keeps_no_bad_news_back(tmp_path: Path, policy: str) -> None:
    """A fallback of one rank is reported within a minute although NCCL has written nothing for
    another rank, which may hang because of its network.
    """
    for has_stepped in (False, True):
        train = {"backend": "nccl", "transport_policy": policy}
        pod = Pod(tmp_path / str(has_stepped), train=train, **ASKED)
        pod.prints(0, SOCKETS)
        pod.after(30, has_stepped=False)
        pod.after(29, has_stepped)
        (said,) = [*pod.said, *(why.reason for why in pod.ends)]
        assert "transport not as asked: rank 2 by NCCL over TCP sockets" in said


def test_a_warning_is_repeated_and_good_news_are_not(tmp_path: Path) -> None:
    """A warning is repeated from time to time, and good news is not. `./disttrain status` reads
    only the last lines of a pod.
    """
    for asked, times in (("efa", 1 + LONG // module.REPEAT_SECONDS), ("socket", 1)):
        pod = Pod(tmp_path, ranks=1, **NCCL, environment={"DISTTRAIN_TRANSPORTS": asked})
        pod.prints(0, SOCKETS)
        pod.after(LONG + 5)
        assert len(pod.said) == times, asked
        assert len(pod.events.noted) == 1


def test_lines_that_come_late_are_waited_for(tmp_path: Path) -> None:
    """No message comes until the lines of all ranks are there, if they come within the limit."""
    pod = Pod(tmp_path, **NCCL, **ASKED)
    pod.prints(0, IB)
    pod.after(20)
    assert pod.said == []
    pod.prints(1, IB)
    pod.after(module.BETWEEN_SECONDS)
    assert len(pod.said) == 1


def test_what_nccl_has_not_said_is_not_known(tmp_path: Path) -> None:
    """If NCCL writes nothing, the message says that the transport is not known, and the metric that
    compares it with the one asked for is left out.
    """
    pod = Pod(tmp_path, **NCCL, **ASKED)
    pod.prints(0, IB)
    pod.after(LONG)
    assert pod.said[0].startswith("warning: transport not as asked: rank 2")
    pod = Pod(tmp_path / "none", **NCCL, **ASKED)
    pod.after(LONG)
    assert pod.said == ["transport not known: rank 2, 3: NCCL has written no line that says it"]
    assert 'transport="unknown"' in pod.page()
    assert "as_asked" not in pod.page()


def test_a_run_without_a_first_step_is_told_within_a_minute(tmp_path: Path) -> None:
    """A fallback is reported within a minute although the run has made no step, as it may hang
    because of its network. The first step does not repeat the message.
    """
    pod = Pod(tmp_path, **NCCL, **ASKED)
    for rank in range(2):
        pod.prints(rank, SOCKETS)
    pod.after(59, has_stepped=False)
    assert len(pod.said) == 1
    pod.after(59)
    assert len(pod.said) == 1, "the first step brings nothing new"


def test_another_round_may_have_another_transport(tmp_path: Path) -> None:
    """The transport is read again in each round, and no message comes about a round that
    has ended.
    """
    pod = Pod(tmp_path, ranks=1, **NCCL, **ASKED)
    pod.prints(0, SOCKETS)
    pod.after(1)
    pod.watch.ended()
    assert pod.page() == ""
    pod.after(LONG, has_stepped=False)
    assert len(pod.said) == 1
    pod.status.clear()
    pod.watch.begins(pod.here, pod.environments)
    pod.prints(0, RECORDED["EFA with GPUDirect"][0])
    pod.after(1)
    assert pod.said[-1].startswith("transport as asked: rank 1 by NCCL over EFA")


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"])
def test_variables_of_the_users_own_stay_as_they_are(name: str, tmp_path: Path) -> None:
    """If the user sets a variable of NCCL's debugging, no variable is added, and the message says
    that the transport is not known.
    """
    pod = Pod(tmp_path, **NCCL, environment={name: "mine"})
    assert pod.environments == [{name: "mine"}] * 2
    pod.after(LONG)
    assert pod.said == [
        "transport not known: NCCL_DEBUG is set by podEnvironment or the image, so NCCL prints as "
        "that says; ./disttrain verify reads the log"
    ]


def test_gloo_is_tcp_on_its_interface_and_gets_no_variables(tmp_path: Path) -> None:
    """With gloo, the transport is TCP on the interface of its variable, and no variable is added.
    Ranks of a single machine give no message.
    """
    environment = {"GLOO_SOCKET_IFNAME": "eth0", "DISTTRAIN_TRANSPORTS": "socket"}
    pod = Pod(tmp_path, train={"backend": "gloo"}, environment=environment)
    assert pod.environments[0] == environment
    pod.after(1)
    assert pod.said == ["transport as asked: rank 2, 3 by gloo over TCP sockets (eth0)"]
    assert 'disttrain_transport_as_asked{asked="socket"} 1' in pod.page()
    alone = Pod(tmp_path, nodes=1, train={"backend": "gloo"}, environment=environment)
    alone.after(LONG)
    assert alone.said == [], "nobody could want to read it"
    assert 'rank="1",library="gloo",transport="none"' in alone.page()
    assert "as_asked" not in alone.page()


def test_gloo_that_has_not_connected_is_not_as_asked(tmp_path: Path) -> None:
    """Before the first step nothing shows that the ranks of gloo reach each other, so nothing says
    that they do. If the profile asks for another network than TCP, that is wrong before it, too.
    """
    environment = {"GLOO_SOCKET_IFNAME": "net1", "DISTTRAIN_TRANSPORTS": "socket"}
    pod = Pod(tmp_path, train={"backend": "gloo"}, environment=environment)
    pod.after(LONG, has_stepped=False)
    assert (pod.said, pod.page()) == ([], "")
    pod.after(1)
    assert pod.said == ["transport as asked: rank 2, 3 by gloo over TCP sockets (net1)"]
    wrong = Pod(tmp_path, environment={"DISTTRAIN_TRANSPORTS": "ib"})
    wrong.after(60, has_stepped=False)
    assert wrong.said[0].startswith("warning: transport not as asked: rank 2, 3 by gloo")


def test_backend_auto_without_nccls_files_is_gloo(tmp_path: Path) -> None:
    """With the backend auto, a rank for which NCCL has written no file uses gloo."""
    pod = Pod(tmp_path, environment={"DISTTRAIN_TRANSPORTS": "ib"})
    assert pod.environments[0]["NCCL_DEBUG"] == "INFO"
    pod.after(1)
    assert "by gloo over TCP sockets" in pod.said[0]


def test_one_rank_has_nobody_to_reach(tmp_path: Path) -> None:
    """A run of one rank gives neither a message nor a metric."""
    pod = Pod(tmp_path, nodes=1, ranks=1, **NCCL, **ASKED)
    pod.after(LONG)
    assert (pod.said, pod.page()) == ([], "")


def test_a_program_that_starts_its_ranks_is_read_by_process(tmp_path: Path) -> None:
    """For a program that starts its ranks itself, the files of all processes of the node are read,
    and the ranks come from NCCL's own lines.
    """
    program = {"command": ["torchrun"], "per": "node"}
    pod = Pod(tmp_path, program=program, **ASKED)
    group = "pod-0:{0}:9 [0] NCCL INFO comm 0x1 rank {1} nRanks 4 nNodes 2 localRanks 2"
    for process, rank in ((70, 3), (71, 2)):
        pod.prints(0, (*SOCKETS[-2:], group.format(process, rank)), process)
    pod.prints(0, ("NCCL version 2.26.2+cuda12.6",), 72)
    pod.after(1)
    assert pod.said[0].startswith("warning: transport not as asked: rank 2, 3 by NCCL over TCP")


def test_a_program_without_nccl_is_left_in_peace(tmp_path: Path) -> None:
    """A program for which NCCL writes nothing gives no message, metric or event."""
    pod = Pod(tmp_path, program={"command": ["mine"]}, **ASKED)
    pod.after(LONG)
    assert (pod.said, pod.page(), pod.events.noted) == ([], "", [])


def test_files_that_cannot_be_read_cost_the_answer_alone(tmp_path: Path) -> None:
    """NCCL's files that cannot be read give the message that the transport is not known, and the
    run goes on.
    """
    pod = Pod(tmp_path, **NCCL, **ASKED)
    Path(pod.environments[0]["NCCL_DEBUG_FILE"].replace("%p", "7")).mkdir()
    pod.after(LONG)
    (said,) = pod.said
    assert said.startswith("transport not known: NCCL's lines cannot be read: ")
