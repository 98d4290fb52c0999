"""How a folder of a store is reached: the region of the requests, and rights that are missing."""

from __future__ import annotations

import pytest

from trainer.mirror.remote_folder import RemoteFolder, StoreError


def test_region_of_the_settings_signs_requests(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`AWS_REGION` is the region of the requests, also where the cluster has given the pods another
    `AWS_DEFAULT_REGION`. A store that has only one region, as this server, refuses any other.
    """
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-elsewhere-1")
    RemoteFolder(f"s3://{bucket}/runs").write("a", b"content")
    assert RemoteFolder(f"s3://{bucket}/runs").read("a") == b"content"
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(StoreError, match="Bad Request"):
        RemoteFolder(f"s3://{bucket}/runs").read("a")
