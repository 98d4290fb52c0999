"""One training process: from its start by the entrypoint (or by hand) to its exit code."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

import torch

from trainer.checkpoint.second_chance import happened_before
from trainer.checkpoint.store import newest_name
from trainer.config import ConfigError, RunConfig, TrainConfig
from trainer.events.event import Name
from trainer.events.log import EventLog
from trainer.events.writers import rank_events, shortened
from trainer.launch.exit_codes import ExitCode, FatalError, RetryableError
from trainer.launch.lifeline import follow_entrypoint, started_by_entrypoint
from trainer.launch.status_files import ExitReport, StatusFiles
from trainer.launch.stop_request import StopRequest
from trainer.metrics.console import Console
from trainer.model.allocator import keep_freed_memory
from trainer.parallel.cores import available_cores
from trainer.parallel.device import Compute, choose_compute
from trainer.parallel.smoke_test import smoke_test
from trainer.parallel.world import World
from trainer.run_folder import CHECKPOINTS_DIR
from trainer.train import train
from trainer.volume.remedy import remedy
from trainer.watch.beat import BEAT
from trainer.watch.stack import answer_with_stack

_NO_HOST_MEMORY = "can't allocate memory"  # in a RuntimeError; torch has no class of its own for it
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def run_worker(config: RunConfig) -> NoReturn:
    """Train, report how the training ended, and end the process with that exit code.

    Until the training loop has something to save, a signal ends the process at once.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if started_by_entrypoint():
        follow_entrypoint()
    world, stop = World.from_environment(), StopRequest()
    status = StatusFiles() if started_by_entrypoint() else None
    if status is not None:
        answer_with_stack(status.stack_file(world.local_rank))  # before anyone asks
        BEAT.share(status.beat_file(world.local_rank))
    events = rank_events(config.run_dir, world.rank, world.size, started_by_entrypoint())
    ending = _train(config, world, stop, status, events)
    if status is None:
        events.write(Name.ENDED, how=ending.code.name.lower(), reason=shortened(ending.reason))
    events.close()
    if ending.code not in (ExitCode.DONE, ExitCode.PREEMPTED):
        if status is None or status.is_first_to_say(ending.reason):
            print(f"rank {world.rank}: {ending.reason}", file=sys.stderr)
    elif status is None and world.is_main:  # with an entrypoint, that says it
        is_done = ending.code == ExitCode.DONE
        then = "raise train.max_steps" if is_done else "start it again"
        print(f"run {config.run_name}: {ending.reason}; {then} to go on")
    if status is not None:
        status.report_exit(world.local_rank, ending)
    sys.stdout.flush()
    sys.stderr.flush()
    # destroy_process_group is not called: with gloo it can wait forever for one of its threads,
    # which waits for the interpreter (torch 2.7.1, seen with 3 ranks on a busy machine).
    os._exit(ending.code)


def set_up_torch(train: TrainConfig, world: World) -> Compute:
    """Choose this rank's device and precision, and set torch up for them.

    Raises:
        FatalError: a setting asks for something that this machine does not have.
    """
    if train.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before cuBLAS starts
        torch.use_deterministic_algorithms(True)
    compute = choose_compute(train, world.local_rank)
    if compute.device.type == "cpu":
        keep_freed_memory()
    threads = os.environ.get("OMP_NUM_THREADS", str(available_cores()))
    if threads.isdecimal() and int(threads):  # in a spare, OpenMP has not seen it (spare.py)
        torch.set_num_threads(int(threads))
    if compute.device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # multiply float32 as TF32
    return compute


def _train(
    config: RunConfig,
    world: World,
    stop: StopRequest,
    status: StatusFiles | None,
    events: EventLog | None = None,
) -> ExitReport:
    events = events or EventLog(None, print)

    def on_first_step() -> None:
        if status is not None:
            status.mark_stepped(world.local_rank)

    try:
        compute = world.connect(set_up_torch(config.train, world), config.train)
        events.write(Name.CONNECTED)
        if config.train.smoke_test:
            smoke_test(world, compute, config.run_dir, Console(speaks=world.is_main).say)
        end = train(config, world, compute, stop, on_first_step, events)
    except (FatalError, ConfigError) as error:
        return ExitReport(ExitCode.FATAL, str(error))
    except RetryableError as error:
        return ExitReport(ExitCode.RETRYABLE, str(error))
    except torch.OutOfMemoryError as error:
        return _out_of_memory(config, world, str(error))
    except (Exception, SystemExit) as error:  # SystemExit: the other ranks would wait for this one
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            folder = f"The run's folder is {config.run_dir}"
            return ExitReport(
                ExitCode.FATAL,
                f"a file cannot be written: {error}. {remedy(error.errno)}. {folder}",
            )
        if _lacks_host_memory(error):
            traceback.print_exc()
            text = (
                f"too little memory on the machine or in the pod: {type(error).__name__}: {error}"
            )
            return _out_of_memory(config, world, text, of_host=True)
        if stop.requested and not isinstance(error, OSError):
            return ExitReport(ExitCode.PREEMPTED, f"stopped while a peer was leaving: {error}")
        traceback.print_exc()
        return ExitReport(ExitCode.RETRYABLE, f"{type(error).__name__}: {error}")
    if end.finished:
        return ExitReport(ExitCode.DONE, f"finished at step {end.step}")
    return ExitReport(ExitCode.PREEMPTED, f"stopped by a signal, saved at step {end.step}")


def _lacks_host_memory(error: BaseException) -> bool:
    """Whether the kernel has refused memory. A limit of the pod does not: it kills the process."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or _NO_HOST_MEMORY in str(error)


def _out_of_memory(
    config: RunConfig, world: World, reason: str, *, of_host: bool = False
) -> ExitReport:
    """Return RETRYABLE for the first time, because the allocator's memory may be fragmented.

    For the second time after the same checkpoint, return FATAL. `of_host`: whether it is the memory
    of the machine that is missing, and not that of a GPU.
    """
    newest = ""
    with suppress(OSError):  # The volume may fail too, and must not hide that memory is missing.
        newest = newest_name(config.run_dir / CHECKPOINTS_DIR)
    newest = newest or "start"
    again = happened_before(config.run_dir, world.rank, "out of memory", f"after {newest}")
    if again:
        advice = _memory_advice(config.train, world.size, of_host=of_host)
        return ExitReport(
            ExitCode.FATAL, f"{reason} (for the second time after {newest}; {advice})"
        )
    what_follows = "if this happens again before a newer checkpoint, the run fails"
    return ExitReport(ExitCode.RETRYABLE, f"{reason} ({what_follows})")


def _memory_advice(train: TrainConfig, ranks: int, *, of_host: bool) -> str:
    """Say what would need less memory, the least costly first, without what is set already.

    `of_host`: see `_out_of_memory`. With a GPU, only the model's size changes the host's memory.
    """
    ways: list[str] = []
    is_on_gpu = of_host and torch.cuda.is_available()
    if train.parallel == "fsdp" and not train.reduce_each_micro_step and not is_on_gpu:
        ways.append("set train.reduce_each_micro_step to true")
    if train.micro_batch_size > 1 and not is_on_gpu:
        ways.append("lower train.micro_batch_size")
    if not train.activation_checkpointing and not is_on_gpu:
        ways.append("set train.activation_checkpointing to true")
    if train.parallel == "ddp" and ranks > 1:
        ways.append("set train.parallel to fsdp")
    if of_host:
        ways += ["give each rank more memory (memoryPerRank)", "use a smaller model"]
    if not ways:
        return "use more GPUs, GPUs with more memory, or a smaller model"
    *first, last = ways
    return f"{', '.join(first)}, or {last}" if first else last
