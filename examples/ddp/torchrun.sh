#!/bin/sh
# Started once in each pod (program.per: node): torchrun finds the other pods by the variables
# PET_NNODES, PET_NODE_RANK, PET_NPROC_PER_NODE, PET_MASTER_ADDR and PET_MASTER_PORT.
set -eu
echo "pod $PET_NODE_RANK of $PET_NNODES starts $PET_NPROC_PER_NODE rank(s)"
exec torchrun train.py --steps "${STEPS:-200}"
