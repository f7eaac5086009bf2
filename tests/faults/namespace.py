"""A network and a mount table of this process's own: rules and mounts that nobody else sees."""

import ctypes
import subprocess
from functools import cache

_NEW_MOUNTS, _NEW_NETWORK = 0x0002_0000, 0x4000_0000  # CLONE_NEWNS, CLONE_NEWNET of <sched.h>


@cache
def enter() -> None:
    """Leaves the machine's namespaces for good; children and threads that are started later follow.

    Raises OSError unless this process is root, in a container with CAP_SYS_ADMIN.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNTS | _NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "no namespaces of our own: be root, and in a container have CAP_SYS_ADMIN")
    run("mount", "--make-rprivate", "/")
    run("ip", "link", "set", "lo", "up", "mtu", "1500")


def run(*argv: str) -> None:
    """Runs a command of the system's; raises CalledProcessError when it fails."""
    subprocess.run(argv, check=True)
