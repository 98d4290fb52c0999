"""The option `--stack` of the commands about a run, or about a platform and its volume."""

import argparse

_SELECTED = "(default: the selected stack)"


def add_stack_of_run(parser: argparse.ArgumentParser) -> None:
    """Add the option `--stack` of a command about the run of one stack."""
    parser.add_argument("--stack", default="", help=f"the stack that has the run {_SELECTED}")


def add_stack_of_platform(parser: argparse.ArgumentParser, default: str = "") -> None:
    """Add the option `--stack` of a command for which all stacks of one platform are the same.

    `default` is argparse.SUPPRESS if another parser of the command sets the default.
    """
    parser.add_argument("--stack", default=default, help=f"any stack of the platform {_SELECTED}")
