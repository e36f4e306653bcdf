#!/usr/bin/env bash
# face.sh SOURCE [--write]: checks the public interface. Umbrella headers include only headers of their folder;
# docs/headers.md lists all headers for users, at most 60; public_names.txt lists all names of namespace dhp, at most
# 425. All other names are in dhp::detail. --write updates public_names.txt.
set -u
cd "$1" || exit 1
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 python3 - "${2:-}" <<'PY'
import re, sys, textwrap
from pathlib import Path

sys.path.insert(0, "docs/site")
import headers

wrong = []
include = Path("include/dhp")
files = sorted(file for file in include.rglob("*") if file.suffix in (".hpp", ".cuh"))
for folder in "core device tensor ops comm data nn optim parallel train".split():
    included = re.findall(r"^#include <dhp/(.*)>$", (include / f"{folder}.hpp").read_text(), re.M)
    wrong += [f"{folder}.hpp includes {name}, of another folder" for name in included if not name.startswith(folder + "/")]

listed = set(re.findall(r"`dhp/([\w/]+\.(?:hpp|cuh|ipp))`", Path("docs/headers.md").read_text()))
wrong += [f"docs/headers.md lists {name}, and there is no such header" for name in listed if not (include / name).is_file()]
wrong += [f"{len(listed)} headers are public, and 60 are enough"] * (len(listed) > 60)
shown = [Path("README.md"), *Path("docs").rglob("*.md"), *Path("tests/consumer").glob("*.cpp"),
         *Path("examples/lessons").rglob("*.[ch]pp"), *Path("examples/guest").glob("*.cpp")]
for file in shown:
    for name in re.findall(r"^ *#include <dhp/([\w/.]+)>", file.read_text(), re.M):
        if name not in listed: wrong.append(f"{file} includes dhp/{name}, which docs/headers.md does not list")

reached = set()
def reach(name):
    if name in reached or not (include / name).is_file(): return
    reached.add(name)
    for inner in re.findall(r"^#include <dhp/(.*)>", (include / name).read_text(), re.M): reach(inner)
for name in listed: reach(name)

names = set()
for file in files:
    text = file.read_text()
    code = headers.mask(text)
    for name, first, last in headers.namespaces(text, code, 0, len(text)):
        inner = re.findall(r"^namespace (\w+)", code[first:last], re.M) if name == "dhp" else []
        if set(inner) - {"detail", "dlpack"} or not re.match(r"(dhp(::(detail|eigen|dlpack)\b.*)?|std)$", name or ""):
            wrong.append(f"{file}: namespace {name} {' '.join(inner)}: what is not public is in dhp::detail")
    own = {entity.name for entity in headers.read_header(file).entities if entity.kind != "guide"}
    if own and file.relative_to(include).as_posix() not in reached:
        wrong.append(f"{file} has public names, and no header of docs/headers.md includes it: list it in its folder's")
    names |= own
wrong += [f"namespace dhp has {len(names)} names, and 425 are enough: move what users do not need into dhp::detail"] * (len(names) > 425)
place = Path("tests/structure/public_names.txt")
if sys.argv[1] == "--write":
    place.write_text("\n".join(textwrap.wrap(" ".join(sorted(names)), 118)) + "\n")
known = set(place.read_text().split())
wrong += [f"{name} is new in namespace dhp: move it into dhp::detail, or `face.sh . --write`" for name in sorted(names - known)]
wrong += [f"{name} of public_names.txt is not in namespace dhp" for name in sorted(known - names)]
print("\n".join(wrong) or f"{len(names)} names, {len(listed)} headers")
sys.exit(bool(wrong))
PY
