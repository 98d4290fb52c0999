"""Records what a real run of four ranks writes when one of them ends, for each kind of accident.

    python -m tests.cli.logs.make_crashes [KIND ...]

Two pods with two ranks each train on the CPU with gloo. The first line of a recording has the rank
and the node of the accident, and the second line has the words of its error. Both come from the
accident that was done, and never from what `./disttrain logs --first-error` says.
"""

import random
import sys
import sysconfig
import tempfile
from pathlib import Path

from tests.trainer.accidents import Accident
from tests.trainer.fatal_accidents import WITHOUT_A_WORD, WORKS
from tests.trainer.forked import Nursery
from tests.trainer.lab import CHECKOUT, Lab, free_port, last_step, text_of_words, wait_for
from trainer.launch.run_log import log_path

FOLDER = Path(__file__).parent / "crashes"
NODES, RANKS_OF_NODE = 2, 2
ENDLESS = {"train__max_steps": 100_000, "train__max_restarts": 0, "log__interval": 50}
WORDS = {
    "wrong-batch": "Expected input batch_size (64) to match target batch_size (63)",
    "unknown-token": "IndexError: index out of range in self",
    "wrong-shapes": "mat1 and mat2 shapes cannot be multiplied",
    "no-memory": "can't allocate memory",
    "file-became-shorter": "was ended by SIGBUS",
    "no-word": f"ended by itself with exit status {WITHOUT_A_WORD}",
    "abort": "was ended by SIGABRT",
    "missing-module": "No module named 'flash_attention_of_another_image'",
    "too-many-files": "Too many open files",
    "endless-recursion": "RecursionError: maximum recursion depth exceeded",
    "exit-of-python": "SystemExit: the licence server does not answer",
}
# NCCL also ends a rank in this way when another rank is lost, so it may be only a consequence.
WEIGHTS = {"abort": "suspect"}


def record(kind: str, nursery: Nursery) -> None:
    """Make the recording of one kind of accident, as a file in crashes/."""
    rank = random.Random(kind).randrange(NODES * RANKS_OF_NODE)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "words.txt").write_text(text_of_words())
        lab = Lab(root, root / "words.txt", nursery)
        try:
            accident = Accident(kind, rank, str(root / "begun"))
            run, port = lab.config(**ENDLESS), free_port()
            pods = [
                lab.start_entrypoint(run, node, NODES, RANKS_OF_NODE, port, accidents=[accident])
                for node in range(NODES)
            ]
            wait_for("30 steps", lambda: last_step(run) > 30, 120, lab)
            accident.begin()
            for pod in pods:
                pod.wait(120)
            logs = [log_path(run.run_dir, node).read_text() for node in range(NODES)]
        finally:
            lab.end_all()
        lines = sorted(line for log in logs for line in log.splitlines())
        head = [
            f"# {WEIGHTS.get(kind, 'cause')}; node {rank // RANKS_OF_NODE} rank {rank}",
            f"# {WORDS[kind]}",
            "# recorded: the trainer, gloo, this accident",
        ]
        text = "\n".join([*head, *lines, ""])
    for here, there in (
        (str(CHECKOUT), "/app"),
        (sysconfig.get_path("purelib"), "/usr/local/lib/python3.11/site-packages"),
        (sysconfig.get_path("stdlib"), "/usr/local/lib/python3.11"),
        (str(root), "/data"),
    ):
        text = text.replace(str(Path(here).resolve()), there).replace(here, there)
    (FOLDER / f"gloo-{kind}.txt").write_text(text)
    print(f"{kind}: rank {rank}", flush=True)


def main(kinds: list[str]) -> None:
    """Record these kinds of accidents, or all of them."""
    nursery = Nursery()
    try:
        for kind in kinds or WORKS:
            record(kind, nursery)
    finally:
        nursery.close()


if __name__ == "__main__":
    main(sys.argv[1:])
