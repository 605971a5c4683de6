"""Can the run be written, and will it still be there tomorrow?"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from goodput_plugins.core import rundir
from goodput_plugins.core.mounts import file_system, is_remote
from goodput_plugins.doctor.case import Case
from goodput_plugins.doctor.diagnosis import Diagnosis, ok, warning, wrong

FEW_BYTES = 100_000_000
"""A million steps take some 15 to 60 MB."""
_GOES = {
    "tmpfs": "is memory: gone with the machine or the pod",
    "ramfs": "is memory: gone with the machine or the pod",
    "overlay": "is the container's own layer: gone with the container",
}
"""File systems that end with what they are part of."""


def disk(case: Case) -> Iterator[Diagnosis]:
    """Whether the disk outlives the machine."""
    place = case.folder or rundir.root(case.environ)
    folder = existing(place)
    kind = _kind(folder)
    why_not = refused(folder)
    if why_not:
        yield wrong(
            "disk",
            why_not,
            "A training that starts from here is not recorded.",
            "Set GOODPUT_DIR to a folder that can be written.",
        )
        return
    free = shutil.disk_usage(folder).free
    if free < FEW_BYTES:
        yield warning(
            "disk",
            f"{place} has {free / 1e6:.0f} MB left",
            "When it is full training goes on, and is no longer recorded.",
            "Make room, or set GOODPUT_DIR to another disk.",
        )
    url = rundir.remote(case.environ)
    if url:
        yield _bucket(url, place)
        return
    why = _GOES.get(kind, _swept(folder))
    if why and "cloud-logging" in case.exporters:
        yield ok("disk", f"{place} {why}", "The log has what would go with it, and a restart elsewhere fetches that.")
    elif kind.startswith("fuse"):
        yield warning(
            "disk",
            f"{place} is a FUSE mount",
            "A mounted bucket takes a file when it is closed: what a killed process had open may be lost.",
            "Set GOODPUT_DIR to a persistent disk or NFS.",
        )
    elif why:
        yield warning(
            "disk",
            f"{place} {why}",
            "After a restart elsewhere the run begins anew, and its earlier attempts are lost.",
            "Set GOODPUT_DIR to a disk that outlives the machine (a persistent volume, NFS).",
        )
    else:
        told = f"a {kind} disk" if kind else "a disk of unknown kind"
        yield ok("disk", f"{place} is on {told}{', a remote one' if is_remote(kind) else ''}")


def _bucket(url: str, folder: Path) -> Diagnosis:
    """Whether what uploads to a bucket is installed."""
    try:
        from fsspec import get_filesystem_class

        get_filesystem_class(url.partition("://")[0])
    except (ImportError, ValueError) as error:
        text = f"{url} cannot be used ({error})"
        meaning = f"Runs stay in {folder} on this machine, and go with it."
        return wrong("disk", text, meaning, "pip install 'goodput-plugins[gcp]' (s3://, abfs://: their fsspec library)")
    return ok("disk", f"runs are kept in {url}", f"The agent uploads them; until then they lie below {folder}.")


def existing(folder: Path) -> Path:
    """The folder, or the nearest above it that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def refused(folder: Path) -> str | None:
    """Why nothing can be written there, tried with a file that has no name; None if something can."""
    if not folder.is_dir():
        return f"{folder} is no folder"
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return f"{folder} cannot be written ({error.strerror})"
    return None


def _swept(folder: Path) -> str:
    """Where systems delete what is old."""
    return next((f"is below {top}, which is swept" for top in ("/tmp", "/var/tmp") if folder.is_relative_to(top)), "")


def _kind(folder: Path) -> str:
    try:
        fd = os.open(folder, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return file_system(fd)
    finally:
        os.close(fd)


CHECKS = (disk,)
