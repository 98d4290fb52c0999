"""When a run is stopped, the first process of each rank is asked to save, and so is what a shell
leaves behind.
"""

from __future__ import annotations

import sys
import textwrap

from tests.trainer.program.desk import LIMIT_SECONDS, Desk
from trainer.launch.exit_codes import ExitCode

PATTERN = r"step (?P<step>\d+)"

# It takes more batches after the stop than the workers had made before it: two for each of them.
LOADS_DATA = """
    import os, pathlib, signal, torch
    from torch.utils.data import DataLoader, Dataset
    class Numbers(Dataset):
        def __len__(self): return 10**9
        def __getitem__(self, index): return torch.zeros(4)
    asked = False
    def stop(number, frame):
        global asked
        asked = True
    signal.signal(signal.SIGTERM, stop)
    after = 0
    for step, batch in enumerate(DataLoader(Numbers(), num_workers=2)):
        print("step", step)
        after += asked
        if after > 100:
            pathlib.Path(os.environ["DISTTRAIN_CHECKPOINT_DIR"], "saved").touch()
            raise SystemExit(0)
"""


def test_program_with_data_loader_workers_saves(desk: Desk) -> None:
    """Workers of a data loader get no SIGTERM, so that the program can go on to its save. They have
    no handler and would die, and the program would end with an error.
    """
    config = desk.python(LOADS_DATA, progress=PATTERN)
    pod = desk.start(config)
    desk.wait_for("program: step")
    pod.terminate()
    assert pod.wait(LIMIT_SECONDS) == ExitCode.PREEMPTED, desk.log()
    assert (config.program_dir / "saved").exists(), desk.log()


SAVES = """
    import os, pathlib, signal, sys, time
    def stop(number, frame):
        pathlib.Path(os.environ["DISTTRAIN_CHECKPOINT_DIR"], "saved").touch()
        sys.exit(143)
    signal.signal(signal.SIGTERM, stop)
    print("step 1", flush=True)
    time.sleep(3600)
"""


def test_ranks_of_torchrun_below_a_shell_save(desk: Desk) -> None:
    """Ranks of a torchrun below a shell save when the run is stopped. SIGTERM ends the shell at
    once; then torchrun gets it and passes it on to its ranks.
    """
    path = desk.root / "ranks.py"
    path.write_text(textwrap.dedent(SAVES))
    command = f"{sys.executable} -m torch.distributed.run {path}; true"
    config = desk.config("sh", "-c", command, per="node", progress=PATTERN)
    pod = desk.start(config)
    desk.wait_for("program: step 1")
    pod.terminate()
    assert pod.wait(LIMIT_SECONDS) == ExitCode.PREEMPTED, desk.log()
    assert (config.program_dir / "saved").exists(), desk.log()


def test_program_without_its_variables_saves_below_a_shell(desk: Desk) -> None:
    """A program below a shell saves also if its variables cannot be read. `env -i` removes them,
    and setproctitle writes a title over them.
    """
    path = desk.root / "below.py"
    path.write_text(textwrap.dedent(SAVES))
    folder = "DISTTRAIN_CHECKPOINT_DIR=$DISTTRAIN_CHECKPOINT_DIR"
    command = f"env -i {folder} {sys.executable} {path}; true"
    config = desk.config("sh", "-c", command, progress=PATTERN)
    pod = desk.start(config)
    desk.wait_for("program: step 1")
    pod.terminate()
    assert pod.wait(LIMIT_SECONDS) == ExitCode.PREEMPTED, desk.log()
    assert (config.program_dir / "saved").exists(), desk.log()
