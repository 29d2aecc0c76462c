# Paths, messages and waiting. Sourced by ../cluster and by the other scripts under hack/.

cache=${XDG_CACHE_HOME:-$HOME/.cache}/vllm-tuning-operator
state_root=/var/tmp/vllm-tuning-operator/clusters # fixed: every shell must find the same clusters
state=$state_root/${name:-}

say() { printf '%s\n' "$*" >&2; }
die() {
  say "$@"
  exit 1
}

# digest FILE|STRING...: 16 hex digits that change when a file's content or a string changes
digest() {
  local item
  for item; do
    if [[ -f $item ]]; then cat "$item"; else printf '%s\n' "$item"; fi
  done | sha256sum | cut -c1-16
}

# elapsed SINCE: minutes and seconds since $SECONDS was SINCE
elapsed() { printf '%d:%02d' $(((SECONDS - $1) / 60)) $(((SECONDS - $1) % 60)); }

# step WHAT CMD...: run CMD with its output in a log; say when it starts, how long it took, and the log's end when it fails
step() {
  local what=$1 since=$SECONDS log
  shift
  log=$(mktemp)
  say "  $what ..."
  if "$@" >"$log" 2>&1; then
    say "  $what: done in $(elapsed "$since")"
    rm -f "$log"
  else
    tail -n 30 "$log" >&2
    say "  $what: FAILED after $(elapsed "$since"); the whole output is in $log"
    return 1
  fi
}

# wait_for SECONDS CMD...: until CMD succeeds, or fail with its last words
wait_for() {
  local end=$((SECONDS + $1)) words
  shift
  until words=$("$@" 2>&1); do
    ((SECONDS < end)) || { say "timed out: $*: $words"; return 1; }
    sleep 0.1
  done
}

# locked NAME CMD...: two processes never build the same thing at once; the second waits and then finds it made.
# CMD runs with the descriptor closed (the shell keeps a private copy), so that no child which outlives us keeps the lock.
locked() {
  local lock_name=$1 lock_fd # bash locals are seen by what is called: no names that a caller may use
  shift
  mkdir -p "$cache/locks"
  exec {lock_fd}>"$cache/locks/$lock_name"
  flock -n "$lock_fd" || {
    say "  another process is building ($lock_name); waiting for it"
    flock -w 3600 "$lock_fd" || die "gave up after an hour: who holds $cache/locks/$lock_name?"
  }
  eval '"$@" '"$lock_fd>&-"
  set -- $? # not `|| status=$?`: that would switch `set -e` off within CMD
  exec {lock_fd}>&-
  return "$1"
}
