# Can this machine hold a node? If not: why, and what to do instead.

preflight() {
  local problems=()
  if [[ $(uname -s) != Linux ]]; then
    problems+=("This is $(uname -s); a node needs Linux.")
  else
    [[ $(uname -m) == x86_64 ]] || problems+=("The machine is $(uname -m); only x86_64 has been tried.")
    [[ $(id -u) == 0 ]] || problems+=("Not root; a node needs root for namespaces, mounts and cgroups (try: sudo make ...).")
    command -v apt-get >/dev/null || problems+=("No apt-get; containerd, runc and the CNI plugins come from Debian or Ubuntu packages.")
    cgroups_usable || problems+=("No usable cgroups under /sys/fs/cgroup (in a container? run it with --privileged --cgroupns=host).")
    if [[ $(id -u) == 0 ]]; then
      unshare --mount --net --pid --fork true 2>/dev/null ||
        problems+=("unshare is not permitted: this container or sandbox lacks CAP_SYS_ADMIN.")
    fi
  fi
  [[ -e $(tools_dir)/complete ]] || go_usable || problems+=("Go 1.26 or newer is needed to compile Kubernetes (https://go.dev/dl).")
  ((${#problems[@]})) || return 0
  say "This machine cannot hold a test cluster:" "${problems[@]/#/$'\n'  - }"
  say "Against any other cluster (kind, minikube, a real one) the demo runs with: KUBECONFIG=... make demo"
  return 1
}

cgroups_usable() {
  if [[ $(stat -fc %T /sys/fs/cgroup) == cgroup2fs ]]; then
    grep -qw memory /sys/fs/cgroup/cgroup.controllers && [[ -w /sys/fs/cgroup/cgroup.subtree_control ]]
  else
    [[ -w /sys/fs/cgroup/memory && -w /sys/fs/cgroup/cpu && -w /sys/fs/cgroup/cpuset ]]
  fi
}

go_usable() { # Go >= 1.21 fetches a newer toolchain by itself unless GOTOOLCHAIN=local
  local version
  version=$(go env GOVERSION 2>/dev/null) || return 1
  [[ $(printf '%s\n' "go1.26" "$version" | sort -V | head -n1) == go1.26 || $(go env GOTOOLCHAIN) != local ]]
}
