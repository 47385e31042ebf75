#!/usr/bin/env bash
# tools/dist_test.sh CONFIG CHECKPOINT PROCESSES [flags of tools/test.py]
set -e
CONFIG=$1
CHECKPOINT=$2
PROCESSES=$3
if [ -z "$PROCESSES" ]; then
    echo "usage: $0 CONFIG CHECKPOINT PROCESSES [flags of tools/test.py]" >&2
    exit 2
fi
# exec: signals reach torchrun, which passes them on to the processes.
exec torchrun \
    --nnodes="${NNODES:-1}" \
    --node_rank="${NODE_RANK:-0}" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" \
    --master_port="${PORT:-29500}" \
    --nproc_per_node="$PROCESSES" \
    -- "$(dirname "$0")/test.py" "$CONFIG" "$CHECKPOINT" --launcher pytorch "${@:4}"
