"""Scripts that change a machine take turns."""

import fcntl
import subprocess
from pathlib import Path

from infra.node.shell_program import script_text

WAITS = "another run is at work on this host"


def test_removed_lock_is_taken_anew(tmp_path: Path) -> None:
    """The run that removes k3s also removes the file of the lock. A run that waited for it does not
    go on beside a third one, which has locked a new file meanwhile.
    """
    lock = tmp_path / "lock"
    text = f"set -eu\nLOCK={lock}\n{script_text('lib/turn.sh')}\none_at_a_time\necho works\n"
    removes = lock.open("w")
    fcntl.flock(removes, fcntl.LOCK_EX)
    script = subprocess.Popen(
        ["sh", "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert script.stderr is not None
    assert WAITS in script.stderr.readline()
    lock.unlink()
    third = lock.open("w")
    fcntl.flock(third, fcntl.LOCK_EX)
    removes.close()
    assert WAITS in script.stderr.readline()
    third.close()
    assert script.communicate() == ("works\n", "")
    assert lock.exists()
