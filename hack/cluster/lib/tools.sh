# The programs of a cluster, made once into $cache/cluster/tools-<hash of what they are made from>/bin.
# Kubernetes, etcd and helm are compiled from Go modules (pinned by go.sum); containerd, runc and the CNI plugins are taken
# out of the distribution's packages without installing them: no service is started, and no Docker is replaced.

kubernetes=v1.37.2
kube_programs=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl)
runtime_packages=(containerd runc containernetworking-plugins)
# command=package: installed only where the command is missing
host_packages=(buildah=buildah mmdebstrap=mmdebstrap nft=nftables ip=iproute2 openssl=openssl nsenter=util-linux libseccomp=libseccomp2)

tools_dir() {
  echo "$cache/cluster/tools-$(digest "$here/lib/tools.sh" "$(for part in kube etcd helm; do cat "$here/$part"/go.{mod,sum}; done)" "$here/kube/main.go" "$here/pause/main.go" "$(uname -m)")"
}

build_tools() {
  tools=$(tools_dir)
  export PATH=$tools/bin:$PATH
  [[ -e $tools/complete ]] || locked tools make_tools
  install_host_packages
}

make_tools() {
  [[ -e $tools/complete ]] && return
  local since=$SECONDS work=$tools.tmp
  say "Building the test cluster's tools, once (10 to 15 minutes on two cores) into $tools"
  rm -rf "$work"
  mkdir -p "$work/bin"
  step "runtime packages" fetch_runtime "$work"
  local v=k8s.io/component-base/version minor=${kubernetes#v1.}
  compile kube "$work" -ldflags "-s -w -X $v.gitVersion=$kubernetes -X $v.gitMajor=1 -X $v.gitMinor=${minor%.*}" .
  local program
  for program in "${kube_programs[@]}"; do ln -s kube "$work/bin/$program"; done
  compile etcd "$work" -ldflags "-s -w" go.etcd.io/etcd/server/v3
  compile helm "$work" -ldflags "-s -w" helm.sh/helm/v4/cmd/helm
  (cd "$here/pause" && CGO_ENABLED=0 go build -ldflags "-s -w" -o "$work/bin/pause" .)
  touch "$work/complete"
  rm -rf "$tools"
  mv "$work" "$tools"
  find "$cache/cluster" -maxdepth 1 -name 'tools-*' ! -path "$tools" -mtime +30 -exec rm -rf {} + # versions long replaced
  say "Tools built in $(elapsed "$since")"
}

fetch_runtime() { # fetch_runtime DIR: programs of the runtime packages into DIR/bin and DIR/cni
  local debs
  debs=$(mktemp -d)
  chmod 777 "$debs" # apt downloads as its own user
  (cd "$debs" && { apt-get download -qq "${runtime_packages[@]}" || { apt-get update -qq && apt-get download -qq "${runtime_packages[@]}"; }; })
  local deb
  for deb in "$debs"/*.deb; do dpkg-deb -x "$deb" "$debs/root"; done
  cp "$debs"/root/usr/bin/{containerd,containerd-shim-runc-v2,ctr} "$debs"/root/usr/sbin/runc "$1/bin/"
  mkdir "$1/cni"
  cp "$debs"/root/usr/lib/cni/{bridge,host-local,loopback,portmap} "$1/cni/"
  rm -rf "$debs"
}

# compile MODULE DIR ARGS...: go build in $here/MODULE; a line every 20 s says how far it is
compile() {
  local module=$1 out=$2/bin/$1 since=$SECONDS log total done=0 pid
  shift 2
  log=$(mktemp)
  cd "$here/$module"
  say "  $module: fetching modules ..."
  total=$(go list -deps "${@: -1}" 2>"$log" | wc -l) || { tail -n 20 "$log" >&2; die "  $module: modules cannot be fetched; see $log"; }
  : >"$log"
  go build -mod=readonly -v "${@:1:$#-1}" -o "$out" "${@: -1}" >>"$log" 2>&1 &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1
    (((SECONDS - since) % 20)) || {
      done=$(wc -l <"$log")
      say "  $module: $(elapsed "$since"), $done of at most $total packages$( ((done > total / 10)) && echo ", about $(((SECONDS - since) * (total - done) / done / 60 + 1)) min to go")"
    }
  done
  wait "$pid" || { tail -n 20 "$log" >&2; die "  $module: go build failed; the whole output is in $log"; }
  say "  $module: done in $(elapsed "$since")"
  rm -f "$log"
  cd "$OLDPWD"
}

install_host_packages() {
  local item missing=()
  for item in "${host_packages[@]}"; do
    if [[ ${item%=*} == lib* ]]; then ldconfig -p | grep -q "${item%=*}" || missing+=("${item#*=}"); else
      command -v "${item%=*}" >/dev/null || missing+=("${item#*=}")
    fi
  done
  ((${#missing[@]})) || return 0
  step "apt-get install ${missing[*]}" apt_install "${missing[@]}" ||
    die "apt-get could not install ${missing[*]}; install them by hand and run this again"
}

apt_install() { # --no-remove: never trade a package of the machine's owner for ours
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -y -qq --no-install-recommends --no-remove "$@" ||
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends --no-remove "$@"; }
}
