"""Measures `prepare`: its speed for each core, and its memory and result if it is killed.

DISTTRAIN_BENCH_TEXT_MB sets the size, in MB, of the text whose preparation is killed five times
(default 2,000). DISTTRAIN_GPT2_RANKS has to name the file of GPT-2's ranks if tiktoken cannot
download it.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.row import Row
from bench.runs import CHECKOUT
from trainer.config import RunConfig
from trainer.data.gpt2_tokenizer import Gpt2Tokenizer
from trainer.data.stream import read_progress
from trainer.parallel.cores import available_cores

_SPEED_BYTES = 400_000_000
_SAMPLE_BYTES = 10_000_000
_SCALING_BAR = 0.9
_PAIRS = 3
_KILLS = 5
_LARGEST_BYTES = 1_000_000_000
_PROGRAM = """
import sys
from trainer.config import RunConfig
from trainer.data.prepare import prepare
dataset = {"name": "d", "file": sys.argv[2], "tokenizer": sys.argv[3]}
config = RunConfig.from_mapping({"data_root": sys.argv[1], "dataset": dataset})
prepare(config, workers=int(sys.argv[4]))
"""


def speed(root: Path) -> list[Row]:
    """The rows of text per second of CPU time against tiktoken, and of one program against several.

    Several programs side by side, with one process each, show what the machine can do at most,
    because two of its cores may be threads of one core.
    """
    cores = available_cores()
    text = _write_text(root / "speed.txt", _SPEED_BYTES)
    parts = _split(text, cores)
    with text.open() as file:
        sample = file.read(_SAMPLE_BYTES)
    tokenizer = Gpt2Tokenizer()
    tokenizer.encode("")  # the first call loads the table
    begin = time.process_time()
    tokenizer.encode(sample)
    alone = len(sample) / (time.process_time() - begin)
    walls_together, walls_apart, spent = list[float](), list[float](), list[float]()
    for _ in range(_PAIRS):
        before = _spent_seconds()
        walls_together.append(_wall_seconds(root, [(text, cores)]))
        spent.append(_spent_seconds() - before)
        walls_apart.append(_wall_seconds(root, [(part, 1) for part in parts]))
    one = _wall_seconds(root, [(text, 1)])
    together, apart = statistics.median(walls_together), statistics.median(walls_apart)
    share = _SPEED_BYTES / statistics.median(spent) / alone
    size = f"{_SPEED_BYTES / 1e6:.0f} MB of text"
    return [
        Row(
            f"prepare, GPT-2's tokens of {size}: per second of CPU time, everything in it, against "
            f"tiktoken on {_SAMPLE_BYTES / 1e6:.0f} MB of it, {cores} cores",
            ">= 80 %",
            f"{share:.0%} of {alone / 1e6:.1f} MB/s; wall time {one:.0f} s with 1 process, "
            f"{together:.0f} s with {cores}",
            share >= 0.8,
        ),
        Row(
            f"prepare, GPT-2's tokens of {size}: speed of {cores} processes against {cores} "
            "programs of one process each, side by side on parts of the text",
            f">= {_SCALING_BAR:.2f}x",
            f"{apart / together:.2f}x (medians of {_PAIRS} pairs); {one / together:.2f}x of one "
            f"process alone, the programs side by side {one / apart:.2f}x",
            apart / together >= _SCALING_BAR,
        ),
    ]


def _spent_seconds() -> float:
    """Processor time, in seconds, of all child processes that have ended so far."""
    times = os.times()
    return times.children_user + times.children_system


def _wall_seconds(root: Path, texts: list[tuple[Path, int]]) -> float:
    """How long programs side by side take. Each prepares one text with its number of processes."""
    folders = [root / f"speed-{number}" for number in range(len(texts))]
    begin = time.perf_counter()
    running = [
        subprocess.Popen(_command(folder, text, "gpt2", workers), cwd=CHECKOUT)
        for folder, (text, workers) in zip(folders, texts, strict=True)
    ]
    codes = [process.wait() for process in running]
    seconds = time.perf_counter() - begin
    if any(codes):
        raise RuntimeError(f"prepare ended with {codes}")
    for folder in folders:
        shutil.rmtree(folder)
    return seconds


def _split(text: Path, count: int) -> list[Path]:
    """Write the text as `count` files of about the same number of lines, and return their paths."""
    lines = text.read_bytes().splitlines(keepends=True)
    paths: list[Path] = []
    for number in range(count):
        path = text.with_suffix(f".{number}")
        share = slice(number * len(lines) // count, (number + 1) * len(lines) // count)
        path.write_bytes(b"".join(lines[share]))
        paths.append(path)
    return paths


def kills(root: Path) -> list[Row]:
    """The row of peak memory (sum of PSS of all processes, every 0.2 s) if `prepare` is killed."""
    size = int(float(os.environ.get("DISTTRAIN_BENCH_TEXT_MB", "2000")) * 1e6)
    text, workers = _write_text(root / "large.txt", size), available_cores()
    peak = [0]
    begin = time.perf_counter()
    _run_to_end(root / "undisturbed", text, workers, peak)
    seconds = time.perf_counter() - begin
    wanted = _digest_and_remove(root / "undisturbed")
    killed, folder = 0, root / "killed"
    for kill in range(1, _KILLS + 1):
        process = subprocess.Popen(_command(folder, text, "char", workers), cwd=CHECKOUT)
        with _watched(process.pid, peak):
            while process.poll() is None and _bytes_done(folder) < kill * size // (_KILLS + 1):
                time.sleep(0.1)
        if process.poll() is None:
            process.kill()
            killed += 1
        process.wait()
    _run_to_end(folder, text, workers, peak)
    is_equal = _digest_and_remove(folder) == wanted
    return [
        Row(
            f"prepare, {size / 1e6:,.0f} MB of text by characters, {killed} kills on the way",
            "<= 1 GB, result as undisturbed",
            f"peak {peak[0] / 1e6:.0f} MB (sum of the PSS of {workers} workers and their parent); "
            f"result {'equal' if is_equal else 'DIFFERENT'}; undisturbed {seconds:.0f} s",
            peak[0] <= _LARGEST_BYTES and is_equal and killed == _KILLS,
        )
    ]


def _command(root: Path, text: Path, tokenizer: str, workers: int) -> list[str]:
    return [sys.executable, "-c", _PROGRAM, str(root), str(text), tokenizer, str(workers)]


def _run_to_end(root: Path, text: Path, workers: int, peak: list[int]) -> None:
    process = subprocess.Popen(_command(root, text, "char", workers), cwd=CHECKOUT)
    with _watched(process.pid, peak):
        assert process.wait() == 0


def _bytes_done(root: Path) -> int:
    return read_progress(root / "datasets" / ".d.partial").bytes


def _digest_and_remove(root: Path) -> dict[str, str]:
    config = RunConfig.from_mapping({"data_root": str(root), "dataset": {"name": "d", "file": "x"}})
    sums: dict[str, str] = {}
    for path in sorted(config.dataset_dir.iterdir()):
        with path.open("rb") as file:
            sums[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    shutil.rmtree(root)
    return sums


def _write_text(path: Path, size: int) -> Path:
    """Write sentences whose words are as frequent as in natural text (Zipf's law)."""
    draw = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 8))) for _ in range(5000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    with path.open("w") as file:
        while file.tell() < size:
            chosen = draw.choices(words, weights, k=10_000)
            lines = (" ".join(chosen[n : n + 12]).capitalize() for n in range(0, len(chosen), 12))
            file.write(".\n".join(lines) + ".\n")
    return path


@contextmanager
def _watched(pid: int, peak: list[int]) -> Iterator[None]:
    """Raise `peak[0]` to the largest sum of PSS of a process and its children during the block."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.2):
            peak[0] = max(peak[0], sum(_pss_bytes(one) for one in _family(pid)))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(int(child) for child in children)]


def _pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0
