"""A run's folder on a volume, and its mirror."""

from pathlib import Path
from typing import Any

from trainer.config import RunConfig
from trainer.mirror.push import Pusher, mirror_folder
from trainer.mirror.remote_folder import RemoteFolder


class Volume:
    """A run's directory and its mirror below `url`."""

    def __init__(self, run_dir: Path, url: str, **settings: Any) -> None:
        self.run_dir, self.said = run_dir, list[str]()
        checkpoint: dict[str, Any] = {"mirror": url, "keep_last": 2, **settings}
        self.config = RunConfig.from_mapping(
            {"run_name": "words", "checkpoint": checkpoint, "dataset": {"file": "text"}}
        )
        self.root = run_dir / "checkpoints"

    @property
    def mirror(self) -> RemoteFolder:
        return mirror_folder(self.config)

    def pusher(self) -> Pusher:
        return Pusher(self.config.checkpoint, self.run_dir, self.mirror, self.said.append)

    def push(self) -> None:
        """Push as the mirror's process does, until the mirror has everything."""
        pusher = self.pusher()
        while pusher.push_next():
            pass
