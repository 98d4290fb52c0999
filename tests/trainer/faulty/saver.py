"""A process that saves one checkpoint after the other below FOLDER, until its input ends.

`python -m tests.trainer.faulty.saver FOLDER`; it tells a line of JSON for each that it has saved.
"""

import json
import select
import sys
from pathlib import Path
from typing import Any

from tests.vm.guest import training


def tell(value: Any) -> None:
    print(json.dumps(value), flush=True)


def should_stop() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    training.RUN = Path(sys.argv[1])
    training.ROOT = training.RUN / "checkpoints"
    training.train(tell, should_stop, wait_seconds=10.0, killed_at=0)
