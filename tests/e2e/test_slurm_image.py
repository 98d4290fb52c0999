"""The trainer image under `srun`, on the distribution's own slurmctld and slurmd.

Apptainer and Pyxis were not available for these tests. A program that starts its command in a
container of the image by runc, with the variables that Slurm has set, is a stand-in for `apptainer
exec IMAGE`. (`srun --container` of Slurm 22.05 gives a container no SLURM_NODEID.)
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import KEPT
from tests.e2e.lab import Lab
from tests.trainer.forked import CHECKOUT, Nursery
from tests.trainer.lab import Lab as TrainerLab
from tests.trainer.lab import assert_bitwise_equal, last_step, loopback, text_of_words
from tests.trainer.slurm import Slurm, slurm_of

NODES = 2
STEPS = 60
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL")
DATA, CONFIG = "/data", "run.yaml"  # in the image


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    with slurm_of(NODES) as made:
        yield made


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[TrainerLab]:
    words, root, nursery = tmp_path / "words.txt", tmp_path / "data", Nursery()
    words.write_text(text_of_words())
    root.mkdir()
    yield TrainerLab(root, words, nursery)
    nursery.close()


@pytest.fixture
def image_root(lab: Lab, tmp_path: Path) -> Iterator[Path]:
    """Yield the folder with the files of the image, read-only."""
    root = tmp_path / "root"
    root.mkdir()
    lab.ctr("images", "mount", KEPT, str(root))
    yield root
    lab.ctr("images", "unmount", "--rm", str(root))


IN_IMAGE = """
import json, os, sys, tempfile
from pathlib import Path

root, data, *command = sys.argv[1:]
of_memory = {"type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]}
spec = {
    "ociVersion": "1.0.2",
    "process": {
        "cwd": "/app",
        "args": command,
        "env": [f"{name}={text}" for name, text in os.environ.items()],
        "user": {"uid": 0, "gid": 0},
    },
    "root": {"path": root, "readonly": True},
    "mounts": [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", **of_memory},
        {"destination": "/dev/shm", **of_memory},
        {"destination": "/tmp", **of_memory},
        {"destination": "/data", "type": "bind", "source": data, "options": ["rbind", "rw"]},
    ],
    # The network is that of the machine.
    "linux": {"namespaces": [{"type": "mount"}, {"type": "pid"}]},
}
bundle = Path(tempfile.mkdtemp(dir=Path(__file__).parent))
(bundle / "config.json").write_text(json.dumps(spec))
os.execvp("runc", ["runc", f"--root={bundle}/state", "run", f"--bundle={bundle}", bundle.name])
"""


def test_image_under_srun_trains_the_same_bits(
    image_root: Path, slurm: Slurm, trainer: TrainerLab, tmp_path: Path
) -> None:
    """The example for Slurm trains in the image, with a launcher on each node, to the end.

    Its weights are the same, bit for bit, as those of ranks without Slurm and without the image.
    """
    run = trainer.config(run_name="slurm", train__max_steps=STEPS, train__spare_processes=False)
    inside = {**run.to_mapping(), "data_root": DATA}
    (trainer.root / CONFIG).write_text(yaml.safe_dump(inside))
    program, log = tmp_path / "in_image.py", tmp_path / "slurm.log"
    program.write_text(IN_IMAGE)
    environment = {
        "CONTAINER": f"{sys.executable} {program} {image_root} {trainer.root}",
        "PYTHON": "/opt/venv/bin/python",
        "GLOO_SOCKET_IFNAME": loopback(),
        "OMP_NUM_THREADS": "1",
    }
    job = slurm.asked(
        "sbatch",
        "--parsable",
        f"--nodes={NODES}",
        f"--chdir={CHECKOUT}",
        f"--output={log}",
        str(CHECKOUT / "examples" / "slurm" / "train.sbatch"),
        f"{DATA}/{CONFIG}",
        environment=environment,
    )
    assert job.isdecimal(), slurm.logs()
    slurm.wait("the end of the job", lambda: slurm.state(job) in ENDED)
    assert slurm.state(job) == "COMPLETED", log.read_text() + slurm.logs()
    assert last_step(run) == STEPS
    whole = trainer.config(run_name="whole", train__max_steps=STEPS, train__spare_processes=False)
    trainer.train(whole, NODES)
    assert_bitwise_equal(whole, run)
