"""Files that the scripts here leave: whole at any time, so that one that is cut off leaves what it had."""
import json
import os
import statistics


def save(path, text):
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)


def save_rows(path, rows, kind="rows"):
    save(path, json.dumps({kind: rows}, indent=1))


def ratio_of(mine, others):
    """Of medians, and of single rounds."""
    single = [a / b for a, b in zip(mine, others)]
    return {"ratio": statistics.median(mine) / statistics.median(others), "ratio_least": min(single),
            "ratio_most": max(single), "rounds": len(mine)}


def measured(path, kind, measurements, line):
    """Measures one row after the other, and saves all so far after each; whether one has failed.
    measurements: what a row is known by, and a function that makes it; line: how one is printed, of its keys."""
    rows, failed = [], False
    for known_by, measure in measurements:
        try:
            row = measure()
            print(line % row, flush=True)
        except Exception as error:  # one case must not take the others with it
            row = {**known_by, "failed": str(error) or repr(error)}
            print("%s: %s" % (next(iter(known_by.values())), row["failed"]), flush=True)
            failed = True
        rows.append(row)
        save_rows(path, rows, kind)
    return failed
