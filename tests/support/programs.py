"""What Python may have, programs that it runs, and what these leave behind."""

import importlib
import json
import subprocess


def package(name):
    """None, and a line that says so, where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"not compared with {name}: {error}")
        return None


def ended(*words, status=0, **more):
    """A program with that status, and its two outputs."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, encoding="utf-8", errors="replace", timeout=600, **more)
    assert done.returncode == status, f"{words}: status {done.returncode}, said {done.stdout}{done.stderr}"
    return done


def run(*words, **more):
    """What a program says, to both outputs."""
    done = ended(*words, **more)
    return done.stdout + done.stderr


def axes(layout):
    """Options of (data, tensor, pipeline)."""
    return [word for name, size in zip(("data", "tensor", "pipeline"), layout) for word in (f"--{name}-parallel", str(size))]


def recorded(path, key="loss"):
    """Those lines of a run's metrics that have it."""
    return [line for line in map(json.loads, path.read_text().splitlines()) if key in line]


def losses(path):
    return [line["loss"] for line in recorded(path)]
