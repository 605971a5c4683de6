"""Journals in a bucket, or wherever else fsspec reaches: ``gs://bucket/path/<run>/<journal>``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.rundir import SUFFIX, cache, encode
from goodput_plugins.exporters.errors import Unavailable, Unreached


class Bucket:
    """Files below a URL.

    Args:
        url: ``protocol://...``.

    Raises:
        Unavailable: the library for that protocol is not installed.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        try:
            from fsspec.core import url_to_fs

            self._system, self._root = url_to_fs(self._url)
        except (ImportError, ValueError) as error:
            raise Unavailable(f"{url} cannot be used ({error}); pip install fsspec gcsfs.") from None
        self._root = self._root.rstrip("/")

    def sizes(self, below: str = "") -> dict[str, int]:
        """The journals, by their paths below the URL, and how large each is.

        Raises:
            Unreached: it cannot be asked now.
        """
        place = f"{self._root}/{below}".rstrip("/")
        try:
            self._system.invalidate_cache()
            found: dict[str, Any] = self._system.find(place, detail=True)
        except FileNotFoundError:
            return {}
        except Exception as error:
            raise Unreached(f"{self._url}: {_brief(error)}") from error
        begin = len(self._root) + 1
        return {path[begin:]: int(told["size"]) for path, told in found.items() if path.endswith(SUFFIX)}

    def get(self, path: str) -> bytes:
        """What a file holds.

        Raises:
            Unreached: it cannot be read now.
        """
        try:
            data: bytes = self._system.cat_file(f"{self._root}/{path}")
        except Exception as error:
            raise Unreached(f"{self._url}: {_brief(error)}") from error
        return data

    def put(self, path: str, data: bytes) -> None:
        """Write a file, in whole.

        Raises:
            Unreached: it cannot be written now.
        """
        try:
            self._system.pipe_file(f"{self._root}/{path}", data)
        except Exception as error:
            raise Unreached(f"{self._url}: {_brief(error)}") from error


def mirror(url: str, run: str | None, environ: Mapping[str, str] = os.environ) -> Path:
    """A folder here with the journals of a run that lie in a bucket; what is here already is not read again.

    Args:
        url: where the runs lie; with ``run`` None a run's own place, or where runs lie, of which it is the newest.
        run: the run's name.
        environ: the environment.

    Raises:
        UnusableData: there is none, or it cannot be read.
        Unavailable: the library for that protocol is not installed.
    """
    try:
        bucket = Bucket(url)
        below = "" if run is None else encode(run)
        sizes = bucket.sizes(below)
        if not sizes:
            raise UnusableData(f"{url} holds no journals{f' of the run {run!r}' if run else ''}.")
        if run is None:
            newest = max(sizes, key=lambda path: path.rpartition("/")[2])
            below = newest.rpartition("/")[0]
        here = cache(environ).joinpath("buckets", encode(url))
        for path, size in sizes.items():
            if path.rpartition("/")[0] == below:
                _keep(bucket, path, size, here / path)
    except Unreached as error:
        raise UnusableData(f"the bucket cannot be read: {error}.") from error
    return here / below


def _keep(bucket: Bucket, path: str, size: int, here: Path) -> None:
    if not here.exists() or here.stat().st_size != size:
        here.parent.mkdir(parents=True, exist_ok=True)
        here.write_bytes(bucket.get(path))


def _brief(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
