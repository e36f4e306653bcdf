"""Optional modules of Python, and programs that tests run: their output and their metrics."""

import contextlib
import importlib
import json
import pathlib
import subprocess
import tempfile


def package(name):
    """The module; if it is not installed, None and a printed line that says so."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"not compared with {name}: {error}")
        return None


def ended(*words, status=0, **more):
    """Runs a program that must exit with `status`; returns the completed process with its two outputs."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, encoding="utf-8", errors="replace", timeout=600, **more)
    assert done.returncode == status, f"{words}: status {done.returncode}, said {done.stdout}{done.stderr}"
    return done


def run(*words, **more):
    """The text that a program writes to stdout and stderr."""
    done = ended(*words, **more)
    return done.stdout + done.stderr


@contextlib.contextmanager
def temporary_folder():
    with tempfile.TemporaryDirectory() as name:
        yield pathlib.Path(name)


def axes(layout):
    """The options for a layout (data, tensor, pipeline)."""
    return [word for name, size in zip(("data", "tensor", "pipeline"), layout) for word in (f"--{name}-parallel", str(size))]


def recorded(path, key="loss"):
    """The lines of a run's metrics that have `key`."""
    return [line for line in map(json.loads, path.read_text().splitlines()) if key in line]


def losses(path):
    return [line["loss"] for line in recorded(path)]
