"""Writes result files atomically, so that a script that is cut off leaves its results so far."""
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
    """Returns the ratio of medians, and the extremes over single rounds."""
    single = [a / b for a, b in zip(mine, others)]
    return {"ratio": statistics.median(mine) / statistics.median(others), "ratio_least": min(single),
            "ratio_most": max(single), "rounds": len(mine)}


def measured(path, kind, measurements, line):
    """Measures one row after the other and saves all rows after each; returns whether one has failed.
    measurements: the keys of a row and a function that measures it. line: the format of a printed row, by its keys."""
    rows, failed = [], False
    for known_by, measure in measurements:
        try:
            row = measure()
            print(line % row, flush=True)
        except Exception as error:  # a failing case must not stop the others
            row = {**known_by, "failed": str(error) or repr(error)}
            print("%s: %s" % (next(iter(known_by.values())), row["failed"]), flush=True)
            failed = True
        rows.append(row)
        save_rows(path, rows, kind)
    return failed
