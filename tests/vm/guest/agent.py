"""Runs in the virtual machine: calls functions for requests on a serial port, and answers there.

Each request and each answer is a line of JSON. A request is `{"call": "module:function", "words":
{...}, "seconds": 60}`. The answer is `{"value": ...}`, or `{"error": ...}` with the traceback of
the failure. A function that takes longer than `seconds` is interrupted, and the traceback shows
where it was.
"""

from __future__ import annotations

import importlib
import json
import signal
import sys
import traceback
import tty
from pathlib import Path
from types import FrameType
from typing import Any


def main(port: Path) -> None:
    """Answer requests at this serial port for ever."""
    with port.open("r+b", buffering=0) as line:
        tty.setraw(line.fileno())
        line.write(b'{"value": "ready"}\n')
        request = b""
        while piece := line.read(1):
            request += piece
            if piece == b"\n":
                answer = json.dumps(_answer(json.loads(request))).encode() + b"\n"
                while answer:
                    answer = answer[line.write(answer) :]
                request = b""


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    module, _, function = request["call"].partition(":")
    signal.signal(signal.SIGALRM, _time_is_over)
    signal.alarm(request["seconds"])
    try:
        return {"value": getattr(importlib.import_module(module), function)(**request["words"])}
    except Exception:
        return {"error": traceback.format_exc()}
    finally:
        signal.alarm(0)


def _time_is_over(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError("the time of this call is over")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
