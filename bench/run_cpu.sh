#!/usr/bin/env bash
# Measures the figures of docs/performance.md's CPU table and writes them to bench/results/, one JSON file a target.
#   bench/run_cpu.sh                   everything: about half an hour on two quiet cores
#   bench/run_cpu.sh c1-c2 c4 ...      only these (names: c14, and sed -n 's/^target //p' bench/run_cpu.sh)
# C14 needs the model of `vernier pull smollm2-135m`, or the GGUF file that MODEL names.
# VERNIER: the program (build/release/vernier). THREADS: 0 is all usable cores. REPEAT: rounds (5). CLOCK: wall, or cpu on
# a machine that others use too. Each file holds the commit, the CPU, the date, the command and what it printed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

vernier=${VERNIER:-build/release/vernier} threads=${THREADS:-0} repeat=${REPEAT:-5} clock=${CLOCK:-wall}
out=bench/results
mkdir -p "$out"
wanted=" $* "

# is_wanted NAME: true when no names or this one were given.
is_wanted() { [ "$wanted" = "  " ] || [[ $wanted == *" $1 "* ]]; }

# target NAME ARGUMENTS...: runs `vernier bench ARGUMENTS` and keeps what it says.
target() {
  local name=$1
  shift
  is_wanted "$name" || return 0
  keep "$name" "vernier bench $* --device cpu --threads $threads --repeat $repeat --clock $clock --jsonl" \
    "$vernier" bench "$@" --device cpu --threads "$threads" --repeat "$repeat" --clock "$clock" --jsonl
}

# keep NAME TEXT COMMAND...: runs a command that prints JSON lines; what it says goes to a file, with TEXT as its command.
keep() {
  local name=$1 command=$2 lines
  shift 2
  echo "$name: $command" >&2
  lines=$(mktemp)
  if "$@" >"$lines"; then
    bench/record.py "$name" "$out/$name.json" --command "$command" <"$lines"
  else
    echo "$name: not measured" >&2
  fi
  rm -f "$lines"
}

# Linears that no cache holds: one row (C1, C2, C5), a few (C3), and a prompt (C4, C5).
target c1-c2 kernels --ops linear --formats mxfp4,mxfp4:gguf,nvfp4,nvfp4:gguf --rows 1 --shapes 14336x4096
target c3-kernels kernels --ops linear --formats mxfp4,nvfp4 --rows 4,16 --shapes 14336x4096
target c4-kernels kernels --ops linear --formats mxfp4,nvfp4 --rows 512 --shapes 4096x4096
target c5 kernels --ops linear --formats fp8-block,bf16 --rows 1,512 --shapes 4096x4096
target ggml kernels --ops linear --formats q8_0,q4_0,q4_k,q6_k --rows 1,512 --shapes 4096x4096
target c6 kernels --cpu-isa avx2 --ops linear --formats mxfp4,nvfp4 --rows 1 --shapes 14336x4096
target c7 kernels --cpu-isa amx --ops linear --formats mxfp4,nvfp4,bf16,fp8-block --rows 1,16,64,512 --shapes 4096x4096
target c8 kernels --ops experts --formats mxfp4,nvfp4
target c9 kernels --ops attention
target delta-net kernels --ops delta-net
target c13 kernels --precision f32 --ops linear --formats mxfp4,nvfp4 --rows 1 --shapes 14336x4096
target c13-bf16 kernels --ops linear --formats mxfp4,nvfp4 --rows 1 --shapes 14336x4096
# One and two threads on operands that stay in the caches (C10).
for count in one two; do
  threads=$([ $count = one ] && echo 1 || echo 2) target c10-$count \
    kernels --working-set 1 --ops linear --formats mxfp4,nvfp4 --rows 1,64 --shapes 1024x1024
done
# Beside two processes that never sleep (C11): by the wall clock, since that's what they take away.
clock=wall target c11-alone --synthetic smollm2-135m --tests pp128,tg32
if is_wanted c11-busy; then
  neighbours=()
  for _ in 1 2; do
    while :; do :; done &
    neighbours+=($!)
  done
  clock=wall target c11-busy --synthetic smollm2-135m --tests pp128,tg32
  kill "${neighbours[@]}"
fi
# Steps of a whole model: decode of several sequences (C3), prefill (C4), both (C12).
target c3-c4-mxfp4 --synthetic llama-3.2-1b --format mxfp4 --tests pp512,tg16,tg6x4,tg3x16
target c3-c4-nvfp4 --synthetic llama-3.2-1b --format nvfp4 --tests pp512,tg16,tg6x4,tg3x16
target c9-depth --synthetic llama-3.2-1b --format mxfp4 --tests tg16 --depth 2048
target c12-135m --synthetic smollm2-135m --format q4_1 --tests pp512,tg64
target c12-4b --synthetic qwen3-4b --format nvfp4 --tests pp128,tg16
target c12-30b --synthetic qwen3-30b-a3b --layers 12 --tests pp256,tg16
target c12-20b --synthetic gpt-oss-20b --layers 6 --tests pp256,tg16
target c12-35b --synthetic qwen35-35b-a3b --layers 8 --tests pp256,tg16
target c12-26b --synthetic gemma4-26b-a4b --layers 6 --tests pp256,tg16
# Perplexity against weights expanded to F32 (C14).
model=${MODEL:-${VERNIER_MODELS:-$HOME/.local/share/vernier/models}/smollm2-135m.gguf}
if is_wanted c14; then
  if [ -e "$model" ]; then
    keep c14 "bench/perplexity.py $(basename "$model") --device cpu --threads $threads" \
      python3 bench/perplexity.py "$model" --vernier "$vernier" --threads "$threads"
  else
    echo "c14: not measured: no $model ('vernier pull smollm2-135m' fetches it)" >&2
  fi
fi
