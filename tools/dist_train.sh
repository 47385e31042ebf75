#!/usr/bin/env bash
# tools/dist_train.sh CONFIG PROCESSES [flags of tools/train.py]
# One process a GPU; without GPUs the processes talk over gloo. Exit codes as those of
# tools/train.py: 75 after a signal that saved (docs/robustness.md).
set -e
CONFIG=$1
PROCESSES=$2
if [ -z "$PROCESSES" ]; then
    echo "usage: $0 CONFIG PROCESSES [flags of tools/train.py]" >&2
    exit 2
fi
# torchrun ends with 1 whatever its processes ended with; they leave their code here.
MMCLUSPRO_EXIT_CODE_FILE=$(mktemp)
export MMCLUSPRO_EXIT_CODE_FILE
trap 'rm -f "$MMCLUSPRO_EXIT_CODE_FILE"' EXIT
# --: torchrun must not read flags of the training, such as --log, as abbreviations of its own.
torchrun \
    --nnodes="${NNODES:-1}" \
    --node_rank="${NODE_RANK:-0}" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" \
    --master_port="${PORT:-29500}" \
    --nproc_per_node="$PROCESSES" \
    -- "$(dirname "$0")/train.py" "$CONFIG" --launcher pytorch "${@:3}" &
LAUNCHER=$!
# torchrun passes SIGTERM on to the processes, SIGUSR1 it would die of.
trap 'kill -TERM $LAUNCHER 2>/dev/null || true' TERM HUP USR1
trap 'kill -INT $LAUNCHER 2>/dev/null || true' INT
CODE=0
wait $LAUNCHER || CODE=$?
while kill -0 $LAUNCHER 2>/dev/null; do  # a signal ended the waiting, not the launcher
    CODE=0
    wait $LAUNCHER || CODE=$?
done
if [ -s "$MMCLUSPRO_EXIT_CODE_FILE" ]; then
    CODE=$(head -n 1 "$MMCLUSPRO_EXIT_CODE_FILE")
fi
exit "$CODE"
