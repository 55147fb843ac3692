#!/usr/bin/env bash
# Measures the figures of docs/performance.md's GPU part and writes them to bench/results/, one JSON file a group.
#   bench/run_cuda.sh                  everything: about a quarter of an hour on an H200 with 128 GiB of host memory
#   bench/run_cuda.sh models linears   only these groups: models, depth, placement, linears, operations
# VERNIER: the program (build/release/vernier). PREFIX: of the files' names (h200). REPEAT: rounds (5). OUT: the folder.
# COMMIT: the commit's name where there is no repository. MOST_SECONDS: after so many no new command begins. Models are synthetic, of the published shapes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

vernier=${VERNIER:-build/release/vernier} prefix=${PREFIX:-h200} repeat=${REPEAT:-5} out=${OUT:-bench/results}
most_seconds=${MOST_SECONDS:-86400}
mkdir -p "$out"
wanted=" $* "

# group NAME: begins a file; run ARGUMENTS...: adds what `vernier bench ARGUMENTS` says to it; finish: writes it.
group() {
  name=$1
  [ "$wanted" = "  " ] || [[ $wanted == *" $name "* ]] || return 1
  lines=$(mktemp)
}
run() {
  local command="vernier bench $* --device cuda --repeat $repeat --jsonl" found
  if [ "$SECONDS" -gt "$most_seconds" ]; then
    echo "$name: no time left for $command" >&2
    return
  fi
  echo "$name: $command ($SECONDS s)" >&2
  if found=$("$vernier" bench "$@" --device cuda --repeat "$repeat" --jsonl); then
    printf '# %s\n%s\n' "$command" "$found" >>"$lines"
  else
    echo "$name: not measured" >&2
  fi
}
finish() {
  bench/record.py "$name" "$out/$prefix-$name.json" --gpu <"$lines"
  rm -f "$lines"
}

dense=("llama-3.2-1b --format nvfp4" "llama-3.1-8b --format nvfp4" "llama-3.1-8b --format fp8-block"
  "llama-3.1-8b --format bf16" "llama-3.1-8b --format q4_k")
mixtures=("qwen3-30b-a3b --format nvfp4" "gpt-oss-20b" "qwen35-35b-a3b --format nvfp4" "gemma4-26b-a4b --format nvfp4"
  "qwen3-30b-a3b --format fp8-block" "gpt-oss-120b")

# Arguments of one element are words, so $model below is split on purpose.
# shellcheck disable=SC2086
if group models; then
  for model in "${dense[@]}" "${mixtures[@]}"; do run --synthetic $model --tests tg128,pp512,pp2048,tg32x8,tg32x32,tg16x128; done
  finish
fi
# shellcheck disable=SC2086
if group depth; then
  for model in "llama-3.1-8b --format nvfp4" "qwen3-30b-a3b --format nvfp4" "qwen35-35b-a3b --format nvfp4"; do
    run --synthetic $model --tests tg32 --depth 32000
  done
  finish
fi
# shellcheck disable=SC2086
if group placement; then
  for model in "qwen3-30b-a3b --format nvfp4" "gpt-oss-20b" "qwen35-35b-a3b --format nvfp4"; do
    for experts in "cpu" "offload --expert-cache 50%" "hybrid --expert-cache 50%"; do
      run --synthetic $model --experts $experts --tests tg64,pp100,pp2048
    done
  done
  finish
fi
if group linears; then
  run kernels --ops linear --formats nvfp4,mxfp4,fp8-block,bf16,q4_k,q8_0 --rows 1,8,16,64,256,1024,4096 \
    --shapes 8192x8192,28672x4096
  # As graphs of dependent launches, operands rotated through more than the second-level cache holds.
  run kernels --ops linear --chain apart,overlap,norm --formats nvfp4,mxfp4,fp8-block --rows 1,2,4,8,16 \
    --shapes 8192x8192,28672x4096,57344x8192 --working-set 400
  run kernels --ops linear --chain apart,overlap --formats nvfp4 --rows 1,2,4 --shapes 8192x8192 --working-set 400 \
    --precision f32
  finish
fi
if group operations; then
  run kernels --ops attention,delta-net,experts
  finish
fi
