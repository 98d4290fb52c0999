#!/bin/sh
# Prints facts about the runs whose folders are in DATA_ROOT/runs on this host. It changes nothing.
#   now=this machine's time
#   runs=yes, or absent
#   run=NAME|steps of the whole run|done: yes or no|step of the checkpoint|age of the checkpoint|last
#     record of metrics
#   other=NAME: a run about which nothing is printed, because it is not RUN, or is none of the
#     MOST_RUNS newest
#   said=NAME|a line of node 0's log that tells whether a checkpoint is being written, or which one
#     was last verified; these lines are in the order of the log
# Ages are in seconds; a value that is not known is empty.
# Usage: facts-runs.sh, with the variables
#   DATA_ROOT  the folder of the data
#   RUN        the name of the only run to examine; if it is empty, all runs are examined
set -u

: "${DATA_ROOT:?}"
RUN=${RUN:-}
LC_ALL=C
PATH=$PATH:/usr/bin:/bin
export LC_ALL PATH
readonly MOST_RUNS=50
readonly LOG_BYTES=262144
readonly LONGEST_LINE=400

age_of() { echo "$(($(date +%s) - $(stat -c %Y "$1")))"; }

# Prints the step and the age of the newest complete checkpoint. Its manifest is written last, so a
# checkpoint with a manifest is complete. Names are sorted by the number: the steps from 100,000,000
# on have more digits than those before.
checkpoint() {
  # Other names, which may be of any form, are left out.
  # shellcheck disable=SC2012
  for name in $(ls "$1/checkpoints" 2>/dev/null | sed -n '/^step-[0-9]*$/p' | sort -t - -k 2,2nr); do
    manifest=$1/checkpoints/$name/manifest.json
    if [ -f "$manifest" ]; then
      printf '%s|%s' "$(echo "${name#step-}" | sed 's/^0*\(.\)/\1/')" "$(age_of "$manifest")"
      return
    fi
  done
  printf '|'
}

# Prints the last line of each of these kinds in node 0's log, in the order of the log: saves (the
# last two lines: the beginning of a save, and that training waits for it), steps, starts and ends of
# the ranks, and checkpoints that were verified: by a start, by the mirror, and in a line that the
# node repeats. The lines of the log are `time node rank text`.
said() {
  tail -c "$LOG_BYTES" "$1/logs/node-00000.log" 2>/dev/null | cut -c "-$LONGEST_LINE" | awk -v name="$1" '
    BEGIN { sub(".*/", "", name) }
    { text = $0; sub(/^[^ ]+ [0-9]+ [^ ]+ /, "", text) }
    text ~ /^(checkpoint step-|training waits for checkpoint |(warning: )?the checkpoint of step )/ { two = one; one = NR }
    text ~ /^step [0-9]/ { step = NR }
    text ~ /^\[node 0\] (round|training stopped|fatal|giving up|run )/ { ranks = NR }
    text ~ /^continuing after step [0-9]/ { read = NR }
    text ~ /^\[mirror\] step [0-9]+: [0-9,]+ bytes copied/ { sent = NR }
    text ~ /^\[node 0\] said at [^ ]+: (continuing|\[mirror\])/ { again = NR }
    NR == one || NR == step || NR == ranks || NR == read || NR == sent || NR == again { line[NR] = $1 " " text }
    END {
      for (i = 1; i <= NR; i++)
        if (i == two || i == one || i == step || i == ranks || i == read || i == sent || i == again) print "said=" name "|" line[i]
    }'
}

one_run() {
  steps=$(sed -n 's/.*"\{0,1\}max_steps"\{0,1\}: *\([0-9][0-9_]*\).*/\1/p' "$1/run.yaml" 2>/dev/null | head -n 1)
  if [ -e "$1/done.json" ]; then is_done=yes; else is_done=no; fi
  # The last line may be half written.
  record=$(tail -c 8192 "$1/metrics.jsonl" 2>/dev/null | grep -a '^{.*}$' | tail -n 1)
  printf 'run=%s|%s|%s|%s|%s\n' "${1##*/}" "$steps" "$is_done" "$(checkpoint "$1")" "$record"
}

main() {
  told=0
  echo "now=$(date +%s)"
  if [ -d "$DATA_ROOT/runs" ]; then
    echo runs=yes
    # The names of runs contain no blanks.
    # shellcheck disable=SC2045
    for name in $(ls -t "$DATA_ROOT/runs"); do
      [ -d "$DATA_ROOT/runs/$name" ] || continue
      if [ "$name" != "${RUN:-$name}" ] || [ "$told" -ge "$MOST_RUNS" ]; then
        echo "other=$name"
        continue
      fi
      told=$((told + 1))
      one_run "$DATA_ROOT/runs/$name"
      said "$DATA_ROOT/runs/$name"
    done
  else
    echo runs=absent
  fi
  echo runs_done=yes
}

main
