#!/usr/bin/env bash
# Measures experts in a file larger than the memory that the process may use, which a control group bounds: with
# --expert-store file the page cache holds what it can, and the rest is read from the disk again and again.
#   bench/beyond_memory.sh            writes bench/results/h200-beyond-memory.json; needs root, cgroup v2, a disk with room
# VERNIER: the program (build/release/vernier). MODEL: a shape and its format. LIMITS: of memory, one after another.
# FILE: where the weights go; it is left there. OUT, COMMIT, REPEAT: as in run_cuda.sh. DEVICE: cuda.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

vernier=${VERNIER:-build/release/vernier} file=${FILE:-/var/tmp/vernier-beyond-memory.weights} out=${OUT:-bench/results}
model=${MODEL:---synthetic qwen3-30b-a3b --format nvfp4 --layers 16} limits=${LIMITS:-max 4G 2G} repeat=${REPEAT:-2}
flags="${DEVICE:---device cuda --experts offload --expert-store file --expert-cache 25%}"
mkdir -p "$out"
group=/sys/fs/cgroup/vernier-bench
[ -e /sys/fs/cgroup/cgroup.controllers ] || mount -t cgroup2 none /sys/fs/cgroup
mkdir -p "$group"
if ! echo +memory 2>/dev/null >/sys/fs/cgroup/cgroup.subtree_control; then
  # In a container's namespace: a group with processes hands no controllers on, so they move.
  mkdir -p /sys/fs/cgroup/others
  while read -r process; do echo "$process" 2>/dev/null >/sys/fs/cgroup/others/cgroup.procs || true; done </sys/fs/cgroup/cgroup.procs
  echo +memory >/sys/fs/cgroup/cgroup.subtree_control
fi
lines=$(mktemp)
trap 'rm -f "$lines"; rmdir "$group" 2>/dev/null || true' EXIT

# What is printed here is of no interest: this run makes the file.
# shellcheck disable=SC2086
[ -s "$file" ] || "$vernier" bench $model --weights-file "$file" $flags --tests tg1 --repeat 1 >/dev/null
sync
read_file() { dd if="$file" of=/dev/null bs=16M count=128 iflag=direct 2>&1 | tail -1 | sed 's/.*, //'; }
echo "file: $(stat -c %s "$file") bytes, read past the page cache at $(read_file)" >&2
for limit in $limits; do
  echo 3 >/proc/sys/vm/drop_caches
  echo "$limit" >"$group/memory.max"
  command="vernier bench $model --weights-file FILE $flags --tests tg64,pp512 --repeat $repeat --jsonl"
  echo "memory.max $limit: $command ($SECONDS s)" >&2
  # shellcheck disable=SC2086
  if found=$(echo $BASHPID >"$group/cgroup.procs" &&
    exec "$vernier" bench $model --weights-file "$file" $flags --tests tg64,pp512 --repeat "$repeat" --jsonl); then
    printf '# memory.max=%s of a file of %s bytes: %s\n%s\n' "$limit" "$(stat -c %s "$file")" "$command" "$found" >>"$lines"
  else
    echo "memory.max $limit: not measured" >&2
  fi
  bench/record.py beyond-memory "$out/${PREFIX:-h200}-beyond-memory.json" --gpu <"$lines"
  echo "memory.max $limit: at most $(cat "$group/memory.peak" 2>/dev/null || echo '?') bytes" >&2
done
