"""A process that saves one checkpoint after the other, until its standard input ends.

It runs as `python -m tests.trainer.faulty.saver FOLDER`, saves below FOLDER, and prints a line of
JSON for each checkpoint.
"""

import json
import select
import sys
from pathlib import Path
from typing import Any

from tests.vm.guest import training


def tell(value: Any) -> None:
    """Print the value as a line of JSON."""
    print(json.dumps(value), flush=True)


def should_stop() -> bool:
    """Return whether standard input has a line, or has ended."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    training.RUN = Path(sys.argv[1])
    training.ROOT = training.RUN / "checkpoints"
    training.train(tell, should_stop, wait_seconds=10.0, killed_at=0)
