"""Starts the trainer's launcher in an image of the user's own.

`carry` puts it, as START_FILE, beside the packages that the launcher needs. Python adds the folder
of a script to the places where it looks for packages, and tells its children nothing of that: so
the user's program does not see our packages. Python 3.6 and newer can read this file.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  # it is somebody else's Python
    version = ".".join(str(part) for part in sys.version_info[:2])
    sys.stderr.write(
        f"fatal: python3 of program.image is Python {version}, and the launcher needs 3.11 or "
        "newer. Use an image with a newer python3 on its PATH.\n"
    )
    sys.exit(78)

from trainer.__main__ import main

sys.exit(main())
