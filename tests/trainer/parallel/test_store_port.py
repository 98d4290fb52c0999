"""Ranks that start before rank 0 connect as soon as rank 0 listens."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from tests.trainer.lab import free_port, rank_environment
from trainer.config import TrainConfig
from trainer.launch.exit_codes import RetryableError
from trainer.parallel import store_port, world
from trainer.parallel.device import choose_compute
from trainer.parallel.store_port import await_store, pause_seconds

LIMIT_SECONDS = 60.0
JOIN = """
import os, sys
from datetime import timedelta
import torch.distributed as dist
from trainer.parallel.store_port import await_store
rank = int(os.environ["RANK"])
if rank == 0:
    sys.stdin.readline()
print("waits", flush=True)
await_store(rank, 3, 60)
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
print("rank", dist.get_rank(), "of", dist.get_world_size(), flush=True)
dist.barrier()
os._exit(0)
"""


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return a free port, which the variables name as that of rank 0."""
    port = free_port()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    return port


def test_rank_waits_until_somebody_listens(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank tries to connect again and again until somebody listens."""
    refused = threading.Event()
    real = socket.create_connection

    def tried(*words: object) -> socket.socket:
        try:
            return real(*words)  # pyright: ignore
        except OSError:
            refused.set()
            raise

    monkeypatch.setattr(store_port.socket, "create_connection", tried)
    waiting = threading.Thread(target=await_store, args=(1, 2, LIMIT_SECONDS))
    waiting.start()
    assert refused.wait(LIMIT_SECONDS)
    assert waiting.is_alive()
    with closing(socket.create_server(("127.0.0.1", port))):
        waiting.join(LIMIT_SECONDS)
        assert not waiting.is_alive()


@pytest.mark.parametrize("limit_seconds", [0.0, 0.2])
def test_wait_ends_where_nobody_comes(port: int, limit_seconds: float) -> None:
    """The wait ends at its limit without an error if nobody listens. Torch then waits and fails
    with its own words.
    """
    assert port
    await_store(1, 2, limit_seconds)


@pytest.mark.parametrize(("rank", "address"), [(0, "127.0.0.1"), (1, None)])
def test_nobody_is_waited_for_without_need(
    port: int, monkeypatch: pytest.MonkeyPatch, rank: int, address: str | None
) -> None:
    """Rank 0, which listens itself, does not wait, nor does a rank without the variables, for which
    torch says what is missing.
    """
    assert port
    if address is None:
        monkeypatch.delenv("MASTER_ADDR")
    before = time.monotonic()
    await_store(rank, 2, 10 * LIMIT_SECONDS)
    assert time.monotonic() - before < LIMIT_SECONDS


def test_rank_joins_the_group_after_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank waits for the store, with the limit of the start, before it joins the group."""
    done = list[str]()

    def join(*_: object, **__: object) -> None:
        done.append("join")
        raise ConnectionError

    monkeypatch.setattr(world, "await_store", lambda *words: done.append(f"await {words}"))
    monkeypatch.setattr(world.dist, "init_process_group", join)
    train = TrainConfig(start_timeout_seconds=70, timeout_seconds=40)
    with pytest.raises(ConnectionError):
        world.World(rank=1, size=2).connect(choose_compute(train, 0), train)
    assert done == ["await (1, 2, 70)", "join"]


@pytest.mark.parametrize(
    ("interface", "over"),
    [("net1", "over the network interface net1 (GLOO_SOCKET_IFNAME) "), ("", "")],
)
def test_network_that_connects_nobody_is_named(
    monkeypatch: pytest.MonkeyPatch, interface: str, over: str
) -> None:
    """Where gloo gets no connection to another rank, the reason names the network interface, both
    causes that this can have, and where to read on. torch's own words name neither.
    """
    torchs = "Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:144] no error"

    def join(*_: object, **__: object) -> None:
        raise RuntimeError(torchs)

    monkeypatch.setattr(world, "await_store", lambda *_: None)
    monkeypatch.setattr(world.dist, "init_process_group", join)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", interface)
    train = TrainConfig()
    with pytest.raises(RetryableError) as failed:
        world.World(rank=1, size=2).connect(choose_compute(train, 0), train)
    said = str(failed.value)
    assert re.match(rf"no connection to all other ranks {re.escape(over)}within \d+ s: ", said)
    assert "one of them has ended" in said
    assert "do not reach each other" in said
    assert "docs/clusters.md#a-faster-network-between-the-machines" in said
    assert torchs in said


def test_join_ends_at_the_start_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that gets no connection gives up when `train.start_timeout_seconds` is over, the wait
    for rank 0 included. gloo itself tries for five times as long.
    """
    never = threading.Event()

    def join(*_: object, **__: object) -> None:
        never.wait(LIMIT_SECONDS)

    monkeypatch.setattr(world, "await_store", lambda *_: None)
    monkeypatch.setattr(world.dist, "init_process_group", join)
    train = TrainConfig(start_timeout_seconds=1, timeout_seconds=1)
    before = time.monotonic()
    try:
        with pytest.raises(RetryableError, match="no connection to all other ranks") as failed:
            world.World(rank=0, size=2).connect(choose_compute(train, 0), train)
    finally:
        never.set()
    assert time.monotonic() - before < LIMIT_SECONDS / 2
    assert "the longer one of train.start_timeout_seconds" in str(failed.value)


def test_many_ranks_ask_less_often() -> None:
    """Where there are many ranks, each asks less often, but at least twice a second."""
    assert pause_seconds(2) == pause_seconds(64) == 0.05
    assert pause_seconds(128) == 0.1
    assert pause_seconds(100_000) == 0.5


def test_connections_that_are_closed_disturb_no_group() -> None:
    """The group is made although the other ranks have connected and closed before. Here rank 0
    comes last.
    """
    port = free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", JOIN],
            env={**os.environ, **rank_environment(rank, 3, port)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    said = list[str]()
    for rank in ranks[1:]:
        assert rank.stdout
        assert rank.stdout.readline() == "waits\n"
    for rank in ranks:
        said.append(rank.communicate("now\n" if rank is ranks[0] else None, LIMIT_SECONDS)[0])
        assert rank.returncode == 0
    assert [text.splitlines()[-1] for text in said] == [f"rank {rank} of 3" for rank in range(3)]
