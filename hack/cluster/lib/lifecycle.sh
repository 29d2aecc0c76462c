# Start, stop, and what is done with a running cluster.

# A dead process stays a zombie until its parent looks: ask for the program, not for the PID.
alive() { [[ $(readlink "/proc/$(cat "$state/unshare.pid" 2>/dev/null || echo none)/exe") == */unshare ]]; }
running() { alive && [[ -e $state/ready ]]; }
require_running() { running || die "cluster $name does not run; start it with: CLUSTER=$name $self up"; }

up() { # up [--no-node]
  if running; then
    say "cluster $name is up already"
    return
  fi
  down # what a killed run may have left
  local mode=node
  [[ ${1:-} != --no-node ]] || mode=control-plane
  mkdir -p "$state/log"
  [[ -z ${owner:-} ]] || echo "$owner" >"$state/owner"
  start_milliseconds >"$state/t0"
  echo "$tools" >"$state/tools" # those of this cluster, whatever a newer checkout wants
  make_pki
  write_config
  mark certificates made
  # shellcheck disable=SC2086 # nothing or three words
  setsid ${tether:-} unshare --pid --fork --kill-child --mount --mount-proc --net --propagation private "$self" _node $mode </dev/null >"$state/log/node.log" 2>&1 &
  echo $! >"$state/unshare.pid"
  until [[ -e $state/ready ]]; do
    alive || kill -0 "$(cat "$state/unshare.pid")" 2>/dev/null || {
      tail -n 20 "$state/log/node.log" >&2
      die "the node died; its logs are in $state/log"
    }
    sleep 0.1
  done
  pgrep -P "$(cat "$state/unshare.pid")" >"$state/init.pid"
  say "cluster $name is up after $(tail -n 1 "$state/times" | cut -d' ' -f1) ms"
}

# For tests: the cluster lives no longer than whoever holds the other end of stdin. Even kill -9 of this process ends every
# process of the cluster (the tether); the files that remain are swept by the next one.
hold() {
  sweep
  trap 'trap "" TERM INT HUP; down' EXIT
  trap 'exit 0' TERM INT HUP
  tether="setpriv --pdeathsig KILL"
  owner=$$ up "$@" </dev/null
  echo ready
  while read -r _; do :; done
}

down() {
  [[ -e $state ]] || return 0
  if alive; then
    local unshare
    unshare=$(cat "$state/unshare.pid")
    pkill -KILL -P "$unshare" || true # PID 1 of the namespaces
    while alive; do sleep 0.05; done
  fi
  remove_cgroups
  rm -rf --one-file-system "$state"
}

remove_cgroups() { # they empty as the kernel ends the processes: for 5 s at most
  local root=/sys/fs/cgroup folder try
  for try in $(seq 50); do
    for folder in "$root/$cgroup_parent/$name" "$root"/*/"$cgroup_parent/$name"; do
      [[ ! -d $folder ]] || find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null || true
    done
    compgen -G "$root/*/$cgroup_parent/$name" >/dev/null || [[ -d $root/$cgroup_parent/$name ]] || break
    sleep 0.1
  done
  for folder in "$root/$cgroup_parent" "$root"/*/"$cgroup_parent"; do rmdir "$folder" 2>/dev/null || true; done # the last one out
}

in_network() {
  require_running
  KUBECONFIG=$state/admin.kubeconfig PATH=$(cat "$state/tools")/bin:$PATH nsenter -t "$(cat "$state/init.pid")" -n "$@"
}

load() {
  require_running
  local archive
  for archive; do
    nsenter -t "$(cat "$state/init.pid")" -m -n "$(cat "$state/tools")/bin/ctr" -n k8s.io images import "$(readlink -f "$archive")"
  done
}

gpu() {
  local amount="{\"nvidia.com/gpu\":\"$1\"}"
  in_network kubectl patch node "$node" --subresource=status --type=merge -p "{\"status\":{\"capacity\":$amount,\"allocatable\":$amount}}"
}

sweep() { # clusters of owners that are gone
  local folder
  for folder in "$state_root"/*/; do
    [[ -s $folder/owner ]] && ! kill -0 "$(cat "$folder/owner")" 2>/dev/null || continue
    CLUSTER=$(basename "$folder") "$self" down
  done
}

list() {
  local folder
  for folder in "$state_root"/*/; do
    [[ -d $folder ]] || continue
    name=$(basename "$folder") state=${folder%/}
    if running; then echo "$name"; fi
  done
}
