"""What a training pod runs: gather the nodes, run torchrun, start again after a loss, hold.

Reads the variables that torchrun reads: PET_NNODES, PET_NPROC_PER_NODE, PET_MASTER_ADDR,
PET_MASTER_PORT, PET_NODE_RANK; without the last one the node rank is the ordinal at the end of
POD_NAME, as a StatefulSet gives it.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainer import gang
from trainer.config import ConfigError, RunConfig, dump_config
from trainer.cores import available_cores
from trainer.exit_codes import ExitCode, RetryableError
from trainer.lifeline import LIFELINE_VARIABLE
from trainer.run_identity import read_done_marker
from trainer.status_files import Ending, StatusFiles
from trainer.stop_request import StopRequest

_STOP_GRACE_SECONDS = 10
_LONGEST_PAUSE_SECONDS = 30


@dataclass(frozen=True)
class Node:
    """This node among the nodes of the run."""

    nnodes: int
    local_ranks: int
    rank: int
    master_address: str
    master_port: int


def node_from_environment(environment: Mapping[str, str]) -> Node:
    """Read torchrun's variables.

    Raises:
        ConfigError: lists every variable that is missing or wrong.
    """
    problems: list[str] = []

    def number(name: str, default: str, least: int) -> int:
        text = environment.get(name, default)
        if text.isdecimal() and int(text) >= least:
            return int(text)
        problems.append(f"{name}: {text!r} is not allowed; allowed: a whole number >= {least}")
        return least

    nnodes = number("PET_NNODES", "1", 1)
    local_ranks = number("PET_NPROC_PER_NODE", "1", 1)
    port = number("PET_MASTER_PORT", "29500", 1)
    address = environment.get("PET_MASTER_ADDR", "127.0.0.1" if nnodes == 1 else "")
    if not address:
        problems.append("PET_MASTER_ADDR: not set; allowed: host name or address of node 0")
    ordinal = re.search(r"-(\d+)$", environment.get("POD_NAME", ""))
    if "PET_NODE_RANK" in environment or nnodes == 1:
        rank = number("PET_NODE_RANK", "0", 0)
    elif ordinal:
        rank = int(ordinal[1])
    else:
        rank = 0
        problems.append(
            f"PET_NODE_RANK: not set, and POD_NAME {environment.get('POD_NAME', '')!r} does not "
            "end in -<number>; one of them must give the rank of this node"
        )
    if rank >= nnodes:
        problems.append(f"PET_NODE_RANK: {rank} is not allowed; allowed: 0 to {nnodes - 1}")
    if problems:
        raise ConfigError(problems)
    return Node(nnodes, local_ranks, rank, address, port)


def run_entrypoint(config: RunConfig, config_arguments: Sequence[str]) -> ExitCode:
    """Bring the run to its end on this node; `config_arguments` go to the ranks unchanged."""
    stop = StopRequest()
    stop.install()
    node = node_from_environment(os.environ)
    return _Entrypoint(config, config_arguments, node, stop).run()


class _Entrypoint:
    def __init__(
        self, config: RunConfig, config_arguments: Sequence[str], node: Node, stop: StopRequest
    ):
        self._config, self._config_arguments = config, config_arguments
        self._node, self._stop = node, stop
        self._status = StatusFiles()
        self._hello = gang.Hello(node.rank, node.nnodes, run_digest(config))
        self._rounds = 0

    def run(self) -> ExitCode:
        failures, last_progress, coordinator = 0, self._progress(), None
        self._status.clear()
        while not self._stop.requested:
            if read_done_marker(self._config) is not None:
                if coordinator is not None:
                    coordinator.close()
                return self._hold()
            try:
                if coordinator is None and self._node.nnodes > 1 and self._node.rank == 0:
                    coordinator = gang.Coordinator(self._node.master_port, self._hello, self._say)
                ending = self._one_round()
            except (RetryableError, OSError) as error:
                ending = Ending(ExitCode.RETRYABLE, str(error))
                return self._fail(ending, coordinator)
            if ending is None or self._stop.requested or ending.code == ExitCode.DONE:
                continue
            if ending.code == ExitCode.FATAL:
                return self._fail(ending, coordinator)
            progress = self._progress()
            failures = failures + 1 if progress == last_progress else 1
            last_progress = progress
            if failures > self._config.train.max_restarts:
                return self._fail(
                    Ending(
                        ExitCode.RETRYABLE,
                        f"{failures} starts in a row failed without a newer checkpoint "
                        f"(train.max_restarts is {self._config.train.max_restarts}); "
                        f"the last one: {ending.reason}",
                    ),
                    coordinator,
                )
            pause = min(2 ** (failures - 1), _LONGEST_PAUSE_SECONDS)
            self._say(f"training stopped: {ending.reason}; starting again in {pause} s")
            self._stop.wait(pause)
        self._say("stopped by a signal; the run continues from its last checkpoint")
        return ExitCode.PREEMPTED

    def _one_round(self) -> Ending | None:
        """Join the other nodes and run torchrun once; None if there was no need to."""
        config, node = self._config, self._node
        self._rounds += 1
        if node.nnodes == 1:
            here = gang.Round(self._rounds, "127.0.0.1", gang.free_port(), f"round-{self._rounds}")
            return self._run_torchrun(here, None)

        def give_up() -> bool:
            return self._stop.requested or read_done_marker(config) is not None

        membership = gang.join(
            node.master_address,
            node.master_port,
            self._hello,
            config.train.rendezvous_timeout_seconds,
            self._say,
            give_up,
        )
        if membership is None:
            return None
        ending = Ending(ExitCode.RETRYABLE, "the entrypoint failed")
        try:
            ending = self._run_torchrun(membership.round, membership)
        finally:
            membership.leave(ending)
        return ending

    def _run_torchrun(self, here: gang.Round, membership: gang.Membership | None) -> Ending:
        """Run the ranks of this node to their end, whatever it is."""
        node, status = self._node, self._status
        status.clear()
        self._say(
            f"round {here.number}: torchrun with {node.nnodes} node(s) x {node.local_ranks} "
            f"rank(s), store at {here.master_address}:{here.master_port}"
        )
        child = subprocess.Popen(
            self._command(here),
            stdin=subprocess.PIPE,  # the lifeline: never written to
            env=self._environment(),
            start_new_session=True,  # Ctrl-C reaches the entrypoint alone, which forwards it
        )
        forwarded, ready, lost = False, False, None
        while child.poll() is None:
            if self._stop.requested and not forwarded:
                child.send_signal(signal.SIGTERM)
                forwarded = True
            if not ready and status.all_stepped(node.local_ranks):
                status.mark_ready()
                ready = True
            if membership is not None and (lost := membership.lost()) is not None:
                _end(child)
                break
            with suppress(subprocess.TimeoutExpired):
                child.wait(0.2)
        assert child.stdin is not None
        child.stdin.close()  # ends ranks that a killed torchrun left behind
        status_ending = judge(status.endings(node.local_ranks), child.wait())
        status.clear()
        if lost is not None and status_ending.code != ExitCode.FATAL:
            return lost
        return status_ending

    def _command(self, here: gang.Round) -> list[str]:
        node, timeout = self._node, self._config.train.timeout_seconds
        address = here.master_address
        options = {
            "nnodes": node.nnodes,
            "nproc-per-node": node.local_ranks,
            "node-rank": node.rank,
            "rdzv-backend": "static",
            "master-addr": f"[{address}]" if ":" in address else address,
            "master-port": here.master_port,
            "rdzv-id": here.rendezvous_id,
            "rdzv-conf": f"timeout={timeout}",
            "max-restarts": 0,
            "monitor-interval": 0.2,
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        torchrun = [sys.executable, "-m", "torch.distributed.run", *arguments]
        return [*torchrun, "-m", "trainer", "train", *self._config_arguments]

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, LIFELINE_VARIABLE: "stdin"}
        # All pods of a run share one machine: threads for more would only wait for each other.
        ranks_here = self._node.local_ranks * self._node.nnodes
        threads = max(1, available_cores() // ranks_here)
        environment.setdefault("OMP_NUM_THREADS", str(threads))
        if self._node.nnodes == 1:
            loopback = "lo0" if sys.platform == "darwin" else "lo"
            environment.setdefault("GLOO_SOCKET_IFNAME", loopback)
        return environment

    def _hold(self) -> ExitCode:
        """The run is finished: leave, or stay because a StatefulSet would start the pod again."""
        marker = read_done_marker(self._config)
        assert marker is not None
        self._status.mark_ready()
        loss = f"loss {marker['loss']:.4f}" if marker["loss"] is not None else "no loss"
        self._say(f"run {self._config.run_name} is finished: step {marker['step']}, {loss}")
        if self._node.nnodes > 1:
            self._say("holding until SIGTERM; raise train.max_steps to go on")
            while not self._stop.requested:
                self._stop.wait(60)
        return ExitCode.DONE

    def _progress(self) -> list[str]:
        """Names of the checkpoints, to see whether there is a new one."""
        return sorted(path.name for path in self._config.run_dir.glob("checkpoints/step-*"))

    def _fail(self, ending: Ending, coordinator: gang.Coordinator | None) -> ExitCode:
        if coordinator is not None:
            coordinator.close()  # first: the others hear of it, and our reason is the last line
        kind = "fatal" if ending.code == ExitCode.FATAL else "giving up for now"
        sys.stderr.flush()
        self._say(f"{kind}: {ending.reason}")
        return ending.code

    def _say(self, text: str) -> None:
        print(f"[node {self._node.rank}] {text}", flush=True)


def judge(endings: Sequence[Ending | None], return_code: int) -> Ending:
    """How a node's round ended, from what its ranks reported and torchrun's exit code."""
    reported = [ending for ending in endings if ending is not None]
    for code in (ExitCode.FATAL, ExitCode.RETRYABLE, ExitCode.PREEMPTED):
        if code == ExitCode.PREEMPTED and len(reported) < len(endings):
            break
        for ending in reported:
            if ending.code == code:
                return ending
    silent = [str(rank) for rank, ending in enumerate(endings) if ending is None]
    if not silent:
        return Ending(ExitCode.DONE, reported[0].reason)
    return Ending(
        ExitCode.RETRYABLE,
        f"local rank(s) {', '.join(silent)} ended without a word (killed?), "
        f"torchrun's exit code was {return_code}",
    )


def run_digest(config: RunConfig) -> str:
    """Identifies configuration and code, so that nodes of two versions never train together."""
    digest = hashlib.sha256(dump_config(config).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _end(child: subprocess.Popen[bytes]) -> None:
    """End torchrun, which ends its ranks; what does not follow in time is killed."""
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(_STOP_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
