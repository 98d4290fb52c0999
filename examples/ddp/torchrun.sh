#!/bin/sh
# Starts the ranks of one pod with torchrun. With `program.per: node`, each pod runs this script once.
# torchrun finds the other pods by the variables PET_NNODES, PET_NODE_RANK, PET_NPROC_PER_NODE,
# PET_MASTER_ADDR and PET_MASTER_PORT.
set -eu
echo "pod $PET_NODE_RANK of $PET_NNODES starts $PET_NPROC_PER_NODE rank(s)"
exec torchrun train.py --steps "${STEPS:-200}"
