# Certificates and kubeconfigs of one cluster.

gateway=10.244.0.1 # the node's address on the pods' bridge
services=10.96.0   # .0/24

make_pki() {
  pki=$state/pki
  mkdir -p "$pki"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj "/CN=$name-ca" -keyout "$pki/ca.key" -out "$pki/ca.crt" 2>/dev/null
  openssl ecparam -genkey -name prime256v1 -noout -out "$pki/sa.key" 2>/dev/null
  openssl ec -in "$pki/sa.key" -pubout -out "$pki/sa.pub" 2>/dev/null
  certificate apiserver /CN=kube-apiserver "IP:127.0.0.1,IP:$gateway,IP:$services.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
  certificate admin /O=system:masters/CN=admin
  certificate controller-manager /CN=system:kube-controller-manager
  certificate scheduler /CN=system:kube-scheduler
  certificate proxy /CN=system:kube-proxy
  certificate kubelet "/O=system:nodes/CN=system:node:$node" "IP:127.0.0.1,IP:$gateway,DNS:$node"
  local user
  for user in admin controller-manager scheduler proxy kubelet; do kubeconfig "$user"; done
}

certificate() { # certificate NAME SUBJECT [SAN]: signed by the cluster's CA
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$pki/$1.key" -subj "$2" 2>/dev/null |
    openssl x509 -req -days 365 -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -CAcreateserial -out "$pki/$1.crt" \
      -extfile <(printf 'basicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth,serverAuth\n%s' "${3:+subjectAltName=$3}") 2>/dev/null
}

kubeconfig() { # kubeconfig NAME: from the certificate of that name
  cat >"$state/$1.kubeconfig" <<YAML
apiVersion: v1
kind: Config
current-context: $name
clusters: [{name: $name, cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: $(base64 -w0 "$pki/ca.crt")}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 "$pki/$1.crt"), client-key-data: $(base64 -w0 "$pki/$1.key")}}]
contexts: [{name: $name, context: {cluster: $name, user: $1}}]
YAML
}
