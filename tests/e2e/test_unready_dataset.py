"""What `pulumi up` says while the data set cannot be made. `make test-engines` runs this file."""

import hashlib
from pathlib import Path

import pytest

from sandbox.stack import PulumiFailedError
from tests.e2e.lab import Lab

NAME, JOB = "e2e-unready", "download-tiny-shakespeare"
NOBODY = "http://127.0.0.1:9/text.txt"  # nothing listens there in a pod


def test_download_that_fails_shows_why(lab: Lab, tmp_path: Path) -> None:
    """While the download is tried again, `up` shows why. The provider shows the last lines of the
    pod that gave up. With a text that is there, the next `up` trains.
    """
    wrong = {
        "datasetFile": None,
        "datasetUrl": NOBODY,
        "datasetSha256": hashlib.sha256(lab.text.read_bytes()).hexdigest(),
        # Another test may have prepared this data set in the usual folder.
        "dataRoot": str(tmp_path / "data"),
    }
    stack = lab.stack(NAME, "sandbox", wrong)
    try:
        with pytest.raises(PulumiFailedError) as failed:
            stack.up()
        said = " ".join(str(failed.value).split())
        shown = f"waiting for the data set's Job {JOB}; dataset.url: {NOBODY} not reached"
        assert shown in said, said
        assert f"dataset.url: {NOBODY} not reached: [Errno 111] Connection refused (5 att" in said
        assert "cannot be shown" not in said
        stack.set_all({"datasetUrl": None, "datasetSha256": None, "datasetFile": str(lab.text)})
        assert "all ranks have stepped" in stack.up()
    finally:
        stack.destroy()
