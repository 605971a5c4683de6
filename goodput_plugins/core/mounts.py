"""What kind of file system an open file lies on, as ``/proc`` tells it.

>>> file_system(os.open("/dev/shm/x", os.O_CREAT | os.O_RDWR))
'tmpfs'
"""

from __future__ import annotations

MAPPABLE = frozenset({"ext4", "xfs", "tmpfs", "overlay"})
"""Space that was reserved here is there: a store into it cannot meet a full disk."""

REMOTE = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "ceph", "gpfs", "beegfs", "beegfs_nodev", "afs", "wekafs"),
        *("panfs", "orangefs", "pvfs2", "glusterfs", "9p", "virtiofs", "ocfs2", "gfs2", "vboxsf", "vmhgfs", "fuse"),
    }
)
"""A server, or another process, answers each write here, and may take its time. So may any ``fuse.<name>``."""


def file_system(fd: int) -> str:
    """The type of the file system that an open file lies on; empty where nothing tells."""
    try:
        with open(f"/proc/self/fdinfo/{fd}") as info, open("/proc/self/mountinfo", errors="replace") as mounts:
            return _type_of(_mount_id(info.read()), mounts.read())
    except (OSError, ValueError, LookupError, StopIteration):
        return ""


def is_remote(kind: str) -> bool:
    """Whether a write to a file system of this type may take as long as a server likes."""
    return kind in REMOTE or kind.startswith("fuse.")


def _mount_id(info: str) -> str:
    return next(line.split()[1] for line in info.splitlines() if line.startswith("mnt_id:"))


def _type_of(mount_id: str, mounts: str) -> str:
    """The type stands behind a lone dash, after any number of optional fields."""
    (line,) = (line for line in mounts.splitlines() if line.split(maxsplit=1)[:1] == [mount_id])
    return line.partition(" - ")[2].split()[0]
