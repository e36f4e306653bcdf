#!/usr/bin/env bash
# twins.sh INCLUDE_DIR: each function name_on(dev, ...) that a header of ops/ calls must exist for the Cpu (in cpu/ and
# cpu_instances.ipp), for GPUs (cuda/) and for the device Meta (ops/meta.hpp). Templates without an instance would hide
# a missing one. Prints every offence; exits with 0 if there is none.
set -u
cd "$1/dhp" || exit 1
bad=0
names=$(grep -rhoE '\b[a-z0-9_]+_on\(' ops | sort -u)
[ -n "$names" ] || { echo "no header of ops/ leaves anything to the device: has name_on() another name now?"; exit 1; }
for name in $names; do
  folders="cpu cuda ops/meta.hpp"
  # ops/ has fallbacks for operations that only some devices fuse, and concepts for operations that GPUs may lack.
  grep -rqE "${name%(}\\((Device auto|Dev)&," ops && folders=cuda
  grep -rqzP "\\nconcept [^;]* requires\\([^{]*\\{[^}]*\\b${name%(}\\(" ops && folders="cpu ops/meta.hpp"
  for folder in $folders; do
    grep -rqE "^[a-z].* ${name%(}\\(" "$folder" && continue
    echo "ops/ calls $name...), but $folder does not have it"
    bad=1
  done
  [ "$folders" = cuda ] || grep -qE "detail::${name%(}<(detail::.*, )?Cpu>;" cpu_instances.ipp && continue
  echo "cpu_instances.ipp has no line for ${name%(}"
  bad=1
done
exit $bad
