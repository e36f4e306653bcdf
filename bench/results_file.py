"""Writes results as readable JSON: an object or list of plain values takes one line."""
import json
import pathlib


def text_of(value, margin=""):
    named = isinstance(value, dict)
    if not any(isinstance(part, (dict, list)) for part in (value.values() if named else value if isinstance(value, list) else ())):
        return json.dumps(value)
    inside = margin + " "
    lines = [f"{inside}{json.dumps(name)}: {text_of(part, inside)}" for name, part in value.items()] if named else \
            [inside + text_of(part, inside) for part in value]
    return ("{\n%s\n%s}" if named else "[\n%s\n%s]") % (",\n".join(lines), margin)


def save(path, value):
    pathlib.Path(path).write_text(text_of(value) + "\n")
