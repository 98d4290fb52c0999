"""Fixtures for tests of the mirror: a real S3 server, the way to it, buckets and volumes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gate import Gate
from tests.trainer.mirror.checkpoints import write_checkpoint
from tests.trainer.mirror.s3_server import KEY, SECRET, S3Server
from tests.trainer.mirror.volume import Volume


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Yield a real S3 server on this machine, which all tests of the session share."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.close()


@pytest.fixture
def gate(s3_server: S3Server) -> Iterator[Gate]:
    """Yield the way to the server, which a test may close, slow down or cut."""
    gate = Gate(s3_server.address)
    yield gate
    gate.close()


@pytest.fixture
def s3_environment(gate: Gate) -> dict[str, str]:
    """Return the environment of a client of the server, as a Secret gives it to the pods."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{gate.port}",
    }


@pytest.fixture
def bucket(
    s3_server: S3Server,
    gate: Gate,
    s3_environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """Return the name of a new bucket for this test, and set the variables by which this process
    reaches it.
    """
    for name, value in s3_environment.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{uuid.uuid4().hex}"  # unique, because all tests share the server
    s3_server.make_bucket(name)
    return name


@pytest.fixture
def objects(s3_server: S3Server, bucket: str) -> Path:
    """Return the folder in which the server keeps the objects of the bucket."""
    return s3_server.buckets / bucket


@pytest.fixture
def mirrored(tmp_path: Path, bucket: str) -> Volume:
    """Return a volume whose checkpoints 10 and 20 are in the mirror."""
    volume = Volume(tmp_path / "first" / "words", f"s3://{bucket}")
    for step in (10, 20):
        write_checkpoint(volume.root, step)
        volume.push()
    return volume
