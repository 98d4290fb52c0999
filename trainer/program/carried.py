"""Starts the trainer's launcher in an image of the user's own.

`carry` copies this file, as START_FILE, to the folder with the packages that the launcher needs.
Python looks for packages in the folder of the script that it runs, but its child processes do not
inherit that. So the user's program does not see the launcher's packages. Python 3.6 and newer can
read this file.
"""

import shutil
import sys

if sys.version_info < (3, 11):  # noqa: UP036  # the Python of the user's image
    version = ".".join(str(part) for part in sys.version_info[:2])
    sys.stderr.write(
        f"fatal: python3 of program.image is Python {version}, and the launcher needs 3.11 or "
        "newer. Use an image with a newer python3 on its PATH.\n"
    )
    sys.exit(78)

if shutil.which("test") is None:  # infra/workloads/pod.py makes it the readiness probe
    sys.stderr.write(
        "fatal: program.image has no program `test` on its PATH, by which Kubernetes sees that the "
        "ranks train. Use an image with coreutils or busybox.\n"
    )
    sys.exit(78)

from trainer.__main__ import main

sys.exit(main())
