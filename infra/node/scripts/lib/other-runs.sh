# shellcheck shell=sh
# Refuses to remove a cluster in which there are runs of other stacks. Needs lib/k3s.sh.
readonly ANSWER_SECONDS=30 # how long a k3s that starts, or is in trouble, is asked again

# shellcheck disable=SC2016 # a $ would belong to the template
readonly RUNS='{{range .items}}{{with .metadata.labels}}{{index . "disttrain.dev/owner"}}{{end}}|{{with .metadata.annotations}}{{index . "disttrain.dev/stack"}}{{end}}|{{.metadata.namespace}}/{{.metadata.name}}
{{end}}'

# Sets `runs` to a line `owner|stack|namespace/name` for each run. Fails if k3s does not answer.
ask_for_runs() {
  runs=$(k3s_kubectl get configmaps --all-namespaces -l disttrain.dev/record=run \
    -o "go-template=$RUNS" 2>/dev/null)
}

# Finds the runs in this k3s. A stopped k3s is started for that, because its runs would go on when
# somebody starts it.
find_runs() {
  runs=""
  [ -d "${GENERATION_FILE%/*}" ] || return 0 # no data, so no runs
  [ -x "$BINARY" ] || return 1
  is_active || systemctl start --no-block k3s 2>/dev/null || return 1
  asked=$(date +%s)
  until ask_for_runs; do
    [ $(($(date +%s) - asked)) -lt "$ANSWER_SECONDS" ] || return 1
    sleep 1
  done
}

# Prints those lines of `runs` that have another owner. With a text, it only prints those whose
# namespace/name begins with that text.
other_runs() {
  echo "$runs" | awk -F '|' -v owner="${OWNER:-}" -v begin="$1" \
    'NF == 3 && $1 != owner && index($3, begin) == 1'
}

# Ends the script if there are runs of other stacks. The message names them, and says why that matters
# and what to do.
refuse_other_runs() { # begin, as of other_runs; why; what to do
  if ! find_runs; then
    echo "k3s does not answer, so it was not asked for runs of other stacks; their data are kept"
    return
  fi
  others=$(other_runs "$1")
  [ -n "$others" ] || return 0
  {
    echo "$2"
    echo "$others" | awk -F '|' '{ print "  " $3 " of stack " $2 }'
    echo "$3"
    echo "$others" | awk -F '|' '{ print "  pulumi destroy --stack " $2 }' | sort -u
  } >&2
  exit 1
}
