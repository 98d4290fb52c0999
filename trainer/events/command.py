"""`python -m trainer goodput`: prints the account of a run whose folder is on this machine."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

from trainer.events.account import account_of_file
from trainer.events.cost import cost_of
from trainer.events.event import Events, event_file
from trainer.events.show import as_json, as_text
from trainer.launch.exit_codes import FatalError

PRICE_VARIABLE = "DISTTRAIN_PRICE_PER_GPU_HOUR"


def goodput(events: Events, price_per_gpu_hour: float | None, for_programs: bool) -> str:
    """Return the account as text or JSON.

    Args:
        events: The events of node 0.
        price_per_gpu_hour: The price; with None, no cost is shown.
        for_programs: Whether to return JSON instead of a table.
    """
    account = account_of_file(events)
    cost = None if price_per_gpu_hour is None else cost_of(account, price_per_gpu_hour)
    return (as_json if for_programs else as_text)(account, cost)


def goodput_of_folder(run_dir: Path, price_per_gpu_hour: float | None, for_programs: bool) -> str:
    """Return the account of the run in the folder `run_dir`; see `goodput`.

    Raises:
        FatalError: the folder has no event file, or the file cannot be read.
    """
    path = event_file(run_dir, 0)
    try:
        return goodput(Events.of_file(path), price_per_gpu_hour, for_programs)
    except OSError as error:
        raise FatalError(
            f"{path} cannot be read ({error.strerror}): a run writes it from its first start on. "
            "Look at --config, --data_root and --run_name"
        ) from error


def add_goodput_options(command: argparse.ArgumentParser) -> None:
    """Add the options that the commands of the trainer and of `./disttrain` have in common."""
    command.add_argument("--json", action="store_true", help="print JSON, for programs")
    add_price_option(command)


def add_price_option(command: argparse.ArgumentParser) -> None:
    """Add the option for the price of a GPU, whose default is an environment variable."""
    command.add_argument(
        "--price-per-gpu-hour",
        type=_price,
        metavar="PRICE",
        default=os.environ.get(PRICE_VARIABLE) or None,
        help=f"show what the GPUs cost, in the currency of this price (default: ${PRICE_VARIABLE})",
    )


def _price(text: str) -> float:
    """Read a price.

    Raises:
        ArgumentTypeError: the text is no number from 0 on.
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} cannot be a price: set a number from 0 on, such as 2.5, by the option or "
            f"by the variable {PRICE_VARIABLE}"
        )
    return value
