#!/usr/bin/env bash
# operations.sh SOURCE [--write]: docs/operations.md must have a row for each function of ops/ that a device computes,
# with its kernels, tests and benches. These are found in the sources: files that call NAME(dev, ...), or use a class
# that does. Each function must have kernels for Cpu and Cuda, a test, and a test of Cuda's kernel, and its comment must
# give the shape of each tensor except a step's state. --write updates the table.
set -u
cd "$1" || exit 1
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
python3 - "${2:-}" <<'PY'
import re, sys
from pathlib import Path

page = Path("docs/operations.md")
texts = {file.as_posix(): file.read_text() for top in ("include", "tests", "bench") for file in sorted(Path(top).rglob("*.[ch]pp"))}
def below(*folders): return [file for file in texts if file.startswith(folders)]
def having(pattern, files): return [file for file in files if re.search(pattern, texts[file], re.M)]
def calls(name): return rf"(?<![\w.]){name}(<\w+>)?\(\s*[*\w.]*dev"
tests, benches = ([file for file in below(top) if file.endswith(".cpp") and "/dry/" not in file] for top in ("tests/", "bench/"))
for file in tests:  # appends the helpers that it includes
    texts[file] += "".join(texts.get(helper, "") for helper in re.findall("^#include <(tests/(?:support|ops)/.*)>", texts[file], re.M))
cuda = [file for file in tests if file.startswith("tests/cuda/")]
users = below("include/dhp/nn/", "include/dhp/optim/", "include/dhp/parallel/", "include/dhp/extra/")
checks = ["tests/support/layer_gradients.hpp"]

def by_class(name, files):
    """Returns the files that use a class that calls the operation, itself or in its header, and these classes."""
    classes = [(kind.removesuffix("Parts"), body) for user in having(calls(name), users)
               for kind, body in re.findall(r"^class (\w+)((?:.*\n)*?)\};", texts[user], re.M)]
    kinds = sorted({kind for kind, body in classes if re.search(calls(name), body)} or {kind for kind, _ in classes})
    found = having(rf"\b({'|'.join(kinds)})<", files) if kinds else []
    return found, [kind for kind in kinds if found and re.search(rf"\b{kind}<", texts[found[0]])]

def row(header, comment, name, arguments, body):
    on = re.search(r"\b(\w+?)(?:_library)?_on\(", body)
    if not on: return
    sentences = re.sub(r"\s*///", "", comment)
    wrong.extend(f"{name}: the comment above it does not say {view}'s shape, such as {view} [M, N]"
                 for view in re.findall(r"(?:In|Out)View<Dev> (\w+)", arguments)
                 if view != "state" and not re.search(rf"\b{view}\b[^.;]*?\[", sentences))
    def first(pattern, files):
        """Returns a file with this pattern, else one with such a class; prefers the file with the header's name."""
        found = having(pattern, files) or by_class(name, files)[0] or [""]
        return min(found, key=lambda file: (Path(file).stem != header, ("/cuda/" in file) == bool(kernels["cpu"]))).partition("/")[2]
    kernels = {folder: having(rf"^[a-z].* {on[1]}(?:_library)?_on\(", below(f"include/dhp/{folder}/")) for folder in ("cpu", "cuda")}
    library = {"cublas": "cuBLASLt", "cudnn": "cuDNN"}
    has_gradient = kernels["cpu"] and re.search(r"(backward\w*|gradients|gemm|dropout|rotary)(_on)?\(", texts[f"include/dhp/ops/{header}.hpp"])
    layers = by_class(name, checks)[1] if has_gradient else []
    cells = ["dhp" if kernels["cpu"] else "unfused",
             " or ".join(dict.fromkeys(library.get(Path(file).stem.split("_")[0], "dhp") for file in kernels["cuda"])),
             f"`{layers[0]}`" if layers else "",
             first(calls(name), [file for file in tests if file.startswith(f"tests/ops/{header}")]) or first(calls(name), tests),
             first(rf"(?<![\w.]){name}(_on)?(<\w+>)?\(", cuda), first(calls(name), benches)]
    if "" in (cells[1], cells[3], cells[4]): wrong.append(f"{name} lacks kernels for Cuda, a test, or one of Cuda's: {cells}")
    return f"| `{name}` | " + " | ".join(cells) + " |"

wrong, rows = [], []
function = r"((?:^///.*\n)*)^template <Device Dev>\n(?:\[\[nodiscard\]\] )?[\w:<> ]+? (\w+)\(\s*Dev& dev,([^;]*?)\) \{\n((?:  .*\n|\n)*)\}"
for file in below("include/dhp/ops/"):
    rows += [row(Path(file).stem, *parts) for parts in re.findall(function, texts[file], re.M)]
rows = [row for row in rows if row]
known = page.read_text()
begin = known.index("\n|---|") + known[known.index("\n|---|") + 1:].index("\n") + 2
end = known.index("\n\n", begin) + 1
made = known[:begin] + "\n".join(rows) + "\n" + known[end:]
if sys.argv[1] == "--write": page.write_text(made)
elif made != known: wrong.append("docs/operations.md: the table is not what the sources have: `operations.sh . --write`")
print("\n".join(wrong) or f"{len(rows)} operations")
sys.exit(bool(wrong))
PY
