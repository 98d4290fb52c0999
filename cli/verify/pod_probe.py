"""Runs inside a pod: prints what the pod sees of GPUs, memory and network, as one line of JSON.

It is sent as text to `python3 -c`, so it imports nothing of this project. Its arguments are the
number of GPUs that the pod asked for, and `compute` if torch is to compute on them. Without
`compute` it uses no GPU memory: it only runs nvidia-smi, and asks torch about its build.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SAMPLES = 5
QUERY = "index,name,compute_cap,utilization.gpu,memory.used"
ASK_TORCH = """
import json, torch
nccl = torch.cuda.nccl.version() if torch.version.cuda and torch.cuda.is_available() else ()
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda or "",
                  "devices": torch.cuda.device_count(), "architectures": torch.cuda.get_arch_list(),
                  "nccl": ".".join(map(str, nccl))}))
"""
# The product of two matrices of ones is exact, so a wrong element is a fault of the device.
COMPUTE = """
import torch
names = [f"cuda:{number}" for number in range(torch.cuda.device_count())] or ["cpu"]
for name in names:
    ones = torch.ones(256, 256, device=name)
    wrong = int((ones @ ones != 256).sum())
    if wrong:
        raise SystemExit(f"{name}: {wrong} of 65536 products of ones are wrong")
print(torch.__version__)
"""


def run(command: Sequence[str], seconds: int) -> tuple[str, str]:
    """Run a command; return its output, and an empty text or the reason why it has failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except FileNotFoundError:
        return "", f"there is no {command[0]}"
    except subprocess.TimeoutExpired:
        return "", f"{command[0]} gave no answer in {seconds} s"
    words = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no words"]
    return (done.stdout, "") if done.returncode == 0 else ("", f"{command[0]}: {words[0]}")


def gpus() -> tuple[list[dict[str, Any]], str]:
    """Return the GPUs, each with the highest utilisation of some samples.

    The second value is an empty text, or the reason why nvidia-smi has failed.
    """
    found = dict[str, dict[str, Any]]()
    ask = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    for _ in range(SAMPLES):
        text, problem = run(ask, 20)
        if problem:
            return [], problem
        for row in text.strip().splitlines():
            index, name, capability, busy, memory = [cell.strip() for cell in row.split(",")]
            before = found.get(index, {}).get("busy_percent", 0)
            found[index] = {
                "name": name,
                "capability": capability,
                "busy_percent": max(before, int(busy) if busy.isdigit() else 0),
                "memory_mib": int(memory) if memory.isdigit() else 0,
            }
        time.sleep(0.5)
    return list(found.values()), ""


def shared_memory_bytes() -> int:
    """Return the size of /dev/shm, through which the ranks of a pod exchange data."""
    size = os.statvfs("/dev/shm")
    return size.f_blocks * size.f_frsize


def main() -> None:
    """Print the line of JSON."""
    wants_gpus = sys.argv[1] != "0"
    seen, problem = gpus() if wants_gpus else ([], "")
    text, torch_problem = run([sys.executable, "-c", ASK_TORCH], 120) if wants_gpus else ("{}", "")
    if "compute" in sys.argv[2:]:
        computed, compute_problem = run([sys.executable, "-c", COMPUTE], 300)
    else:
        computed, compute_problem = "", ""
    names = ("NCCL_", "GLOO_", "FI_", "PET_", "DISTTRAIN_TRANSPORTS", "CUDA_LAUNCH_BLOCKING")
    answer = {
        "gpus": seen,
        "gpu_problem": problem,
        "torch": json.loads(text) if text else {},
        "torch_problem": torch_problem,
        "computed": computed.strip(),
        "compute_problem": compute_problem,
        "shared_memory_bytes": shared_memory_bytes(),
        "pinned_memory_bytes": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],  # -1: no limit
        "interfaces": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(names)},
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
