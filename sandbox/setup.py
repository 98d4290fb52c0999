"""The command `python3 -m sandbox setup`: installs what a target of the Makefile needs."""

import argparse
import importlib.util

from sandbox import packages
from sandbox.base_image import ensure_base_image
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.older import OLDER
from sandbox.pulumi_home import plugin_home
from sandbox.toolchain import bin_dir, is_missing, tool_folder
from sandbox.tools import controllers, services
from sandbox.tools.cluster import TOOLS
from sandbox.tools.tool import Tool
from sandbox.venvs import ensure_venv

FOR_TESTS = (
    services.S3_SERVER,
    services.IMAGE_REGISTRY,
    services.PROMETHEUS_SERVER,
    services.ALERTMANAGER_SERVER,
    services.GPU_STAND_IN,
    controllers.JOBSET_CHART,
    controllers.KUEUE_CHART,
    controllers.MPI_OPERATOR_MANIFESTS,
    controllers.VOLCANO_MANIFESTS,
    controllers.TRAINING_OPERATOR_MANIFESTS,
    controllers.TRAINER_MANIFESTS,
    controllers.LWS_MANIFESTS,
)
FOR_TESTS_IN_DEPTH = (
    services.PROMETHEUS_IN_CLUSTER,
    services.PROMETHEUS_OPERATOR,
    services.MULTUS,
    controllers.VOLCANO_WEBHOOKS,
    *(controller.tool for controller in OLDER.values()),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python3 -m sandbox setup`."""
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--only-dev", action="store_true", help="the developers' virtualenv alone")
    only.add_argument("--for-tests", action="store_true", help="also what the tests need")
    only.add_argument(
        "--for-tests-in-depth", action="store_true", help="also what `make test-engines` needs"
    )
    only.add_argument(
        "--missing",
        action="store_true",
        help="install nothing; name the tools of the tests that are not in the cache, a line each",
    )


def run(arguments: argparse.Namespace) -> None:
    """Install what the chosen option needs and this machine lacks."""
    if arguments.missing:
        for tool in filter(is_missing, tools_of_tests()):
            print(tool.name, tool.version)
        return
    ensure_venv_module()
    for_tests = arguments.for_tests or arguments.for_tests_in_depth
    if arguments.only_dev or for_tests:
        ensure_venv(".venv-dev")
    if not arguments.only_dev:
        prepare_sandbox(for_tests=for_tests)
    if for_tests:
        ensure_venv("policy/.venv")
    if arguments.for_tests_in_depth:
        ensure_venv(".venv-kubeflow")
        for tool in FOR_TESTS_IN_DEPTH:
            tool_folder(tool)


def prepare_sandbox(*, for_tests: bool = False) -> None:
    """Install the packages, Pulumi's virtualenv, the tools, the plugins and the base image."""
    ensure_venv_module()
    groups = [packages.CLUSTER_PACKAGES, *([packages.TEST_PACKAGES] if for_tests else [])]
    packages.ensure_packages(*groups)
    ensure_venv(".venv")
    bin_dir()
    plugin_home()
    ensure_base_image()
    if for_tests:
        for tool in tools_of_tests():
            tool_folder(tool)


def tools_of_tests() -> list[Tool]:
    """The sandbox's tools, and the tools that only the tests need."""
    return [*TOOLS, *FOR_TESTS, *(controller.tool for controller in CONTROLLERS.values())]


def ensure_venv_module() -> None:
    """Install Python's module `venv`, which Debian and Ubuntu keep in a package of its own."""
    if importlib.util.find_spec("ensurepip") is None:
        packages.install_packages(["python3-venv"])
