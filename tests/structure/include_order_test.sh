#!/usr/bin/env bash
# include_order_test.sh DIR: include_order.sh accepts a correct tree and reports each kind of mistake.
set -u
check=$(dirname "$0")/include_order.sh
dir=$1
status=0
plant() {  # plant FILE INCLUDED...: makes a header that includes the others
  mkdir -p "$(dirname "$dir/$1")"
  printf '#include <%s>\n' "${@:2}" >"$dir/$1"
}
tree() {  # makes a small correct tree
  rm -rf "$dir"
  plant dhp/core/config.hpp cmath
  plant dhp/core/a.hpp dhp/core/config.hpp
  plant dhp/ops/b.hpp dhp/core/a.hpp
  plant dhp/comm/c.hpp dhp/core/a.hpp
  plant dhp/cpu/b.hpp dhp/ops/b.hpp
  plant dhp/train/d.hpp dhp/ops/b.hpp dhp/comm/c.hpp
  plant dhp/dhp.hpp dhp/train/d.hpp
  plant dhp/cpu.hpp dhp/dhp.hpp dhp/cpu/b.hpp
}
expect() {  # expect WORDS: the offence that the check must print
  if said=$("$check" "$dir") || ! grep -qF -- "$1" <<<"$said"; then
    echo "expected '$1', got '$said'"
    status=1
  fi
}
tree
"$check" "$dir" || { echo "a tree in order was refused"; status=1; }
tree; for i in {1..17}; do plant "dhp/comm/c$i.hpp" dhp/core/config.hpp; done
plant dhp/comm/launch.hpp dhp/comm/c{1..16}.hpp
"$check" "$dir" || { echo "18 headers of ranks as threads were refused"; status=1; }
plant dhp/comm/launch.hpp dhp/comm/c{1..17}.hpp; expect "dhp/comm/launch.hpp: includes 19 headers"
plant dhp/comm/launch.hpp dhp/core/config.hpp; yes '//' | head -n 2400 >>"$dir/dhp/comm/launch.hpp"; expect "with 2402 lines"
tree; plant dhp/core/a.hpp dhp/ops/b.hpp;      expect "dhp/core/a.hpp: must not include dhp/ops/b.hpp"
tree; plant dhp/ops/b.hpp dhp/comm/c.hpp;      expect "dhp/ops/b.hpp: must not include dhp/comm/c.hpp"
tree; plant dhp/train/d.hpp dhp/cpu/b.hpp;     expect "dhp/train/d.hpp: must not include dhp/cpu/b.hpp"
tree; plant dhp/cpu/b.hpp dhp/comm/c.hpp;      expect "dhp/cpu/b.hpp: must not include dhp/comm/c.hpp"
tree; plant dhp/train/d.hpp dhp/dhp.hpp;       expect "dhp/train/d.hpp: must not include dhp/dhp.hpp"
tree; plant dhp/dhp.hpp dhp/cpu/b.hpp;         expect "but reaches dhp/cpu/b.hpp"
tree; plant dhp/device/cuda.hpp cudnn.h; plant dhp/train/d.hpp dhp/device/cuda.hpp; expect "but reaches dhp/device/cuda.hpp"
tree; plant dhp/comm/nccl/nccl_comm.hpp nccl.h; plant dhp/train/d.hpp dhp/comm/nccl/nccl_comm.hpp; expect "but reaches dhp/comm/nccl/nccl_comm.hpp"
tree; plant dhp/comm/rendezvous/handshake.hpp openssl/evp.h; plant dhp/train/d.hpp dhp/comm/rendezvous/handshake.hpp; expect "but reaches dhp/comm/rendezvous/handshake.hpp"
tree; plant dhp/cuda/b.cuh dhp/ops/b.hpp; plant dhp/cuda/c.hpp dhp/cuda/b.cuh; expect "only nvcc can read"
tree; plant dhp/eigen.hpp dhp/core/a.hpp; plant dhp/cpu.hpp dhp/eigen.hpp; expect "users include dhp/eigen.hpp by name"
tree; plant dhp/misc/e.hpp dhp/core/a.hpp;     expect "no such folder"
tree; plant dhp/core/a.hpp dhp/core/f.hpp; plant dhp/core/f.hpp dhp/core/a.hpp; expect "cycle:"
tree; plant dhp/ops/b.hpp string;              expect "dhp/ops/b.hpp: must include dhp/core/config.hpp"
tree; echo '#include "a.hpp"' >"$dir/dhp/core/f.hpp"; expect "quoted include"
rm -rf "$dir"
exit $status
