#!/usr/bin/env bash
# tools/dist_train.sh CONFIG PROCESSES [flags of tools/train.py]
# One process a GPU; without GPUs the processes talk over gloo.
set -e
CONFIG=$1
PROCESSES=$2
if [ -z "$PROCESSES" ]; then
    echo "usage: $0 CONFIG PROCESSES [flags of tools/train.py]" >&2
    exit 2
fi
# exec: signals reach torchrun, which passes them on to the processes.
exec torchrun \
    --nnodes="${NNODES:-1}" \
    --node_rank="${NODE_RANK:-0}" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" \
    --master_port="${PORT:-29500}" \
    --nproc_per_node="$PROCESSES" \
    "$(dirname "$0")/train.py" "$CONFIG" --launcher pytorch "${@:3}"
