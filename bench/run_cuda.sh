#!/usr/bin/env bash
# Measures the figures of docs/performance.md's GPU part and writes them to bench/results/, one JSON file a group.
#   bench/run_cuda.sh                  everything: about seven minutes on an H200 with 128 GiB of host memory and REPEAT=2
#   bench/run_cuda.sh models linears   only these groups: linears, operations, experts, models, launches, depth, placement,
#                                      host, and sm80 if VERNIER_SM80 names a program built with
#                                      CMAKE_CUDA_ARCHITECTURES=80-virtual
# VERNIER: the program (build/release/vernier). PREFIX: of the files' names (h200). REPEAT: rounds (3). OUT: the folder.
# COMMIT: the commit's name where there is no repository. MOST_SECONDS: after so many no new command
# begins, and after 20 more none goes on. Models are synthetic, of the published shapes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

vernier=${VERNIER:-build/release/vernier} prefix=${PREFIX:-h200} repeat=${REPEAT:-3} out=${OUT:-bench/results}
most_seconds=${MOST_SECONDS:-86400}
mkdir -p "$out"
wanted=" $* "

# group NAME: begins a file; run ARGUMENTS...: adds what `vernier bench ARGUMENTS` says to it; finish: writes it.
group() {
  name=$1
  [ "$wanted" = "  " ] || [[ $wanted == *" $name "* ]] || return 1
  lines=$(mktemp)
}
run_on() {
  local device=$1 found
  shift
  local command="vernier bench $* --device $device --repeat $repeat --jsonl"
  if [ "$SECONDS" -gt "$most_seconds" ]; then
    echo "$name: no time left for $command" >&2
    return
  fi
  echo "$name: $command ($SECONDS s)" >&2
  local left=$((most_seconds + 20 - SECONDS))
  # What it printed before it broke off, if it did, are whole measurements.
  found=$(timeout $((left < 120 ? left : 120)) "$vernier" bench "$@" --device "$device" --repeat "$repeat" --jsonl) || echo "$name: broke off: $command" >&2
  [ -z "$found" ] || printf '# %s\n%s\n' "$command" "$found" >>"$lines"
}
run() { run_on cuda "$@"; }
finish() {
  bench/record.py "$name" "$out/$prefix-$name.json" --gpu <"$lines"
  rm -f "$lines"
}

dense=("llama-3.2-1b --format nvfp4" "llama-3.1-8b --format nvfp4" "llama-3.1-8b --format fp8-block"
  "llama-3.1-8b --format bf16" "llama-3.1-8b --format q4_k")
mixtures=("qwen3-30b-a3b --format nvfp4" "gpt-oss-20b" "qwen35-35b-a3b --format nvfp4" "gemma4-26b-a4b --format nvfp4"
  "qwen3-30b-a3b --format fp8-block" "gpt-oss-120b")
compared=("llama-3.1-8b --format nvfp4" "qwen3-30b-a3b --format nvfp4" "gpt-oss-20b" "qwen35-35b-a3b --format nvfp4")

if group linears; then
  run kernels --ops linear --formats nvfp4,mxfp4,fp8-block,bf16,q4_k,q8_0 --rows 1,8,16,64,128,256,1024,4096 --shapes 8192x8192
  run kernels --ops linear --formats nvfp4,fp8-block,bf16 --rows 1,16,64,256,1024,4096 --shapes 28672x4096
  run kernels --ops linear --chain apart,overlap --formats nvfp4,mxfp4,fp8-block --rows 1,2,4,8,16 \
    --shapes 8192x8192,28672x4096,57344x8192
  run kernels --ops linear --chain norm --formats nvfp4,mxfp4,fp8-block --rows 1 --shapes 8192x8192
  run kernels --ops linear --chain overlap --formats nvfp4 --rows 1,2,4,4096 --shapes 8192x8192 --precision f32
  finish
fi
if group operations; then
  run kernels --ops attention
  run kernels --ops delta-net
  run kernels --ops router,norm
  finish
fi
if group experts; then
  run kernels --ops experts,mixture --formats nvfp4,mxfp4,fp8-block
  finish
fi
# Arguments of one element are words, so $model below is split on purpose.
# shellcheck disable=SC2086
if group models; then
  for model in "${dense[@]}" "${mixtures[@]}"; do run --synthetic $model --tests tg128,pp512,pp2048,tg32x8,tg32x32,tg16x128; done
  finish
fi
# Beside `models` these say how many kernels a layer has: fewer layers, fewer kernels.
# shellcheck disable=SC2086
if group launches; then
  for model in "${compared[@]}"; do run --synthetic $model --layers 4 --tests tg16,tg16x8; done
  finish
fi
# shellcheck disable=SC2086
if group depth; then
  for model in "${compared[@]}"; do run --synthetic $model --tests tg32,pp8192 --depth 0,32000; done
  finish
fi
# shellcheck disable=SC2086
if group placement; then
  for model in "qwen3-30b-a3b --format nvfp4" "gpt-oss-20b" "qwen35-35b-a3b --format nvfp4"; do
    for experts in "cpu" "offload --expert-cache 50%" "hybrid --expert-cache 50%"; do
      run --synthetic $model --experts $experts --tests tg64,tg300,pp100,pp2048
    done
  done
  run --synthetic gpt-oss-120b --experts cpu --tests tg64,pp100,pp2048
  finish
fi
# The host's cores alone.
# shellcheck disable=SC2086
if group host; then
  run_on cpu kernels --ops experts --formats mxfp4,nvfp4 --rows 1
  for model in "llama-3.1-8b --format nvfp4" "gpt-oss-20b"; do
    run_on cpu --synthetic $model --cpu-isa amx --tests pp512
    run_on cpu --synthetic $model --tests tg16
  done
  finish
fi
if [ -n "${VERNIER_SM80:-}" ] && group sm80; then
  vernier=$VERNIER_SM80
  run kernels --ops linear --formats nvfp4,fp8-block,bf16 --rows 1,16,4096 --shapes 8192x8192
  finish
fi
