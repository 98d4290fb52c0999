"""Which tests take so long that `make test` leaves them to `make test-engines`.

`make test` asks each promise once, in the way in which it breaks most easily. What takes minutes
more is asked where this variable is set: the other ways in which a promise may break (the mark
`in_depth` at a test or at one of its parameters), and the files named here.
"""

import os

import pytest
from _pytest.mark.structures import ParameterSet

VARIABLE = "DISTTRAIN_ALL_ENGINES"
ALL = bool(os.environ.get(VARIABLE))
# Their paths, seen from the folder of this file. A file all of whose tests are in depth has to be
# one of them.
FILES = (
    "e2e/test_controllers_by_manifests.py",
    "e2e/test_controllers_in_depth.py",
    "e2e/test_failed_runs.py",
    "e2e/test_monitoring_installed.py",
    "e2e/test_new_cluster.py",
    "e2e/test_over_ssh.py",
    "e2e/test_queue.py",
    "node/test_mirror_in_depth.py",
    "node/test_server_steps.py",
    "node/test_servers_in_depth.py",
    "sandbox/test_command_over_ssh.py",
    "sandbox/test_command_provider.py",
    "trainer/monitoring/test_alerts_in_depth.py",
    "vm/test_nfs.py",
)
MARK = "in_depth"


def in_depth(*values: object) -> ParameterSet:
    """One set of values of a test's parameters that `make test` leaves out."""
    return pytest.param(*values, marks=pytest.mark.in_depth)
