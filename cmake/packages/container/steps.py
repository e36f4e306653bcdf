"""steps.py CONTAINERFILE ROOT [ARG=VALUE]... [--mount FOLDER]...: runs a Containerfile's steps without a container engine.

Each stage is an empty Debian that .ci/root.sh makes, ROOT/STAGE, whatever image its FROM names; FOLDERs of this machine
are mounted into it, read-only. COPY takes files of this tree or of an earlier stage. Knows the instructions that dhp's
two files have, and refuses others.
"""
import glob
import re
import shlex
import subprocess
import sys
from pathlib import Path

tree = Path(__file__).resolve().parents[3]
machine = str(tree / ".ci/root.sh")
# Mounts in a namespace of their own end with the command.
mounted = 'dir=$1; shift; for at; do shift; [ "$at" != -- ] || break; mkdir -p "$dir$at"; mount --bind "$at" "$dir$at"; ' \
    'mount -o remount,ro,bind "$dir$at"; done; exec "$@"'


def main():
    words, mounts, given = sys.argv[3:], [], {}
    while words:
        word = words.pop(0)
        if word == "--mount":
            mounts.append(words.pop(0))
        else:
            given.update([word.split("=", 1)])
    text = re.sub(r"^#.*\n", "", Path(sys.argv[1]).read_text(), flags=re.M).replace("\\\n", " ")
    stages, variables = [], {}
    root = names = workdir = None

    def value(word):
        return re.sub(r"\$\{(\w+)\}", lambda name: variables[name[1]], word)

    for line in filter(None, map(str.strip, text.splitlines())):
        what, rest = line.split(None, 1)
        print(f"=== {line}", flush=True)
        if what == "ARG":
            name, default = shlex.split(rest)[0].split("=", 1)
            variables[name] = given.get(name, default)
        elif what == "FROM":
            names = shlex.split(value(rest))
            root, workdir = Path(sys.argv[2]) / str(len(stages)), "/"
            stages.append((names[-1], root))
            subprocess.run([machine, "make", root], check=True)
        elif what == "WORKDIR":
            workdir = rest
            (root / workdir[1:]).mkdir(parents=True, exist_ok=True)
        elif what == "COPY":
            *files, to = shlex.split(rest)
            source = tree
            if files[0].startswith("--from="):
                source = dict(stages)[files.pop(0)[len("--from="):]]
            found = [path for file in files for path in glob.glob(str(source / file.lstrip("/")))]
            target = root / workdir[1:] / to if not to.startswith("/") else root / to[1:]
            if not found:
                sys.exit(f"{line}: there is no such file")
            if to.endswith("/"):
                target.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-aT" if Path(found[0]).is_dir() else "-a", *found, target], check=True)
        elif what == "RUN":
            command = re.sub(r"^(--mount=\S+\s+)*", "", rest)
            values = [f"{name}={text}" for name, text in variables.items()]
            subprocess.run(["unshare", "--mount", "sh", "-ec", mounted, "sh", root, *mounts, "--", machine, "run", root,
                            "env", "-C", workdir, *values, "sh", "-c", command], check=True)
        elif what != "CMD":
            sys.exit(f"steps.py does not know {what}")


main()
