#!/usr/bin/env python3
"""Make a one-layer image archive from a root file system: no daemon, no registry.

mkimage.py ROOTFS.tar NAME:TAG OUT.tar [ENTRYPOINT...]

The archive has the docker-archive layout (manifest.json, config, layer), which both
``ctr images import`` and ``buildah pull docker-archive:`` read. ``buildah build --layers`` wants
as many history entries as layers.
"""

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

CREATED = "2026-01-01T00:00:00Z"  # fixed, so that the same root gives the same image id


def config_of(rootfs: Path, entrypoint: list[str]) -> bytes:
    """Return the image configuration of a single layer."""
    with rootfs.open("rb") as f:
        layer = hashlib.file_digest(f, "sha256").hexdigest()
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    command = {"Entrypoint": entrypoint} if entrypoint else {"Cmd": ["/bin/sh"]}
    return json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": CREATED,
            "config": {"Env": [path], **command},
            "history": [{"created": CREATED, "created_by": "mkimage.py"}],
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
        }
    ).encode()


def main(rootfs: Path, name: str, out: Path, entrypoint: list[str]) -> None:
    """Write the archive."""
    config = config_of(rootfs, entrypoint)
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(out, "w") as archive:
        for member, data in (
            (config_name, config),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        archive.add(rootfs, "layer.tar")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
