#!/bin/sh
# Usage: check_isa_symbols.sh NM OBJECT...
# Fails when an object with instruction-set flags defines a symbol that the linker could pick for the whole program: any
# weak one outside the object's own copy of the format headers (src/backend/cpu/isa/kernels.h has the reason).
nm=$1
shift
status=0
for object in "$@"; do
  isa=$(basename "$object" | sed 's/\..*//')
  foreign=$("$nm" -C "$object" | grep -E ' [uvVwW] ' | grep -v "vernier_$isa::" | grep -vE ' [vw] ')
  if [ -n "$foreign" ]; then
    echo "$object defines weak symbols:"
    echo "$foreign"
    status=1
  fi
done
exit $status
