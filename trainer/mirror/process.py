"""The process that keeps the mirror up to date beside the training of node 0.

It is a separate process, so that neither hashing nor a store that does not answer slows the
training down, and so that it goes on while the ranks are restarted.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from trainer.config import RunConfig
from trainer.launch.exit_codes import ExitCode, FatalError
from trainer.launch.lifeline import follow_entrypoint, started_by_entrypoint
from trainer.mirror.push import Pusher, mirror_folder
from trainer.mirror.remote_folder import StoreError
from trainer.mirror.status import note_problem

_POLL_SECONDS = 2.0
_PAUSES_SECONDS = (2.0, 5.0, 15.0, 30.0)  # after the first, second ... failure in a row


def run_mirror(config: RunConfig) -> ExitCode:
    """Copy checkpoints until the entrypoint asks to finish; then copy what is left, and end.

    If it was started by hand, it copies what there is and ends. If the store does not let it
    finish, the entrypoint kills it (trainer/launch/mirror.py).

    Raises:
        FatalError: no installed library reaches the mirror, or another volume fills it. The run's
            mirror.json says so too.
    """
    finish = threading.Event()
    if started_by_entrypoint():
        follow_entrypoint(finish.set)
    else:
        finish.set()
    try:
        mirror = mirror_folder(config)
    except FatalError as error:
        with suppress(OSError):
            note_problem(config.run_dir, str(error))
        raise
    pusher = Pusher(config.checkpoint, config.run_dir, mirror, _say)
    failures = 0
    while True:
        is_finishing = finish.is_set()
        try:
            if pusher.push_next():
                failures = 0
                continue
            if pusher.status.problem:
                pusher.note_problem("")
            if is_finishing:
                return ExitCode.DONE
            pause = _POLL_SECONDS
        except FatalError as error:
            pusher.status.copying_step = None  # it need not stay on the volume any more
            with suppress(OSError):
                pusher.note_problem(str(error))
            raise
        except (StoreError, OSError) as error:  # an error of the store, or of the volume
            if not failures:
                _say(f"warning: {error}; training goes on, and the copy is tried again")
            pause = _PAUSES_SECONDS[min(failures, len(_PAUSES_SECONDS) - 1)]
            failures += 1
            with suppress(OSError):  # a full volume refuses this too
                pusher.note_problem(str(error))
        if is_finishing:
            time.sleep(min(pause, _POLL_SECONDS))
        else:
            finish.wait(pause)


def _say(text: str) -> None:
    print(f"[mirror] {text}", flush=True)
