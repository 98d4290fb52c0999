"""Everything a target needs before it starts, and no more."""

import argparse
import importlib.util

from sandbox import packages, toolchain
from sandbox.base_image import ensure_base_image
from sandbox.pulumi_home import plugin_home
from sandbox.venvs import ensure_venv


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `python -m sandbox setup`."""
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--only-dev", action="store_true", help="the developers' virtualenv alone")
    only.add_argument("--for-tests", action="store_true", help="also what the tests need")


def run(arguments: argparse.Namespace) -> None:
    """Install what is missing for the chosen scope."""
    ensure_venv_module()
    if arguments.only_dev or arguments.for_tests:
        ensure_venv(".venv-dev")
    if not arguments.only_dev:
        prepare_sandbox(for_tests=arguments.for_tests)


def prepare_sandbox(*, for_tests: bool = False) -> None:
    """Packages, Pulumi's virtualenv, tools, plugins and the base image."""
    ensure_venv_module()
    groups = [packages.CLUSTER_PACKAGES, *([packages.TEST_PACKAGES] if for_tests else [])]
    packages.ensure_packages(*groups)
    ensure_venv(".venv")
    toolchain.bin_dir()
    plugin_home()
    ensure_base_image()


def ensure_venv_module() -> None:
    """Debian and Ubuntu split `venv` off Python; install it where it is missing."""
    if importlib.util.find_spec("ensurepip") is None:
        packages.ensure_packages({"/no/such/program": "python3-venv"})
