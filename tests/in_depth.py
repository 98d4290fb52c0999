"""Which tests take so long that `make test` leaves them to `make test-engines`.

`make test` asks every kind of workload its promises once. What takes minutes more is asked where
this variable is set: some questions of every kind in place of one, and the files named here.
"""

import os

VARIABLE = "DISTTRAIN_ALL_ENGINES"
ALL = bool(os.environ.get(VARIABLE))
# Their paths, seen from the folder of this file.
FILES = (
    "e2e/test_controllers_by_manifests.py",
    "e2e/test_controllers_in_depth.py",
    "e2e/test_failed_runs.py",
    "e2e/test_monitoring_installed.py",
    "node/test_mirror_in_depth.py",
    "node/test_server_steps.py",
    "trainer/monitoring/test_alerts_in_depth.py",
    "vm/test_nfs.py",
)
