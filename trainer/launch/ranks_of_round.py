"""Runs the ranks of this node in one round, from their start to their end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainer.events.event import Name
from trainer.events.log import EventLog
from trainer.events.writers import shortened
from trainer.launch.exit_codes import ExitCode, FatalError
from trainer.launch.goodput_line import GoodputLine
from trainer.launch.hang_watch import HangWatch
from trainer.launch.local_ranks import LocalRanks
from trainer.launch.membership import Round, RoundMember
from trainer.launch.memory_kills import MemoryKills
from trainer.launch.mirror import MirrorProcess
from trainer.launch.node import Node
from trainer.launch.pod_failures import PodFailures
from trainer.launch.rank_environment import rank_environment
from trainer.launch.stall import StallTeller
from trainer.launch.status_files import ExitReport, StatusFiles
from trainer.launch.stop_request import StopRequest
from trainer.launch.work import Work
from trainer.monitoring.vitals import State, Vitals
from trainer.transport.watch import TransportWatch

_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class NodeParts:
    """The parts of a node's entrypoint that every round uses.

    Args:
        in_common: The environment variables that all ranks of this node have in common.
    """

    node: Node
    work: Work
    status: StatusFiles
    stop: StopRequest
    say: Callable[[str], None]
    events: EventLog
    stall: StallTeller
    vitals: Vitals
    transport: TransportWatch
    goodput: GoodputLine
    mirror: MirrorProcess
    pod_failures: PodFailures
    in_common: Mapping[str, str]


def run_ranks(parts: NodeParts, here: Round, member: RoundMember | None) -> ExitReport:
    """Start the ranks of this node, and return how they ended.

    `member`: this node's connection to node 0; None in a run with a single node.

    Raises:
        OSError, RetryableError: the ranks cannot be started now.
    """
    node = parts.node
    parts.status.clear()
    some = f"{len(here.nodes)} of " if len(here.nodes) < node.nnodes else ""
    parts.say(
        f"round {here.number}: {some}{node.nnodes} node(s) x {node.local_ranks} rank(s), "
        f"store at {here.master_address}:{here.master_port}"
    )
    environments = [_environment(parts, here, rank) for rank in range(node.local_ranks)]
    parts.pod_failures.round_begins()
    parts.events.write(Name.ROUND_BEGUN, round=here.number, ranks=here.world_size)
    memory_kills = MemoryKills()  # before a rank can be killed
    try:
        ranks = parts.work.start(here, environments)
    except FatalError as error:
        return ExitReport(ExitCode.FATAL, str(error))
    parts.events.write(Name.RANKS_STARTED)
    parts.vitals.enter(State.STARTING)
    parts.transport.begins(here, environments)
    return _RunningRanks(parts, here, member, ranks, memory_kills).until_they_end()


def _environment(parts: NodeParts, here: Round, local_rank: int) -> dict[str, str]:
    environment = rank_environment(parts.in_common, parts.node, here, local_rank)
    return {**environment, **parts.transport.variables(environment, local_rank)}


class _RunningRanks:
    """The ranks of this node in one round, and what was seen of them and of other nodes.

    Each of these happens at most once in a round: a request to stop is passed on to the ranks, all
    ranks have stepped, other nodes hear that a rank has failed, and the ranks are ended.
    """

    def __init__(
        self,
        parts: NodeParts,
        here: Round,
        member: RoundMember | None,
        ranks: LocalRanks,
        memory_kills: MemoryKills,
    ) -> None:
        self._parts, self._member, self._ranks = parts, member, ranks
        self._memory_kills = memory_kills
        self._watch = HangWatch(
            parts.node.rank, here.first_rank, ranks.pids(), parts.status, here.world_size == 1
        )
        self._is_stopping = self._have_stepped = self._is_failing = self._is_ending = False
        self._stopped: ExitReport | None = None  # a stop was requested before the first step
        self._lost: ExitReport | None = None  # another node ends the round
        self._overdue: ExitReport | None = None  # a rank of this node waits for too long
        self._refused: ExitReport | None = None  # this node's own reason to end the run

    def until_they_end(self) -> ExitReport:
        parts, ranks = self._parts, self._ranks
        while ranks.is_running():
            parts.vitals.see_ranks(ranks.exit_codes())
            self._pass_a_stop_on()
            if parts.stop.requested:  # The next pod may start while these ranks save.
                parts.pod_failures.ended()
            self._look_for_progress()
            self._look_for_failures()
            if self._is_ending:
                ranks.end_soon()
            ranks.wait(_POLL_SECONDS)
        if not self._has_failed():  # they ended before the loop checked them again
            ranks.say_who_was_killed()
        ranks.close()
        report = self._report()
        parts.vitals.round_ended(report.reason)
        parts.transport.ended()
        parts.events.write(
            Name.ROUND_ENDED, how=report.code.name.lower(), reason=shortened(report.reason)
        )
        return report

    def _has_failed(self) -> bool:
        reasons = (self._stopped, self._lost, self._overdue, self._refused)
        return self._is_failing or any(reason is not None for reason in reasons)

    def _pass_a_stop_on(self) -> None:
        """Let the ranks save and end if this pod has to end, or if the nodes gather again.

        Before the first step, ranks of our trainer have nothing to save, and are ended at once. The
        other nodes hear of it first, because they would take lost ranks for a failure.
        """
        member = self._member
        regroups_for = member.regroups_for if member is not None else ""
        if self._is_stopping or not (self._parts.stop.requested or regroups_for):
            return
        work = self._parts.work
        if member is not None and work.is_our_trainer and not (work.poll() or self._has_failed()):
            self._stopped = ExitReport(ExitCode.PREEMPTED, "asked to stop before its first step")
            member.report_stopped(self._stopped)
            return
        if regroups_for:
            self._parts.say(f"{regroups_for}: all save, and start again together")
        self._parts.events.write(Name.STOP_REQUESTED)
        self._ranks.request_stop()
        self._is_stopping = True

    def _look_for_progress(self) -> None:
        """Report that all ranks have stepped, and which ranks stand still."""
        parts, member = self._parts, self._member
        has_stepped = parts.work.poll()
        if has_stepped and not self._have_stepped:
            parts.status.mark_ready()
            parts.vitals.enter(State.TRAINING)
            self._have_stepped = True
            if member is not None:
                member.report_stepped()
        if not self._is_ending and (states := self._watch.poll(time.monotonic())):
            if member is not None:
                member.report_stalled(states, self._watch.still_seconds)
            else:
                parts.stall.tell(states, self._watch.still_seconds)
        parts.goodput.poll()
        parts.mirror.poll()
        self._refused = parts.transport.poll(has_stepped) or self._refused

    def _look_for_failures(self) -> None:
        """End the ranks, and tell node 0, if a rank or another node has failed.

        It counts as a failure too if a rank has been in one collective, or a run's only rank in one
        step, for too long.
        """
        member = self._member
        if member is not None:
            self._lost = member.poll_lost()
        if not self._has_failed() and self._ranks.has_failed():
            self._is_failing = True
            self._ranks.say_who_was_killed()
            if member is not None:
                member.report_failing()
        if not self._has_failed() and (why := self._watch.overdue(time.monotonic())):
            self._overdue = ExitReport(ExitCode.RETRYABLE, why)
        own = self._refused or self._overdue
        if own is not None and not self._is_ending and member is not None:
            member.report_failing()
        if self._has_failed() and not self._is_ending:
            self._is_ending = True
            self._parts.work.ends()
            if self._stopped is None:
                self._parts.events.write(Name.FAILING)

    def _report(self) -> ExitReport:
        report = self._parts.work.report()
        self._parts.status.clear()
        if self._stopped is not None and report.code == ExitCode.RETRYABLE:
            report = self._stopped
        if self._lost is None and report.code == ExitCode.RETRYABLE and self._member is not None:
            # The ranks may end before this node has read that another node was asked to stop.
            last = self._member.poll_lost()
            self._lost = last if last is not None and last.code == ExitCode.PREEMPTED else None
        if self._lost is not None and report.code != ExitCode.FATAL:
            report = self._lost
        if self._overdue is not None and report.code == ExitCode.RETRYABLE:
            report = self._overdue
        if self._refused is not None and report.code != ExitCode.DONE:
            report = self._refused
        return self._memory_kills.explain(report)
