"""What Python may have."""

import importlib


def package(name):
    """None, and a line that says so, where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"not compared with {name}: {error}")
        return None
