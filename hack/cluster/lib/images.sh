# The two base images, made once into $cache/cluster/images-<hash>: there is no registry to pull from.
# pause.tar holds the pod's first process; python.tar is Debian 12 with its own Python 3.11 under the name that the
# Dockerfile's BASE gets in local builds.

base_image=localhost/python:3.11-slim
pause_image=registry.k8s.io/pause:3.10
debian=bookworm
python_packages=(ca-certificates python3 python3-venv)

images_dir() { echo "$cache/cluster/images-$(digest "$here/lib/images.sh" "$here/mkimage.py" "$here/pause/main.go")"; }

build_images() {
  images=$(images_dir)
  [[ -e $images/complete ]] || locked images make_images
}

make_images() {
  [[ -e $images/complete ]] && return
  local work=$images.tmp
  rm -rf "$work"
  mkdir -p "$work"
  step "pause image" make_pause_image "$work"
  step "python base image ($debian, about 30 s)" make_python_image "$work"
  touch "$work/complete"
  rm -rf "$images"
  mv "$work" "$images"
  find "$cache/cluster" -maxdepth 1 -name 'images-*' ! -path "$images" -mtime +30 -exec rm -rf {} +
}

make_pause_image() {
  tar -C "$tools/bin" --owner=0 --group=0 -cf "$1/root.tar" pause
  "$here/mkimage.py" "$1/root.tar" "$pause_image" "$1/pause.tar" /pause
  rm "$1/root.tar"
}

make_python_image() {
  local list
  list=$(IFS=,; echo "${python_packages[*]}")
  # with SOURCE_DATE_EPOCH the same packages make the same image, and the layers built upon it stay valid
  SOURCE_DATE_EPOCH=1767225600 mmdebstrap --quiet --variant=minbase --include="$list" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=*/__pycache__/*' \
    --customize-hook='rm -rf "$1"/usr/lib/python3*/__pycache__; find "$1/usr/lib" -name __pycache__ -prune -exec rm -rf {} +' \
    "$debian" "$1/root.tar"
  "$here/mkimage.py" "$1/root.tar" "$base_image" "$1/python.tar"
  rm "$1/root.tar"
}
