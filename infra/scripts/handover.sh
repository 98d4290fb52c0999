#!/bin/sh
# Clears the place for the workloads that come next: ends every training that is not exactly the
# one to come (another stack's, another revision's) and a data set Job with other contents, and
# waits until their pods are gone, so that two trainings never write the same run.
# Needs: KUBECTL (a command, shell-quoted), NAMESPACE, STACK, TRAINING_REVISION, DATASET_REVISION,
# VOLUME_NAME, CLAIM_NAME, GRACE_SECONDS; may be empty: DRY_RUN (1: only says what would change).
# Usage: handover.sh create|delete
set -eu

: "${KUBECTL:?}" "${NAMESPACE:?}" "${STACK:?}" "${TRAINING_REVISION:?}" "${DATASET_REVISION:?}"
: "${VOLUME_NAME:?}" "${CLAIM_NAME:?}" "${GRACE_SECONDS:?}"

kubectl_() { eval "$KUBECTL \"\$@\"" </dev/null; }

dry() { [ -n "${DRY_RUN:-}" ]; }

end() { # kinds selector
  found=$(kubectl_ -n "$NAMESPACE" get "$1" -l "$2" -o name)
  [ -n "$found" ] || return 0
  if dry; then
    echo "would end: $(echo "$found" | tr '\n' ' ')"
    return
  fi
  echo "ending $(echo "$found" | tr '\n' ' ')(up to $GRACE_SECONDS s to save)"
  kubectl_ -n "$NAMESPACE" delete "$1" -l "$2" --cascade=foreground --ignore-not-found \
    --timeout="$((GRACE_SECONDS + 60))s"
}

# A claim is bound for good: another volume needs another claim, and only its own stack replaces it.
check_claim() {
  claim=$(kubectl_ -n "$NAMESPACE" get pvc "$CLAIM_NAME" --ignore-not-found \
    -o "jsonpath={.spec.volumeName}|{.metadata.labels.disttrain\.dev/stack}")
  owner=${claim#*|}
  if [ -n "$claim" ] && [ "${claim%%|*}" != "$VOLUME_NAME" ] && [ "$owner" != "$STACK" ]; then
    echo "claim $CLAIM_NAME belongs to stack $owner and has another dataRoot or dataSize." >&2
    echo "Give both stacks the same, or first: pulumi destroy --stack $owner (data is kept)" >&2
    exit 1
  fi
}

# A volume whose claim went away with a deleted namespace waits for that very claim, by its uid.
rebind_volume() {
  phase=$(kubectl_ get pv "$VOLUME_NAME" --ignore-not-found -o 'jsonpath={.status.phase}')
  [ "$phase" = Released ] || return 0
  if dry; then
    echo "would free: volume $VOLUME_NAME"
    return
  fi
  echo "volume $VOLUME_NAME is free again"
  kubectl_ patch pv "$VOLUME_NAME" --type=json \
    -p '[{"op":"remove","path":"/spec/claimRef/uid"},{"op":"remove","path":"/spec/claimRef/resourceVersion"}]'
}

create() {
  check_claim
  training=app.kubernetes.io/part-of=disttrain,app.kubernetes.io/component=training
  dataset=app.kubernetes.io/part-of=disttrain,app.kubernetes.io/component=dataset
  end job,statefulset "$training,disttrain.dev/revision!=$TRAINING_REVISION"
  end job,statefulset,service,configmap "$training,disttrain.dev/stack!=$STACK"
  end job "$dataset,disttrain.dev/revision!=$DATASET_REVISION"
  rebind_volume
  dry || echo "namespace $NAMESPACE is stack $STACK's"
}

main() {
  case $1 in
    create) create ;;
    delete) : ;; # nothing of this stays behind
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
