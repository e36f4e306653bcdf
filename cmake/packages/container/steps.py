"""steps.py CONTAINERFILE FOLDER [ARG=VALUE]... [--mount DIR]...: runs a Containerfile's steps without a container
engine.
Each stage is an empty Debian that .ci/root.sh makes in FOLDER/NUMBER, whatever image its FROM names. The DIRs of this
machine are mounted in it, read-only. Rejects instructions that dhp's two files do not have."""
import glob
import re
import shlex
import subprocess
import sys
from pathlib import Path

tree = Path(__file__).resolve().parents[3]
machine = str(tree / ".ci/root.sh")
# Runs in its own mount namespace, so that the mounts end with it.
with_mounts = '''root=$1; shift
for dir; do shift; [ "$dir" != -- ] || break
  mkdir -p "$root$dir"; mount --bind "$dir" "$root$dir"; mount -o remount,ro,bind "$root$dir"; done
exec "$@"'''
mounts = [dir for option, dir in zip(sys.argv, sys.argv[1:]) if option == "--mount"]
given = dict(word.split("=", 1) for word in sys.argv[3:] if "=" in word)
variables, stages = {}, {}  # stages: the folder of each stage, by its name

text = re.sub(r"^#.*\n", "", Path(sys.argv[1]).read_text(), flags=re.M).replace("\\\n", " ")
for line in filter(None, text.splitlines()):
    print("===", line, flush=True)
    what, rest = line.split(None, 1)
    if what == "ARG":
        name, default = "".join(shlex.split(rest)).split("=", 1)
        variables[name] = given.get(name, default)
    elif what == "FROM":
        root, workdir = Path(sys.argv[2]) / str(len(stages)), Path("/")
        stages[rest.split()[-1]] = root
        subprocess.run([machine, "copy", root], check=True)
    elif what == "WORKDIR":
        workdir = Path(rest)
        (root / rest[1:]).mkdir(parents=True)
    elif what == "COPY":
        *files, to = rest.split()
        source = stages[files.pop(0).split("=")[1]] if files[0].startswith("--from=") else tree
        found = [path for file in files for path in glob.glob(str(source / file.lstrip("/")))]
        target = root / str(workdir / to)[1:]
        if to.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", *found, target], check=True)
    elif what == "RUN":
        command = re.sub(r"^(--mount=\S+\s+)*", "", rest)
        values = [f"{name}={value}" for name, value in variables.items()]
        subprocess.run(["unshare", "--mount", "sh", "-ec", with_mounts, "sh", root, *mounts, "--", machine, "run", root,
                        "env", "-C", workdir, *values, "sh", "-c", command], check=True)
    elif what != "CMD":
        sys.exit(f"steps.py does not know {what}")
