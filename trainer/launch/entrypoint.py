"""The program of a training pod: it joins the other nodes, runs the ranks and restarts them.

When the run is finished, it ends, or it holds (keeps waiting) where Kubernetes would restart it.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time
import traceback
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainer.config import RunConfig, dump_config
from trainer.events.event import Name
from trainer.events.writers import entrypoint_events, pod_started, shortened
from trainer.launch.coordinator import Coordinator
from trainer.launch.exit_codes import ExitCode, FatalError, RetryableError
from trainer.launch.gathering import RoundRules
from trainer.launch.goodput_line import GoodputLine
from trainer.launch.hang_watch import HangWatch
from trainer.launch.lifeline import LIFELINE_VARIABLE
from trainer.launch.membership import Round, RoundMember, join
from trainer.launch.messages import RUN_KEY_VARIABLE, Hello
from trainer.launch.mirror import MirrorProcess
from trainer.launch.node import Node, interface_of, machine_id, node_from_environment
from trainer.launch.node_output import NodeOutput
from trainer.launch.own_trainer import OwnTrainer
from trainer.launch.pod_failures import REVISION_VARIABLE, PodFailures
from trainer.launch.ports import free_port
from trainer.launch.status_files import ExitReport, StatusFiles
from trainer.launch.stop_request import StopRequest
from trainer.launch.work import Work
from trainer.monitoring.start import start_endpoint
from trainer.monitoring.vitals import State, Vitals
from trainer.parallel.cores import threads_per_rank
from trainer.program.work import Program
from trainer.transport.watch import TransportWatch
from trainer.volume.proof import VolumeProof
from trainer.watch.beat import Phase
from trainer.watch.hang import RankState, culprits, describe_hang

_LONGEST_PAUSE_SECONDS = 30
_POLL_SECONDS = 0.1


def run_entrypoint(config: RunConfig, config_arguments: Sequence[str]) -> ExitCode:
    """Run this node's part until the run is finished; the ranks get `config_arguments` too."""
    stop = StopRequest()
    stop.install()
    node = node_from_environment(os.environ)
    return _Entrypoint(config, config_arguments, node, stop).run()


class _Entrypoint:
    def __init__(
        self, config: RunConfig, config_arguments: Sequence[str], node: Node, stop: StopRequest
    ):
        self._config, self._config_arguments = config, config_arguments
        self._node, self._stop, self._rules = node, stop, RoundRules.of(config.train, node.nnodes)
        self._status = StatusFiles()
        self._in_common = {**os.environ, LIFELINE_VARIABLE: "stdin"}
        self._in_common.pop(RUN_KEY_VARIABLE, None)  # the ranks have no use for it
        self._key = os.environ.get(RUN_KEY_VARIABLE, "").encode()
        self._hello = Hello(
            node_rank=node.rank,
            nnodes=node.nnodes,
            digest=run_digest(config),
            instance=uuid.uuid4().hex,
            machine=machine_id(),
            local_ranks=node.local_ranks,
            name=os.environ.get("POD_NAME") or socket.gethostname(),
        )
        self._coordinator: Coordinator | None = None
        self._rounds = 0
        self._output = NodeOutput.of(node.rank, config.run_dir)
        self._say = self._output.say
        self._events = entrypoint_events(config.run_dir, node.rank, self._say)
        self._volume = VolumeProof(
            config.run_dir,
            node.rank,
            config.train.volume_timeout_seconds,
            self._say,
            self._events,
            stop,
        )
        self._pod_failures = PodFailures(
            config.run_dir,
            os.environ.get(REVISION_VARIABLE, ""),
            config.train.max_pod_failures,
            node.rank == 0,
            self._say,
        )
        self._work: Work
        if config.has_program:
            self._work = Program(config, node, self._status, self._output, self._events, stop)
        else:
            local_ranks = node.local_ranks
            self._work = OwnTrainer(
                config, config_arguments, local_ranks, self._status, self._output
            )
        self._mirror = MirrorProcess(config, config_arguments, node.rank, self._output)
        self._goodput = GoodputLine(config_arguments, node.rank, self._say)
        self._vitals = Vitals(config, node)
        self._transport = TransportWatch(config, node, self._status, self._events, self._say)
        self._metrics = start_endpoint(config, node, self._vitals, self._transport, self._say)

    def run(self) -> ExitCode:
        """Train until the run is finished, stopped or given up; returns how it ended."""
        try:
            code = self._run()
            self._pod_failures.ended()
            if self._rounds:
                self._events.write(Name.ENDED, how=code.name.lower())
            if code != ExitCode.PREEMPTED:
                self._vitals.end(has_failed=code != ExitCode.DONE)
                self._metrics.await_last_reading(self._stop)
            return code
        except Exception:
            self._output.note(traceback.format_exc())
            raise
        finally:
            self._work.close()
            self._events.close()
            self._goodput.close()
            self._mirror.finish()
            self._metrics.close()
            self._output.close()

    def _run(self) -> ExitCode:
        failures, newest = 0, self._work.newest()
        self._status.clear()
        self._pod_failures.start(self._work.recorded)
        if self._node.nnodes > 1 and not self._key:
            self._say(f"{RUN_KEY_VARIABLE} is not set: any pod that reaches this port may join")
        while not self._stop.requested:
            self._mirror.ensure_running()
            if (finished := self._work.finished()) is not None:
                self._close_coordinator()
                return self._hold(finished)
            if (spent := self._pod_failures.spent()) is not None:
                return self._fail(ExitReport(ExitCode.FATAL, spent))
            try:
                report = self._one_round()
            except (RetryableError, OSError) as error:
                return self._fail(ExitReport(ExitCode.RETRYABLE, str(error)))
            if report is None or self._stop.requested or report.code == ExitCode.DONE:
                continue
            if report.code == ExitCode.FATAL:
                return self._fail(report)
            before, newest = newest, self._work.newest()
            has_progress = newest > before
            if has_progress and report.code == ExitCode.PREEMPTED:
                failures = 0  # the ranks have saved, as they were asked to
                continue
            failures = 1 if has_progress else failures + 1
            if failures > self._config.train.max_restarts:
                self._pod_failures.failed(newest, report.reason)
                if (spent := self._pod_failures.spent()) is not None:
                    return self._fail(ExitReport(ExitCode.FATAL, spent))
                starts = "1 start" if failures == 1 else f"{failures} starts in a row"
                return self._fail(
                    ExitReport(
                        ExitCode.RETRYABLE,
                        f"{starts} failed without a newer checkpoint "
                        f"(train.max_restarts is {self._config.train.max_restarts}); "
                        f"the last one: {report.reason}",
                    )
                )
            pause = 0 if failures == 1 else min(2 ** (failures - 2), _LONGEST_PAUSE_SECONDS)
            when = f"in {pause} s" if pause else "at once"
            count = f"restart {failures} of {self._config.train.max_restarts}"
            self._say(
                f"training stopped: {report.reason}; starting again {when} "
                f"({count} without a newer checkpoint)"
            )
            self._stop.wait(pause)
        self._say("stopped by a signal; the run continues from its last checkpoint")
        return ExitCode.PREEMPTED

    def _one_round(self) -> ExitReport | None:
        """Join the other nodes and run the ranks once; None if no round began, as after a stop."""
        config, node = self._config, self._node
        self._rounds += 1
        if self._rounds == 1:
            pod_started(self._events, node.nnodes * node.local_ranks)
        self._work.prepare(self._in_common)
        if node.nnodes == 1:
            alone = Round.alone(self._rounds, free_port(), node.local_ranks)
            report = self._run_ranks(alone, None)
            if report.code == ExitCode.DONE:
                self._work.round_is_done()
            return report
        if self._coordinator is not None and self._coordinator.failure is not None:
            self._say(f"the coordinator failed: {self._coordinator.failure}")
            self._close_coordinator()
        if self._coordinator is None and node.rank == 0:
            self._coordinator = Coordinator(
                node.master_port,
                self._hello,
                self._key,
                self._say,
                self._rules,
                stalled=self._tell_stalled,
                done=self._work.round_is_done,
                proven=self._volume.all_proven,
            )

        self._events.write(Name.GATHERING)

        def give_up() -> bool:
            failed = self._coordinator is not None and self._coordinator.failure is not None
            over = self._work.finished() is not None or self._pod_failures.spent() is not None
            return failed or self._stop.requested or over

        report: ExitReport | None = None
        hello = replace(self._hello, proof=self._volume.write())
        try:
            member = join(
                node.master_address,
                node.master_port,
                hello,
                self._key,
                config.train.rendezvous_timeout_seconds,
                self._say,
                give_up,
            )
            if member is not None:
                report = self._in_round(member)
        finally:
            # Others may still look for the file of a node that has finished; node 0 removes it.
            if report is None or report.code != ExitCode.DONE:
                self._volume.withdraw()
        return report

    def _in_round(self, member: RoundMember) -> ExitReport:
        """Show that the volume is shared, then run the ranks once, together with other nodes."""
        here = member.round
        report = ExitReport(ExitCode.RETRYABLE, "the entrypoint failed")
        try:
            proofs = dict(zip(here.nodes, here.proofs, strict=True))
            report = self._volume.prove(member, proofs) or self._run_ranks(here, member)
        finally:
            member.leave(report)
        return report

    def _run_ranks(self, here: Round, member: RoundMember | None) -> ExitReport:
        """Start the ranks of this node and return how they ended."""
        node, status = self._node, self._status
        status.clear()
        some = f"{len(here.nodes)} of " if len(here.nodes) < node.nnodes else ""
        self._say(
            f"round {here.number}: {some}{node.nnodes} node(s) x {node.local_ranks} rank(s), "
            f"store at {here.master_address}:{here.master_port}"
        )
        environments = [self._environment(here, rank) for rank in range(node.local_ranks)]
        self._pod_failures.round_begins()
        self._events.write(Name.ROUND_BEGUN, round=here.number, ranks=here.world_size)
        try:
            ranks = self._work.start(here, environments)
        except FatalError as error:
            return ExitReport(ExitCode.FATAL, str(error))
        self._events.write(Name.RANKS_STARTED)
        self._vitals.enter(State.STARTING)
        self._transport.begins(here, environments)
        watch = HangWatch(node.rank, here.first_rank, ranks.pids(), status)
        forwarded, ready, failing, ending, lost = False, False, False, False, None
        refused: ExitReport | None = None  # this node's own reason to end the run
        while ranks.is_running():
            self._vitals.see_ranks(ranks.exit_codes())
            regroups_for = member.regroups_for if member is not None else ""
            if (self._stop.requested or regroups_for) and not forwarded:
                if regroups_for:
                    self._say(f"{regroups_for}: all save, and start again together")
                self._events.write(Name.STOP_REQUESTED)
                ranks.request_stop()
                forwarded = True
            has_stepped = self._work.poll()
            if not ready and has_stepped:
                status.mark_ready()
                self._vitals.enter(State.TRAINING)
                ready = True
                if member is not None:
                    member.report_stepped()
            if not ending and (states := watch.poll(time.monotonic())):
                if member is not None:
                    member.report_stalled(states, watch.still_seconds)
                else:
                    self._tell_stalled(states, watch.still_seconds)
            self._goodput.poll()
            refused = self._transport.poll(has_stepped) or refused
            if member is not None:
                lost = member.poll_lost() or lost
            if not (failing or lost or refused) and ranks.has_failed():
                failing = True
                ranks.say_who_was_killed()
                if member is not None:
                    member.report_failing()
            if refused is not None and not ending and member is not None:
                member.report_failing()
            if (failing or lost or refused) and not ending:
                ending = True
                self._work.ends()
                self._events.write(Name.FAILING)
            if ending:
                ranks.end_soon()
            ranks.wait(_POLL_SECONDS)
        if not (failing or lost or refused):  # they have ended faster than the loop could look
            ranks.say_who_was_killed()
        ranks.close()
        report = self._work.report()
        status.clear()
        report = lost if lost is not None and report.code != ExitCode.FATAL else report
        if refused is not None and report.code != ExitCode.DONE:
            report = refused
        self._vitals.round_ended(report.reason)
        self._transport.ended()
        self._events.write(
            Name.ROUND_ENDED, how=report.code.name.lower(), reason=shortened(report.reason)
        )
        return report

    def _tell_stalled(
        self, states: Sequence[RankState], seconds: float, missing: Sequence[int] = ()
    ) -> None:
        """Say which rank holds up the others; on node 0, which knows those of all nodes."""
        self._say(describe_hang(states, seconds, missing))
        found = culprits(states, missing)
        for node in missing if not found else ():
            self._events.write(Name.HANG, rank=None, node=node, seconds=round(seconds, 1))
        for state in found:
            self._events.write(
                Name.HANG,
                rank=state.rank,
                node=state.node,
                step=state.step,
                phase=Phase(state.phase).name.lower(),
                process=state.process,
                place=shortened(state.place),
                seconds=round(seconds, 1),
            )

    def _environment(self, here: Round, local_rank: int) -> dict[str, str]:
        """The environment of a rank: torch.distributed's variables, and its number of threads."""
        node = self._node
        environment = {
            **self._in_common,
            "RANK": str(here.first_rank + local_rank),
            "WORLD_SIZE": str(here.world_size),
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(node.local_ranks),
            "GROUP_RANK": str(node.rank),
            "MASTER_ADDR": here.master_address,
            "MASTER_PORT": str(here.master_port),
        }
        threads = threads_per_rank(node.local_ranks, here.ranks_on_machine)
        environment.setdefault("OMP_NUM_THREADS", str(threads))
        interface = interface_of(here.own_address) if here.own_address else None
        if len(here.nodes) == 1:
            interface = "lo0" if sys.platform == "darwin" else "lo"
        if interface is not None:
            environment.setdefault("GLOO_SOCKET_IFNAME", interface)
        if interface is not None and len(here.nodes) > 1:
            environment.setdefault("NCCL_SOCKET_IFNAME", interface)
        return {**environment, **self._transport.variables(environment, local_rank)}

    def _hold(self, finished: str) -> ExitCode:
        """End, or keep waiting where a StatefulSet would start the pod of a finished run again."""
        self._work.close()
        self._status.mark_ready()
        if self._node.rank == 0:
            self._volume.run_is_finished()
        self._vitals.end(has_failed=False)
        self._goodput.say_last()
        self._say(f"run {self._config.run_name} is finished: {finished}")
        if self._node.is_restarted_when_done:
            self._events.close()
            self._mirror.finish()
            self._say(f"holding until SIGTERM; {self._work.how_to_go_on}")
            while not self._stop.requested:
                self._stop.wait(60)
        return ExitCode.DONE

    def _close_coordinator(self) -> None:
        if self._coordinator is not None:
            self._coordinator.close()
            self._coordinator = None

    def _fail(self, report: ExitReport) -> ExitCode:
        self._close_coordinator()  # first: the others hear of it, and our reason is the last line
        kind = "fatal" if report.code == ExitCode.FATAL else "giving up for now"
        self._output.settle()
        self._say(f"{kind}: {report.reason}")
        return report.code


def run_digest(config: RunConfig) -> str:
    """Identifies configuration and code, so that nodes of two versions never train together."""
    digest = hashlib.sha256(dump_config(config).encode())
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
