"""One training process: from its start by torchrun (or by hand) to its exit code."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from typing import NoReturn

import torch

from trainer.allocator import keep_freed_memory
from trainer.config import RunConfig
from trainer.cores import available_cores
from trainer.device import choose_compute
from trainer.distributed import World
from trainer.exit_codes import ExitCode, FatalError
from trainer.lifeline import follow_entrypoint, started_by_entrypoint
from trainer.status_files import Ending, StatusFiles
from trainer.stop_request import StopRequest
from trainer.train import train

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def run_worker(config: RunConfig) -> NoReturn:
    """Train, report how it ended, and leave the process with that exit code.

    Until the loop has something to save, a signal ends the process at once.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if started_by_entrypoint():
        follow_entrypoint()
    world, stop = World.from_environment(), StopRequest()
    status = StatusFiles() if started_by_entrypoint() else None
    ending = _train(config, world, stop, status)
    if ending.code not in (ExitCode.DONE, ExitCode.PREEMPTED):
        print(f"rank {world.rank}: {ending.reason}", file=sys.stderr)
    if status is not None:
        status.report_exit(world.local_rank, ending)
    sys.stdout.flush()
    sys.stderr.flush()
    # Not by way of destroy_process_group: with gloo it can wait for ever for a thread of its own
    # that waits for the interpreter (torch 2.7.1, seen with 3 ranks on a busy machine).
    os._exit(ending.code)


def _train(
    config: RunConfig, world: World, stop: StopRequest, status: StatusFiles | None
) -> Ending:
    def on_first_step() -> None:
        if status is not None:
            status.mark_stepped(world.local_rank)

    try:
        compute = choose_compute(config.train, world.local_rank)
        if compute.device.type == "cpu":
            keep_freed_memory()
        if "OMP_NUM_THREADS" not in os.environ:  # torchrun and the entrypoint set it
            torch.set_num_threads(available_cores())
        world.connect(compute, config.train.timeout_seconds)
        end = train(config, world, compute, stop, on_first_step)
    except (FatalError, ValueError, torch.OutOfMemoryError) as error:
        return Ending(ExitCode.FATAL, str(error))
    except OSError as error:
        if error.errno not in _NO_ROOM:
            traceback.print_exc()
            return Ending(ExitCode.RETRYABLE, f"{type(error).__name__}: {error}")
        return Ending(ExitCode.FATAL, f"no room to write below {config.run_dir}: {error}")
    except Exception as error:
        if stop.requested:
            return Ending(ExitCode.PREEMPTED, f"stopped while a peer was leaving: {error}")
        traceback.print_exc()
        return Ending(ExitCode.RETRYABLE, f"{type(error).__name__}: {error}")
    if end.finished:
        return Ending(ExitCode.DONE, f"finished at step {end.step}")
    return Ending(ExitCode.PREEMPTED, f"stopped by a signal, saved at step {end.step}")
