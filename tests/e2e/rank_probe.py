"""A program whose ranks report the environment in which each of them runs.

It runs inside the pods as a user's own program (setting `program`). Therefore it reports what a
rank really gets, and not what a manifest says. The ranks meet at the address that they are given.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from infra.image.plan import code_files
from infra.names import DATA_MOUNT, PROGRAM_MOUNT, RUN_CONFIG_PATH
from sandbox.venvs import PROJECT

FILE = "probe.py"
WORDS = ("one word", "--two=3")  # arguments of the program
GREETING = "good morning"  # the value of the setting podEnvironment.GREETING
MOUNTS = {
    DATA_MOUNT: "rw",
    "/dev/shm": "rw",
    PROGRAM_MOUNT: "ro",
    str(Path(RUN_CONFIG_PATH).parent): "ro",
}
_TOLD = "ranks"  # a folder in the run's folder
PROGRAM = f"""
import hashlib, json, os, socket, sys, time
from pathlib import Path

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MASTER = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def meet():
    # Rank 0 waits for all others; each of them is told the number of all that have come.
    if RANK == 0:
        with socket.create_server(("", MASTER[1])) as server:
            ends = [server.accept()[0] for _ in range(WORLD - 1)]
        ranks = sorted(end.recv(1)[0] for end in ends)
        for end in ends:
            end.sendall(bytes(ranks))
            end.close()
        return ranks
    while True:
        try:
            end = socket.create_connection(MASTER, 5)
            break
        except OSError:
            time.sleep(0.05)
    end.settimeout(None)
    end.sendall(bytes([RANK]))
    ranks = b""
    while part := end.recv(WORLD):
        ranks += part
    return list(ranks)


def mounts():
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return {{line[1]: line[3].split(",")[0] for line in lines if line[1] in {[*MOUNTS]!r}}}


def code():
    digest = hashlib.sha256()
    for path in sorted(Path("/app/trainer").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(path.relative_to("/app").as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


told = {{
    "rank": RANK,
    "world": WORLD,
    "local_rank": int(os.environ["LOCAL_RANK"]),
    "local_world": int(os.environ["LOCAL_WORLD_SIZE"]),
    "node": int(os.environ["NODE_RANK"]),
    "met": meet(),
    "same": {{
        "arguments": sys.argv,
        "folder": os.getcwd(),
        "user": os.getuid(),
        "greeting": os.environ.get("GREETING"),
        "mounts": mounts(),
        "code": code(),
        "config": Path({RUN_CONFIG_PATH!r}).read_text(),
    }},
}}
folder = Path(os.environ["DISTTRAIN_RUN_DIR"], {_TOLD!r})
folder.mkdir(exist_ok=True)
(folder / f"{{RANK}}.json").write_text(json.dumps(told))
"""


def code_of_the_checkout() -> str:
    """Return what the program reports as `code` if the image has the trainer of this checkout."""
    digest = hashlib.sha256()
    for name, file in code_files(PROJECT):
        digest.update(name.encode() + file.read_bytes())
    return digest.hexdigest()


def told_by_ranks(run_dir: Path) -> list[dict[str, Any]]:
    """Return what each rank of a run has reported, in the order of the ranks."""
    found = [json.loads(file.read_text()) for file in (run_dir / _TOLD).glob("*.json")]
    return sorted(found, key=lambda told: told["rank"])
