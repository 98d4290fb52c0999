"""`python3 -m infra.airgap pack|verify|send` handles bundles for machines without a network."""

import argparse
import os
import sys
from pathlib import Path
from typing import TextIO

from infra.airgap.manifest import MANIFEST, damage, missing_files, read_manifest
from infra.airgap.needs import PARTS
from infra.command_line import cache_folder, short_lines

PROJECT = Path(__file__).parent.parent.parent


def main(words: list[str] | None = None) -> int:
    """Run one action, and return the exit status, which is 0 if the action was done."""
    arguments = _parser().parse_args(words)
    try:
        return ACTIONS[arguments.action](arguments)
    except (RuntimeError, ValueError, OSError) as error:
        _say(str(error), sys.stderr)
        return 1


def _pack(arguments: argparse.Namespace) -> int:
    # These modules import Pulumi's SDK, which the other actions do not need.
    from infra.airgap.pack import PackOptions, pack
    from infra.airgap.stack_file import settings_of

    file = Path(arguments.config_file or PROJECT / f"Pulumi.{arguments.stack}.yaml")
    settings = settings_of(file, {"bundle": "", "bundleSha256": ""})
    output = Path(arguments.output).resolve()
    left_out = tuple(sorted({*arguments.without, *_implied(arguments.without)}))
    manifest = pack(PackOptions(settings, output, left_out, Path(arguments.cache)), _say)
    size_bytes = sum(entry.size_bytes for entry in manifest.files)
    _say(f"{output}: {len(manifest.files)} files, {size_bytes / 1e6:,.1f} MB")
    _say(f"sha256 of {MANIFEST}: {manifest.sha256}")
    return 0


def _implied(parts: list[str]) -> set[str]:
    return {"gpu-operator-images"} if "gpu-operator" in parts else set()


def _verify(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.bundle)
    manifest = read_manifest(folder, arguments.sha256)
    problems = missing_files(folder, manifest) or damage(folder, manifest.files)
    for problem in problems:
        _say(problem, sys.stderr)
    if problems:
        _say("nothing was installed; copy the bundle again", sys.stderr)
        return 1
    _say(f"{len(manifest.files)} files are as {MANIFEST} says ({manifest.sha256})")
    return 0


def _send(arguments: argparse.Namespace) -> int:
    from infra.airgap.send import send
    from infra.image.reach import open_node
    from infra.node.node_variable import VARIABLE

    folder = Path(arguments.bundle)
    manifest = read_manifest(folder, arguments.sha256)
    entries = [entry for entry in manifest.files if entry.name in arguments.file]
    with open_node(os.environ[VARIABLE]) as node:
        assert node is not None
        send(node, folder, entries, arguments.to, _say)
    return 0


ACTIONS = {"pack": _pack, "verify": _verify, "send": _send}


def _say(text: str, stream: TextIO | None = None) -> None:
    lines = "\n".join(f"bundle: {line}" for line in text.splitlines())
    for line in short_lines(lines):
        print(line, flush=True, file=stream or sys.stdout)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m infra.airgap", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    pack = actions.add_parser("pack", help="fill a folder with what a stack needs").add_argument
    pack("--stack", default="dev", help="the stack whose settings are used (default: %(default)s)")
    pack("--config-file", help="the stack's file (default: Pulumi.<stack>.yaml of the checkout)")
    pack("--output", required=True, help="folder of the bundle; intact files in it are kept")
    pack("--without", action="append", default=[], choices=PARTS, help="leave this part out")
    pack(
        "--cache",
        default=str(cache_folder()),
        help="folder that keeps built images (default: %(default)s)",
    )
    verify = actions.add_parser("verify", help="compare every byte with the manifest").add_argument
    verify("bundle", help="its folder")
    verify("--sha256", default="", help="of the manifest, noted elsewhere")
    send = actions.add_parser(
        "send", help="send files to the node (`pulumi up` runs this)"
    ).add_argument
    send("bundle", help="its folder")
    send("--sha256", default="", help="of the manifest")
    send("--to", required=True, help="folder on the node")
    send("--file", action="append", required=True, help="a file of the bundle")
    return parser


if __name__ == "__main__":
    sys.exit(main())
