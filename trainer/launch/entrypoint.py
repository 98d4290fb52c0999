"""The program of a training pod: it joins the other nodes, runs the ranks and restarts them.

When the run is finished, the program ends. Where Kubernetes would restart an ended pod, the program
keeps waiting instead ("holds").
"""

from __future__ import annotations

import os
import socket
import traceback
import uuid
from collections.abc import Sequence
from dataclasses import replace

from trainer.config import RunConfig
from trainer.events.event import Name
from trainer.events.writers import entrypoint_events, pod_started
from trainer.launch.coordinator import Coordinator
from trainer.launch.exit_codes import ExitCode, FatalError, RetryableError
from trainer.launch.gathering import RoundRules
from trainer.launch.goodput_line import GoodputLine
from trainer.launch.lifeline import LIFELINE_VARIABLE
from trainer.launch.membership import Round, RoundMember, join
from trainer.launch.messages import Hello
from trainer.launch.mirror import MirrorProcess
from trainer.launch.node import Node, machine_id, node_from_environment
from trainer.launch.node_output import NodeOutput
from trainer.launch.noted_address import (
    ADDRESS_VARIABLE,
    forget_address,
    note_address,
    noted_address,
)
from trainer.launch.own_trainer import OwnTrainer
from trainer.launch.pod_failures import REVISION_VARIABLE, PodFailures
from trainer.launch.ports import free_port
from trainer.launch.ranks_of_round import NodeParts, run_ranks
from trainer.launch.run_digest import run_digest
from trainer.launch.signed_lines import RUN_KEY_VARIABLE
from trainer.launch.stall import StallTeller
from trainer.launch.status_files import ExitReport, StatusFiles
from trainer.launch.stop_request import StopRequest
from trainer.launch.work import Work, is_newer
from trainer.monitoring.start import start_endpoint
from trainer.monitoring.vitals import Vitals
from trainer.program.work import Program
from trainer.transport.watch import TransportWatch
from trainer.volume.proof import VolumeProof

_LONGEST_PAUSE_SECONDS = 30


def run_entrypoint(config: RunConfig, config_arguments: Sequence[str]) -> ExitCode:
    """Run this node's part of the run until the run is finished, stopped or given up.

    `config_arguments`: the command line's arguments about the configuration; the ranks get them
    unchanged.
    """
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
        self._address = os.environ.get(ADDRESS_VARIABLE, "")
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
            parts = (self._status, self._output, self._events, stop, self._helpers)
            self._work = Program(config, node, *parts)
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
        in_common = {**os.environ, LIFELINE_VARIABLE: "stdin"}
        in_common.pop(RUN_KEY_VARIABLE, None)  # the ranks have no use for it
        self._parts = NodeParts(
            node=node,
            work=self._work,
            status=self._status,
            stop=stop,
            say=self._say,
            events=self._events,
            stall=StallTeller(self._say, self._events),
            vitals=self._vitals,
            transport=self._transport,
            goodput=self._goodput,
            mirror=self._mirror,
            pod_failures=self._pod_failures,
            in_common=in_common,
        )

    def run(self) -> ExitCode:
        """Train until the run is finished, stopped or given up; return how it ended."""
        try:
            try:
                code = self._run()
            except FatalError as error:  # for example: another kind of run has finished here
                code = self._fail(ExitReport(ExitCode.FATAL, str(error)))
            except (RetryableError, OSError) as error:  # OSError: mostly the volume's
                code = self._fail(ExitReport(ExitCode.RETRYABLE, str(error)))
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

    def _helpers(self) -> list[int]:
        """The ids of the processes that this process has started, apart from the ranks."""
        return [*self._mirror.pids(), *self._goodput.pids()]

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
            report = self._one_round()
            if report is None or self._stop.requested or report.code == ExitCode.DONE:
                continue
            if report.code == ExitCode.FATAL:
                return self._fail(report)
            before, newest = newest, self._work.newest()
            has_progress = is_newer(newest, before)
            was_asked = report.code == ExitCode.PREEMPTED
            if was_asked and (has_progress or self._work.is_our_trainer):
                # The ranks were asked to stop. They have saved, or had nothing to save yet.
                failures = 0 if has_progress else failures
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
        has_nothing = self._work.is_our_trainer and not self._work.newest()
        none, some = (
            "the volume has no checkpoint yet",
            "the next start continues from the last checkpoint",
        )
        self._say(f"stopped by a signal; {none if has_nothing else some}")
        return ExitCode.PREEMPTED

    def _one_round(self) -> ExitReport | None:
        """Join the other nodes and run the ranks once.

        Returns None if no round began, for example because the pod was asked to stop.

        Raises:
            OSError, RetryableError: this pod cannot go on.
        """
        config, node = self._config, self._node
        self._rounds += 1
        if self._rounds == 1:
            pod_started(self._events, node.nnodes * node.local_ranks)
        self._work.prepare(self._parts.in_common)
        if node.nnodes == 1:
            alone = Round.alone(self._rounds, free_port(), node.local_ranks)
            report = run_ranks(self._parts, alone, None)
            if report.code == ExitCode.DONE:
                self._work.round_is_done()
            return report
        self._ensure_coordinator()
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
                self._noted_address,
            )
            if member is not None:
                report = self._in_round(member)
        finally:
            # If this node has finished, other nodes may still look for its file on the volume.
            # Node 0 removes that file at the end of the run.
            if report is None or report.code != ExitCode.DONE:
                self._volume.withdraw()
        return report

    def _ensure_coordinator(self) -> None:
        """Start the coordinator and note its address, if this is node 0 and it does not run yet.

        Raises:
            RetryableError: the coordinator has failed. No new one is started, because it may fail
                again each time the ranks end.
        """
        node = self._node
        if self._coordinator is not None and (why := self._coordinator.failure) is not None:
            raise RetryableError(f"the coordinator failed: {why.rstrip()}")
        if self._coordinator is not None or node.rank != 0:
            return
        self._coordinator = Coordinator(
            node.master_port,
            self._hello,
            self._key,
            self._say,
            self._rules,
            stalled=self._parts.stall.tell,
            done=self._work.round_is_done,
            proven=self._volume.all_proven,
        )
        if self._address:
            note_address(self._config.run_dir, self._address, self._say)

    def _noted_address(self) -> str:
        """Return the address of node 0; on node 0 itself the environment tells it.

        Raises:
            OSError: the volume cannot be read.
        """
        return self._address if self._node.rank == 0 else noted_address(self._config.run_dir)

    def _in_round(self, member: RoundMember) -> ExitReport:
        """Check that all nodes share one volume, then run the ranks once with the other nodes."""
        here = member.round
        report = ExitReport(ExitCode.RETRYABLE, "the entrypoint failed")
        try:
            proofs = dict(zip(here.nodes, here.proofs, strict=True))
            report = self._volume.prove(member, proofs) or run_ranks(self._parts, here, member)
        except (OSError, RetryableError) as error:  # this pod ends, and the other nodes say why
            report = replace(report, reason=str(error))
            raise
        finally:
            member.leave(report)
        return report

    def _hold(self, finished: str) -> ExitCode:
        """Close what the finished run used and end, or keep waiting until the pod is stopped.

        The pod waits where its controller, for example a StatefulSet, would restart an ended pod.
        `finished`: the text, for people, that says how the run finished.
        """
        self._work.close()
        self._status.mark_ready()
        if self._node.rank == 0:
            self._volume.run_is_finished()
            forget_address(self._config.run_dir)
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
        self._close_coordinator()  # first, so that other nodes stop and the reason is the last line
        kind = "fatal" if report.code == ExitCode.FATAL else "giving up for now"
        self._output.settle()
        self._say(f"{kind}: {report.reason}")
        return report.code
