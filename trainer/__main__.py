"""Command line of the trainer: `python -m trainer --help` lists the commands."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from trainer.config import ConfigError, load_config, preset_names, preset_path
from trainer.events.command import add_goodput_options, goodput_of_folder
from trainer.launch.exit_codes import ExitCode, FatalError, RetryableError, pod_exit_code

_WITH_CONFIG = {
    "prepare": "make the dataset of the run",
    "entrypoint": "what a training pod runs: its ranks, with restarts (reads PET_* variables)",
    "goodput": "where the time of the run went",
    "mirror": "copy the run's checkpoints elsewhere (started by the entrypoint of node 0)",
    "plan": "what a number of ranks costs in time and network, computed and not measured",
    "restore": "bring the newest good checkpoint of the run's mirror to this machine",
    "train": "one training process (started by the entrypoint, by torchrun, or alone)",
}

_ANSWERS = ("sample", "plot", "goodput", "plan")  # Their output may be piped to `head`.
BROKEN_PIPE = 141  # the exit code by which a shell reports that SIGPIPE ended a program

_RUN_DIR = "<data_root>/runs/<run_name>"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code (trainer/launch/exit_codes.py)."""
    parser = argparse.ArgumentParser(prog="python -m trainer", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in _WITH_CONFIG.items():
        command = commands.add_parser(
            name, help=text, description=text, epilog="--section.key=value overrides the file"
        )
        source = command.add_mutually_exclusive_group(required=True)
        source.add_argument("--config", help="YAML file or name of a preset")
        source.add_argument("--preset", help=f"one of {', '.join(preset_names())}")
        if name == "goodput":
            add_goodput_options(command)
        if name == "plan":
            _add_plan(command)
    _add_sample(commands.add_parser("sample", help="text from the newest checkpoint of a run"))
    text = "draw loss and throughput of a run as PNG, or the losses of several runs as SVG"
    command = commands.add_parser("plot", help=text, description=text)
    command.add_argument("run_dirs", type=Path, nargs="+", metavar="run_dir", help=_RUN_DIR)
    command.add_argument("--output", type=Path, help="default for one run: <run>/plot.png")
    command = commands.add_parser("export", help="weights of a run in GPT-2's published format")
    command.add_argument("--run-dir", type=Path, required=True, help=_RUN_DIR)
    command.add_argument(
        "--output", type=Path, required=True, help="directory for model.safetensors, config.json"
    )
    command.add_argument(
        "--largest-file-bytes",
        type=_positive,
        default=5_000_000_000,
        help="larger weights are written to several files with an index (default: 5 GB)",
    )
    text = "copy what starts and restarts a program to a folder (for program.image)"
    command = commands.add_parser("carry", help=text, description=text)
    command.add_argument("folder", type=Path)
    options, rest = parser.parse_known_args(arguments)
    if options.command not in _WITH_CONFIG and rest:
        parser.error(
            f"{' '.join(rest)} cannot be used: {options.command} has no such option. "
            f"`python -m trainer {options.command} --help` lists what it has."
        )
    if options.command in _ANSWERS:
        return _answer(options, rest)
    if options.command != "entrypoint":
        return _exit_code(options, rest)
    try:
        return pod_exit_code(_exit_code(options, rest), os.environ)
    except Exception:
        traceback.print_exc()
        return pod_exit_code(None, os.environ)


def _answer(options: argparse.Namespace, rest: Sequence[str]) -> int:
    try:
        code = _exit_code(options, rest)
        if sys.stdout:  # It is None if the process has no standard output.
            sys.stdout.flush()  # At its exit, Python would print an error about a closed pipe.
    except BrokenPipeError:  # The reader of the pipe has ended.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


def _exit_code(options: argparse.Namespace, rest: Sequence[str]) -> int:
    try:
        return _run(options, rest)
    except (ConfigError, FatalError) as error:
        print(error, file=sys.stderr)
        return ExitCode.FATAL
    except RetryableError as error:
        print(error, file=sys.stderr)
        return ExitCode.RETRYABLE
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", "trainer"):
            raise  # A module of this project is missing, which is a fault of the project.
        print(
            f"python -m trainer {options.command} needs {error.name}, which {sys.executable} does "
            "not have. In a virtual environment run `python3 -m pip install -r "
            "trainer/requirements.txt`, and use its python; the trainer's image has all of it.",
            file=sys.stderr,
        )
        return ExitCode.FATAL


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} cannot be used: it has to be a whole number above 0."
        )
    return int(text)


def _add_plan(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--ranks", type=int, default=8, help="most ranks, one for each GPU (default: 8)")
    add("--gpu", default="H100 80GB HBM3", help="as nvidia-smi names it (default: %(default)s)")
    add("--peak-tflops", type=float, help="of a GPU whose peak is not known")
    add("--mfu", type=float, default=0.4, help="share of the peak that is reached (default: 0.4)")
    text = "number of different tokens (default with the tokenizer gpt2: its 50257)"
    add("--vocab-size", type=_positive, metavar="TOKENS", help=text)
    add("--price-per-gpu-hour", type=float, help="adds what the run costs")


def _add_sample(command: argparse.ArgumentParser) -> None:
    command.add_argument("--run-dir", type=Path, required=True, help=_RUN_DIR)
    text = "the text goes on from this (default: a new line)"
    command.add_argument("--prompt", default="\n", metavar="TEXT", help=text)
    text = "length of the text (default: 200)"
    command.add_argument("--max-new-tokens", type=int, default=200, metavar="TOKENS", help=text)
    text = "0: always the likeliest token; higher: more varied text (default: 0.8)"
    command.add_argument("--temperature", type=float, default=0.8, help=text)
    text = "draw only from the K likeliest tokens (default: from all)"
    command.add_argument("--top-k", type=int, metavar="K", help=text)
    text = "draw only from the likeliest tokens whose probabilities add up to P (default: from all)"
    command.add_argument("--top-p", type=float, metavar="P", help=text)
    text = "another seed gives another text (default: 1337)"
    command.add_argument("--seed", type=int, default=1337, help=text)
    command.add_argument("--no-cache", action="store_true", help="the same tokens, slower")


def _run(options: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Run the command of `options`. The imports are here so that few commands import torch."""
    if options.command == "sample":
        from trainer.model.sample import sample

        print(
            sample(
                options.run_dir,
                options.prompt,
                options.max_new_tokens,
                options.temperature,
                options.top_k,
                options.top_p,
                options.seed,
                not options.no_cache,
            )
        )
        return ExitCode.DONE
    if options.command == "plot":
        return _plot(options.run_dirs, options.output)
    if options.command == "export":
        from trainer.model.saved_model import export_run

        export_run(options.run_dir, options.output, options.largest_file_bytes)
        return ExitCode.DONE
    if options.command == "carry":
        from trainer.program.carry import carry

        carry(options.folder)
        return ExitCode.DONE
    source = options.config or preset_path(options.preset)
    config = load_config(source, overrides)
    if options.command == "prepare":
        from trainer.data.prepare import prepare

        prepare(config)
        return ExitCode.DONE
    if options.command == "goodput":
        print(goodput_of_folder(config.run_dir, options.price_per_gpu_hour, options.json))
        return ExitCode.DONE
    if options.command == "plan":
        from trainer.plan_command import plan

        print(plan(config, options))
        return ExitCode.DONE
    if options.command == "entrypoint":
        from trainer.launch.entrypoint import run_entrypoint

        return run_entrypoint(config, ["--config", str(source), *overrides])
    if options.command == "mirror":
        from trainer.mirror.process import run_mirror

        return run_mirror(config)
    if options.command == "restore":
        from trainer.mirror.bring_home import bring_home

        print(bring_home(config))
        return ExitCode.DONE
    from trainer.launch.imports import without_garbage_collection
    from trainer.launch.spare import become_rank_when_needed

    become_rank_when_needed()
    with without_garbage_collection():
        from trainer.launch.worker import run_worker

    return run_worker(config)


def _plot(run_dirs: Sequence[Path], output: Path | None) -> int:
    from trainer.metrics.plot import STANDARD_OUTPUT, plot, plot_losses

    if len(run_dirs) == 1 and output != STANDARD_OUTPUT:
        print(plot(run_dirs[0], output))
        return ExitCode.DONE
    if output is None:
        raise FatalError("--output is missing: name a file for the picture of several runs, or -")
    if plot_losses(run_dirs, output) != STANDARD_OUTPUT:
        print(output)
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
