# Configuration files of containerd, CNI and the kubelet.

cgroup_parent=vllm-tuning-test # the kubelet's cgroups: /$cgroup_parent/$name

write_config() {
  mkdir -p "$state"/{cni,log,containerd,kubelet,etcd}
  # restrict_oom_score_adj: without CAP_SYS_RESOURCE runc cannot lower a sandbox's score and dies
  cat >"$state/containerd.toml" <<TOML
version = 2
root = "$state/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$pause_image"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "$tools/cni"
  conf_dir = "$state/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
TOML
  cat >"$state/cni/10-bridge.conflist" <<JSON
{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "pods0", "isGateway": true, "isDefaultGateway": true,
 "hairpinMode": true, "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "10.244.0.0/24"}]]}}]}
JSON
  # clusterDNS names an address where nothing listens: names fail at once, and the kubelet does not warn about every pod
  cat >"$state/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /$cgroup_parent/$name
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
clusterDNS: [$gateway]
clusterDomain: cluster.local
resolvConf: $state/resolv.conf
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $state/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $state/pki/kubelet.crt
tlsPrivateKeyFile: $state/pki/kubelet.key
podLogsDir: /var/log/pods
failSwapOn: false
imageGCHighThresholdPercent: 100
imageMinimumGCAge: 24h
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%, imagefs.inodesFree: 1%}
nodeStatusUpdateFrequency: 4s
syncFrequency: 10s
registerNode: true
maxPods: 110
serializeImagePulls: false
enableControllerAttachDetach: false
YAML
  : >"$state/resolv.conf"
}
