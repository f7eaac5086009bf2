"""Images built and run without a daemon, in a folder that is removed afterwards.

The Dockerfile's base comes from here, under the name that the Dockerfile gives it: what it needs of Debian, unpacked by
mmdebstrap, with a Python of this machine in /usr/local.
"""

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BASE = "docker.io/library/python:3.13-slim"
IMAGE = "localhost/outbox-relay:test"
TOOLS = ("buildah", "podman", "runc", "mmdebstrap")
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
# What the modules of Python's standard library are linked with, and the shell and programs of the Dockerfile.
PACKAGES = (
    *("ca-certificates", "libbz2-1.0", "libexpat1", "libffi8", "liblzma5"),
    *("libsqlite3-0", "libssl3", "libuuid1", "zlib1g"),
    *("base-files", "coreutils", "dash", "libc-bin", "sed"),
)
# The documentation that Debian's slim images leave out, and what of Python is not for running programs.
UNWANTED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
LEFT_OUT = {"__pycache__", "idlelib", "site-packages", "test", "tkinter", "turtledemo"}
HARDENED = (
    *("--read-only", "--read-only-tmpfs=false", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    *("--network", "host", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"),
    # It asks for a systemd; the test runs the command of the health check itself.
    "--no-healthcheck",
)


@dataclass(frozen=True)
class Store:
    """Images and containers in `folder`, which is theirs alone."""

    folder: Path

    def buildah(self, *arguments: str) -> str:
        """What buildah said; fails with its error."""
        return self._run("buildah", *self._places(), *arguments)

    def podman(self, *arguments: str) -> str:
        """What podman said; fails with its error."""
        return self._run(*self.argv(*arguments))

    def argv(self, *arguments: str) -> list[str]:
        """The command line of podman with this store."""
        tmp = ("--tmpdir", str(self.folder / "tmp"), "--cgroup-manager", "cgroupfs", "--events-backend", "none")
        return ["podman", *self._places(), *tmp, "--runtime", "runc", *arguments]

    def inspect(self, kind: str, name: str) -> dict[str, Any]:
        """What podman knows of an image or a container."""
        [found] = json.loads(self.podman("inspect", "--type", kind, name))
        return dict(found)

    def build_base(self, prefix: Path) -> None:
        """Make the base image, with the Python that is installed at `prefix`."""
        system, python = self.folder / "system.tar", self.folder / "python.tar"
        options = ["--dpkgopt=force-unsafe-io", *(f"--dpkgopt=path-exclude={pattern}" for pattern in UNWANTED)]
        wanted = f"--include={','.join(PACKAGES)}"
        # Unpacked only: to configure packages takes four times as long, and there is nothing to configure.
        merged = "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"
        self._run("mmdebstrap", "--quiet", "--variant=extract", wanted, merged, *options, "bookworm", str(system))
        _pack(prefix, python)
        container = self.buildah("from", "scratch")
        self.buildah("add", "--quiet", container, str(system), "/")
        self.buildah("add", "--quiet", container, str(python), "/usr/local")
        pip = "ldconfig && python3 -m ensurepip --default-pip && ln -sf python3 /usr/local/bin/python"
        self.buildah("run", container, "--", "sh", "-c", pip)
        self.buildah("commit", "--quiet", "--rm", container, BASE)

    def build(self, **arguments: str) -> None:
        """Build the Dockerfile with these build arguments."""
        given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        # A volume leaves no trace in the image; docker's own format is the one with health checks.
        volume = f"--volume={AUTHORITIES}:{AUTHORITIES}:ro"
        self.buildah("bud", "--quiet", "--pull-never", "--format=docker", volume, *given, f"--tag={IMAGE}", str(ROOT))

    def close(self) -> None:
        """Remove every container and the folder."""
        self.podman("rm", "--all", "--force", "--time=0")
        self.podman("rmi", "--all", "--force")
        shutil.rmtree(self.folder)

    def _places(self) -> tuple[str, ...]:
        return ("--root", str(self.folder / "root"), "--runroot", str(self.folder / "run"), "--storage-driver=overlay")

    def _run(self, *argv: str) -> str:
        environment: Mapping[str, str] = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(argv)}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()


def missing(folder: Path) -> list[str]:
    """What this machine lacks to build and run an image in `folder`, each with what to do."""
    if os.getuid():
        return ["run it as root"]
    if tools := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return [f"apt-get install {' '.join(tools)}"]
    names = ("lower", "upper", "work", "merged")
    for name in names:
        (folder / name).mkdir()
    lower, upper, work, merged = (folder / name for name in names)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    # Refused in a container without CAP_SYS_ADMIN, and on a folder that is an overlay itself.
    mount = ("unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", options, str(merged))
    said = subprocess.run(mount, capture_output=True, text=True, check=False)
    return [f"{folder} takes no overlay, name another with TMPDIR: {said.stderr.strip()}"] if said.returncode else []


def _pack(prefix: Path, archive: Path) -> None:
    """Write what runs of a Python to a tar file."""

    def wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = 0
        path = Path(member.name)
        return None if LEFT_OUT.intersection(path.parts) or path.suffix == ".a" else member

    with tarfile.open(archive, "w") as tar:
        for program in sorted((prefix / "bin").glob("python3*")):
            if "config" not in program.name and "gdb" not in program.name:
                tar.add(program, f"bin/{program.name}")
        tar.add(prefix / "lib", "lib", filter=wanted)
