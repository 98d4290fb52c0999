#!/bin/sh
# Starts the ranks of one node with Open MPI's mpirun. It needs no SSH: with `program.per: node`, each
# pod runs its own mpirun. The arguments are those of train.py.
set -eu
ranks=$PET_NPROC_PER_NODE
export WORLD_SIZE=$((PET_NNODES * ranks)) FIRST_RANK=$((PET_NODE_RANK * ranks))
# shellcheck disable=SC2016  # each rank has a number of its own
exec mpirun --bind-to none --oversubscribe -n "$ranks" sh -c '
    export LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK
    export RANK=$((FIRST_RANK + LOCAL_RANK))
    exec python train.py "$@"' rank "$@"
