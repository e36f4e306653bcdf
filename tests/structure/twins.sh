#!/usr/bin/env bash
# twins.sh INCLUDE_DIR: what a header of ops/ leaves to the device, name_on(dev, ...), is there for the Cpu (cpu/, and a
# line of cpu_instances.ipp), for GPUs (cuda/), and for tensors without data (ops/meta.hpp). A template that nobody
# instantiates for a GPU would hide that it is missing. Prints every offence; 0 if there is none.
set -u
cd "$1/dhp" || exit 1
bad=0
names=$(grep -rhoE '\b[a-z0-9_]+_on\(' ops | sort -u)
[ -n "$names" ] || { echo "no header of ops/ leaves anything to the device: has name_on() another name now?"; exit 1; }
for name in $names; do
  folders="cpu cuda ops/meta.hpp"
  # What only some devices fuse says in ops/ what the others do; a concept there asks for what GPUs may lack.
  grep -rqE "${name%(}\\((Device auto|Dev)&," ops && folders=cuda
  grep -rqzP "\\nconcept [^;]* requires\\([^{]*\\{[^}]*\\b${name%(}\\(" ops && folders="cpu ops/meta.hpp"
  for folder in $folders; do
    grep -rqE "^[a-z].* ${name%(}\\(" "$folder" && continue
    echo "ops/ calls $name...), but $folder does not have it"
    bad=1
  done
  [ "$folders" = cuda ] || grep -q "detail::${name%(}<Cpu>;" cpu_instances.ipp && continue
  echo "cpu_instances.ipp has no line for ${name%(}"
  bad=1
done
exit $bad
