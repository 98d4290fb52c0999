"""Command line of the trainer: `python -m trainer {prepare,entrypoint,train,sample}`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from trainer.config import ConfigError, load_config
from trainer.exit_codes import ExitCode, FatalError, RetryableError

_WITH_CONFIG = {
    "prepare": "make the dataset of the run",
    "entrypoint": "what a training pod runs: torchrun with restarts (reads PET_* variables)",
    "train": "one training process (started by torchrun, or alone)",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (trainer/exit_codes.py)."""
    parser = argparse.ArgumentParser(prog="python -m trainer", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in _WITH_CONFIG.items():
        command = commands.add_parser(
            name, help=text, description=text, epilog="--section.key=value overrides the file"
        )
        command.add_argument("--config", required=True, help="YAML file or name of a preset")
    command = commands.add_parser("sample", help="text from the newest checkpoint of a run")
    command.add_argument("--run-dir", type=Path, required=True, help="<data_root>/runs/<run_name>")
    command.add_argument("--prompt", default="\n")
    command.add_argument("--max-new-tokens", type=int, default=200)
    command.add_argument("--temperature", type=float, default=0.8, help="0: the likeliest token")
    command.add_argument("--top-k", type=int, default=None)
    command.add_argument("--seed", type=int, default=1337)
    options, rest = parser.parse_known_args(arguments)
    if options.command == "sample" and rest:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    try:
        return _run(options, rest)
    except (ConfigError, FatalError) as error:
        print(error, file=sys.stderr)
        return ExitCode.FATAL
    except RetryableError as error:
        print(error, file=sys.stderr)
        return ExitCode.RETRYABLE


def _run(options: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Imports are here so that light commands do not pay for torch."""
    if options.command == "sample":
        from trainer.sample import sample

        print(
            sample(
                options.run_dir,
                options.prompt,
                options.max_new_tokens,
                options.temperature,
                options.top_k,
                options.seed,
            )
        )
        return ExitCode.DONE
    config = load_config(options.config, overrides)
    if options.command == "prepare":
        from trainer.prepare import prepare

        prepare(config)
        return ExitCode.DONE
    if options.command == "entrypoint":
        from trainer.entrypoint import run_entrypoint

        return run_entrypoint(config, ["--config", options.config, *overrides])
    from trainer.worker import run_worker

    return run_worker(config)


if __name__ == "__main__":
    sys.exit(main())
