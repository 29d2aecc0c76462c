# What runs inside the namespaces. node_main is PID 1 there: when it ends, the kernel ends all the rest.

node=$name-node
start_milliseconds() { date +%s%3N; }
mark() { echo "$(($(start_milliseconds) - $(cat "$state/t0"))) ms $*" >>"$state/times"; }
admin_kubectl() { kubectl --kubeconfig "$state/admin.kubeconfig" "$@"; }
daemon() { # daemon NAME CMD...: in the background, its output in log/NAME.log
  local log=$state/log/$1.log
  shift
  "$@" >>"$log" 2>&1 &
}

node_main() { # node_main node|control-plane
  tools=$(tools_dir) images=$(images_dir) pki=$state/pki
  export PATH=$tools/bin:$PATH
  mount --make-rshared /
  prepare_mounts
  prepare_network
  prepare_cgroups
  start_etcd
  [[ $1 != node ]] || daemon containerd containerd --config "$state/containerd.toml"
  start_apiserver
  local importing=
  if [[ $1 == node ]]; then import_base & importing=$!; fi # while the control plane starts
  wait_for 90 admin_kubectl get --raw /readyz
  mark apiserver ready
  start_controllers
  if [[ $1 == node ]]; then
    start_kubelet
    wait_for 90 admin_kubectl wait --for=condition=Ready "node/$node" --timeout 1s
    mark node ready
    wait "$importing"
    mark images imported
  fi
  wait_for 60 admin_kubectl -n default get serviceaccount default
  mark default service account there
  touch "$state/ready"
  trap 'exit 0' TERM
  while :; do wait -n 2>/dev/null || sleep 1; done # bash as PID 1 also reaps the orphans
}

# The kubelet sets these for the whole machine (kernel.panic_on_oops!). Here it writes to files that cover them.
kubelet_sysctls=(vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes)

prepare_mounts() {
  mount -t tmpfs tmpfs /run
  mkdir -p /run/netns /run/containerd /run/lock
  local folder
  for folder in containerd kubelet etcd; do mount -t tmpfs -o mode=755 tmpfs "$state/$folder"; done
  mkdir -p "$state/varlog" /var/lib/kubelet
  mount --bind "$state/varlog" /var/log
  mount --bind "$state/kubelet" /var/lib/kubelet
  local key cover
  for key in "${kubelet_sysctls[@]}"; do
    cover=$state/sysctl/$key
    mkdir -p "${cover%/*}"
    cat "/proc/sys/$key" >"$cover"
    mount --bind "$cover" "/proc/sys/$key"
  done
}

prepare_network() {
  ip link set lo up
  ip link add pods0 type bridge
  ip addr add "$gateway/24" dev pods0
  ip link set pods0 up
  ip route add "$services.0/24" dev pods0 # without a route, kube-proxy's rules never see what the node itself sends
  sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.route_localnet=1
}

prepare_cgroups() {
  local parent=$cgroup_parent root=/sys/fs/cgroup controller files
  if [[ $(stat -fc %T $root) == cgroup2fs ]]; then
    mkdir -p "$root/$parent/$name"
    for controller in cpuset cpu io memory pids hugetlb; do # those that the machine has
      for files in "$root" "$root/$parent" "$root/$parent/$name"; do
        echo "+$controller" >"$files/cgroup.subtree_control" 2>/dev/null || true
      done
    done
    for files in "$root/$parent" "$root/$parent/$name"; do echo 1000 >"$files/cpu.weight" 2>/dev/null || true; done # see below
    return
  fi
  for controller in "$root"/*/; do [[ $controller == */unified/ ]] || mkdir -p "$controller/$parent/$name"; done
  for files in cpus mems; do # a new v1 cpuset is empty, and nothing can run in it
    cat $root/cpuset/cpuset.$files >"$root/cpuset/$parent/cpuset.$files"
    cat $root/cpuset/cpuset.$files >"$root/cpuset/$parent/$name/cpuset.$files"
  done
  echo 1 >"$root/memory/$parent/memory.use_hierarchy" 2>/dev/null || true
  # otherwise all pods together weigh as much as one process of the machine outside
  for files in "$root/cpu/$parent" "$root/cpu/$parent/$name"; do echo 4096 >"$files/cpu.shares"; done
}

import_base() {
  wait_for 30 ctr -n k8s.io images ls
  local archive
  for archive in "$images"/*.tar; do ctr -n k8s.io images import "$archive"; done >>"$state/log/import.log" 2>&1
}

start_etcd() {
  daemon etcd etcd --data-dir "$state/etcd" --unsafe-no-fsync --log-level warn \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380
}

start_apiserver() {
  # shellcheck disable=SC2086 # APISERVER_ARGS is a list of words
  daemon apiserver kube-apiserver --etcd-servers http://127.0.0.1:2379 --bind-address 0.0.0.0 --advertise-address "$gateway" --secure-port 6443 \
    --tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" --client-ca-file "$pki/ca.crt" \
    --service-account-issuer https://kubernetes.default.svc.cluster.local --service-account-key-file "$pki/sa.pub" --service-account-signing-key-file "$pki/sa.key" \
    --kubelet-client-certificate "$pki/admin.crt" --kubelet-client-key "$pki/admin.key" --kubelet-certificate-authority "$pki/ca.crt" \
    --kubelet-preferred-address-types InternalIP --service-cluster-ip-range "$services.0/24" --authorization-mode Node,RBAC --allow-privileged \
    --enable-admission-plugins NodeRestriction ${APISERVER_ARGS:-}
}

start_controllers() { # at the default 20 requests/s the controller-manager needs 5 s to start; the high limits make it 1 s
  daemon controller-manager kube-controller-manager --kubeconfig "$state/controller-manager.kubeconfig" --leader-elect=false --bind-address 127.0.0.1 \
    --use-service-account-credentials --service-account-private-key-file "$pki/sa.key" --root-ca-file "$pki/ca.crt" \
    --cluster-signing-cert-file "$pki/ca.crt" --cluster-signing-key-file "$pki/ca.key" --kube-api-qps 1000 --kube-api-burst 1000 \
    --node-monitor-period 2s --node-monitor-grace-period 16s
  daemon scheduler kube-scheduler --kubeconfig "$state/scheduler.kubeconfig" --leader-elect=false --bind-address 127.0.0.1 --kube-api-qps 1000 --kube-api-burst 1000
}

start_kubelet() {
  daemon kubelet kubelet --config "$state/kubelet.yaml" --kubeconfig "$state/kubelet.kubeconfig" --hostname-override "$node" --node-ip "$gateway"
  daemon proxy kube-proxy --kubeconfig "$state/proxy.kubeconfig" --proxy-mode nftables --cluster-cidr 10.244.0.0/24 --hostname-override "$node" \
    --conntrack-max-per-core 0 --conntrack-tcp-timeout-established 0 --conntrack-tcp-timeout-close-wait 0
  admin_kubectl create clusterrolebinding test-node-proxy --clusterrole system:node-proxier --user system:kube-proxy >/dev/null
}
