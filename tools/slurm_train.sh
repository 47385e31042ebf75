#!/usr/bin/env bash
# tools/slurm_train.sh PARTITION JOB_NAME CONFIG WORK_DIR [flags of tools/train.py]
# GPUS, GPUS_PER_NODE, CPUS_PER_TASK, SRUN_ARGS, GRACE and RESTARTS are read from the environment.
#
# GRACE seconds (120) before the time limit Slurm sends SIGUSR1: training saves and ends with exit
# code 75. Inside a batch job (sbatch --requeue) the job is then requeued; otherwise srun is started
# again, RESTARTS times at most (100). Both go on from the last checkpoint (--resume).
PARTITION=$1
JOB_NAME=$2
CONFIG=$3
WORK_DIR=$4
if [ -z "$WORK_DIR" ]; then
    echo "usage: $0 PARTITION JOB_NAME CONFIG WORK_DIR [flags of tools/train.py]" >&2
    exit 2
fi
GPUS=${GPUS:-8}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
RUN_AGAIN=75
RESUME=()
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then
    RESUME=(--resume)
fi

train() {
    srun -p "$PARTITION" \
        --job-name="$JOB_NAME" \
        --gres="gpu:$GPUS_PER_NODE" \
        --ntasks="$GPUS" \
        --ntasks-per-node="$GPUS_PER_NODE" \
        --cpus-per-task="${CPUS_PER_TASK:-5}" \
        --kill-on-bad-exit=1 \
        --signal="USR1@${GRACE:-120}" \
        $SRUN_ARGS \
        python -u "$(dirname "$0")/train.py" "$CONFIG" --work-dir="$WORK_DIR" --launcher slurm \
        "$@"
}

for ((start = 0; start <= ${RESTARTS:-100}; start++)); do
    train "${@:5}" "${RESUME[@]}"
    code=$?
    if [ "$code" -ne "$RUN_AGAIN" ]; then
        exit "$code"
    fi
    if [ -n "$SLURM_JOB_ID" ] && scontrol requeue "$SLURM_JOB_ID"; then
        exit 0
    fi
    echo "stopped by a signal: starting again with --resume" >&2
    RESUME=(--resume)
done
exit "$code"
