#!/usr/bin/env bash
# torchrun.sh N PROGRAM ARGS...: runs PROGRAM as N ranks of PyTorch's torchrun on this machine; torchrun itself uses
# MASTER_PORT. Exits with torchrun's status, which is 1 if any rank fails, or with 77 if PyTorch is missing.
# DHP_PYTHON: the Python that has PyTorch (default /usr/bin/python3).
. "$(dirname "$0")/common.sh"
python=${DHP_PYTHON:-/usr/bin/python3}
need "$python"
if ! "$python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)'; then
  echo "skipped: $python has no torch"
  exit 77
fi
ranks=$1
shift
folder=$(mktemp -d "${TMPDIR:-/tmp}/dhp_torchrun_XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
# Works around an error of torch 1.13: under Python 3.11 it cannot parse its own default of --redirects.
read -r -d '' torchrun <<'PYTHON'
import sys
from torch.distributed import run
from torch.distributed.elastic.multiprocessing import api
parse = api.Std.from_str
if parse("0") is None:
    api.Std.from_str = lambda text: api.Std(int(text)) if text.isdigit() else parse(text)
try:
    run.main()
except RuntimeError as error:
    if "without libuv" not in str(error):
        raise
    print("skipped: this PyTorch is built without libuv, which its torchrun needs")
    sys.exit(77)
PYTHON
# shellcheck disable=SC2119
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} "${limited[@]}" "$python" -c "$torchrun" --no_python \
  --nproc_per_node="$ranks" --master_addr=127.0.0.1 --master_port="$(free_port)" \
  --monitor_interval=1 --log_dir="$folder" "$@"
