"""A journal's file: every line whole and at once in it, in segments, whichever way its bytes take."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goodput_plugins.core import background
from goodput_plugins.core.background import Background
from goodput_plugins.core.events import SCHEMA
from goodput_plugins.core.files import CHUNK, MappedFile, PlainFile, make
from goodput_plugins.core.journal import Journal
from goodput_plugins.core.mounts import _type_of, file_system, is_remote

HEADER = {"schema": SCHEMA, "run": "r", "attempt": "a", "start": 1}
HEAD = b'{"head": 1}\n'


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().rstrip(b"\0").splitlines()]


# --- the ways of the bytes -------------------------------------------------------------------------


@pytest.fixture(params=[PlainFile, MappedFile, Background])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    path = tmp_path / "folder" / "a.jsonl"
    if request.param is Background:
        inner = PlainFile(path, make(path), HEAD)
        file: Any = Background(inner, 1e9, lambda error: None)
        yield file
        return
    yield request.param(path, make(path), HEAD)


def test_lines_and_what_makes_them_longer_come_in_order(file: Any) -> None:
    file.line(b"[1]\n")
    file.line(b"[2,[")
    file.more(b"3,")
    file.more(b"4,")
    file.line(b"[5]\n")
    file.line(b"[6,[7,")
    file.close()
    assert lines_of(file.path) == [{"head": 1}, [1], [2, [3, 4, -1]], [5], [6, [7, -1]]]
    file.close()


def test_a_line_may_be_larger_than_a_chunk(file: Any) -> None:
    sizes = [1, CHUNK - 100, 200, CHUNK, 3 * CHUNK + 7, CHUNK // 2, 5 * CHUNK]
    for size in sizes:
        file.line(b'["%b"]\n' % (b"x" * size))
    file.line(b'[["' + b"y" * (CHUNK - 1) + b'"],[1,')
    file.more(b"2,")
    file.close()
    head, *lines, last = lines_of(file.path)
    assert head == {"head": 1} and [len(line[0]) for line in lines] == sizes
    assert last[1] == [1, 2, -1]


def test_a_file_can_be_turned_into_another(file: Any) -> None:
    first, second = file.path, file.path.with_name("b.jsonl")
    for number in range(10_000):
        file.line(b"[%d]\n" % number)
    file.line(b"[0,[")
    file.turn(second, b'{"head": 2}\n')
    file.line(b"[1]\n")
    file.close()
    assert lines_of(first) == [{"head": 1}, *([number] for number in range(10_000)), [0, [-1]]]
    assert lines_of(second) == [{"head": 2}, [1]]


def test_a_file_that_cannot_be_turned_goes_on(tmp_path: Path) -> None:
    for kind in (PlainFile, MappedFile):
        path = tmp_path / f"{kind.__name__}.jsonl"
        file = kind(path, make(path), HEAD)
        file.line(b"[1]\n")
        with pytest.raises(FileExistsError):
            file.turn(path, HEAD)
        file.line(b"[2]\n")
        file.close()
        assert lines_of(path) == [{"head": 1}, [1], [2]]


def test_what_was_written_is_in_the_file_at_once(tmp_path: Path) -> None:
    for kind in (PlainFile, MappedFile):
        path = tmp_path / f"{kind.__name__}.jsonl"
        file = kind(path, make(path), HEAD)
        for number in range(100):
            file.line(b"[%d]\n" % number)
            assert path.read_bytes().rstrip(b"\0").endswith(b"[%d]\n" % number)


def limit_of_file_size(size: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@pytest.mark.parametrize("room", [0, 5, 50, 2000, CHUNK + 3000])
@pytest.mark.parametrize("kind", [PlainFile, MappedFile])
def test_a_line_that_finds_no_room_is_left_out_as_a_whole_and_counted(tmp_path: Path, kind: Any, room: int) -> None:
    path = tmp_path / "a.jsonl"
    file = kind(path, make(path), HEAD)
    written, refused = [], 0
    limit_of_file_size(room)
    try:
        for number in range(20_000):
            try:
                file.line(b'["line",%d]\n' % number)
                written.append(["line", number])
            except OSError:
                refused += 1
    finally:
        limit_of_file_size(-1)
    assert refused == file.lost > 0
    file.line(b"[0,[1,")
    file.close()
    expected = [{"head": 1}, *written, ["lost", 0, 0, refused], [0, [1, -1]]]
    found = lines_of(path)
    assert sorted(found, key=str) == sorted(expected, key=str)  # word of the loss stands before the next line


@pytest.mark.parametrize("kind", [PlainFile, MappedFile])
def test_an_open_line_is_closed_even_if_the_disk_was_full_meanwhile(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "a.jsonl"
    file = kind(path, make(path), HEAD)
    file.line(b"[0,[1,")
    limit_of_file_size(30 if kind is PlainFile else CHUNK)
    try:
        with pytest.raises((OSError, ValueError)):
            for _ in range(CHUNK):
                file.more(b"2,")
        with pytest.raises(OSError):
            file.line(b'["' + b"x" * 100 + b'"]\n')
    finally:
        limit_of_file_size(-1)
    file.line(b"[3]\n")
    file.close()
    found = lines_of(path)
    assert found[1][1][0] == 1 and found[1][1][-1] == -1 and set(found[1][1][1:-1]) == {2}
    assert found[2:] == [["lost", 0, 0, 2 if kind is PlainFile else 1], [3]]


def test_a_file_that_is_deleted_or_replaced_is_not_there(file: Any) -> None:
    file.line(b"[1]\n")

    def is_there() -> bool:
        file.is_there()
        time.sleep(0.05)  # a thread may have to look
        return bool(file.is_there())

    assert is_there()
    file.path.unlink()
    assert not is_there()
    file.path.touch()
    assert not is_there()
    file.close()


# --- segments --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ext4", "btrfs", "nfs"])
def test_a_journal_goes_on_in_numbered_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(background, "file_system", lambda fd: kind)
    path = tmp_path / "20261129T080000.5Z-1a2b.jsonl"
    journal = Journal(path, HEADER, segment=CHUNK)
    line = None
    for number in range(100_000):
        if line is None or not line.extend(b"%d," % number):
            line = journal.open_line(b"[%d," % number)
        if number % 500 == 0:
            journal.write(b'["h"]\n')
    journal.close()
    assert [found.name for found in journal.paths] == [
        "20261129T080000.5Z-1a2b.jsonl",
        "20261129T080000.5Z-1a2b.001.jsonl",
        "20261129T080000.5Z-1a2b.002.jsonl",
    ]
    told: list[int] = []
    for segment, found in enumerate(journal.paths):
        header, *lines = lines_of_open(found)
        assert header == {**HEADER, "segment": segment}
        assert found.stat().st_size < CHUNK + 5000
        told += [number for line in lines if line != ["h"] for number in line[:-1]]
    assert told == list(range(100_000))


def test_a_journal_that_cannot_go_on_in_a_new_segment_stays_in_the_old(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.001.jsonl").mkdir()
    journal = Journal(tmp_path / "a.jsonl", HEADER, segment=CHUNK)
    for number in range(200_000):
        journal.write(b"[%d]\n" % number)
    journal.close()
    assert journal.paths == [tmp_path / "a.jsonl"]
    assert lines_of(journal.path)[1:] == [[number] for number in range(200_000)]
    assert capsys.readouterr().err.count("goodput:") == 1


def lines_of_open(path: Path) -> list[Any]:
    """Lines whose last list was opened by a test without a second bracket."""
    return [json.loads(line.replace(b"-1]]", b"-1]")) for line in path.read_bytes().splitlines()]


def test_a_journal_is_full_at_its_size_over_all_segments(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl", HEADER, segment=CHUNK, most=5 * CHUNK - 1000)
    while not journal.full:
        journal.write(b"[1]\n")
    assert len(journal.paths) == 5
    journal.write(b"[2]\n")
    journal.close()
    assert lines_of(journal.path)[-1] == [2]


def test_a_journal_is_removed_with_all_its_segments(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl", HEADER, segment=CHUNK)
    for _ in range(4 * CHUNK // 4):
        journal.write(b"[1]\n")
    journal.remove()
    assert len(journal.paths) > 3 and list(tmp_path.iterdir()) == []


def test_millions_of_steps_make_segments_of_64_mb(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl", HEADER)
    step = b"0,0,20000000,-1234567,-1234567890123," * 1000  # a step and the end of its work on the device
    line = journal.open_line(b'["r",1,0,0,null,null,null,[0,')
    for _ in range(4_000):
        if line is None or not line.extend(step):
            line = journal.open_line(b'["r",1,0,0,null,null,null,[0,' + step)
    journal.close()
    assert len(journal.paths) == 3
    sizes = [path.stat().st_size for path in journal.paths]
    assert all(64 << 20 <= size < (64 << 20) + CHUNK for size in sizes[:-1])


# --- threads, forks, the end -----------------------------------------------------------------------


def test_a_forked_child_cannot_write(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl", HEADER)
    journal.write(b"[1]\n")
    opened = journal.open_line(b"[[2,")
    pid = os.fork()
    if pid == 0:
        try:
            journal.abandon()
            journal.write(b"[3]\n")
            line = journal.open_line(b"[[4,")
            assert opened is not None and not opened.extend(b"5,")
            assert line is not None and line.extend(b"5,")
            journal.tend()
            journal.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    journal.write(b"[5]\n")
    journal.close()
    assert lines_of(journal.path)[1:] == [[1], [[2, -1]], [5]]


def test_what_is_written_after_the_end_is_dropped(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl", HEADER)
    line = journal.open_line(b"[[0,")
    journal.close()
    journal.write(b"[1]\n")
    assert line is not None and not line.extend(b"2,")
    journal.close()
    assert lines_of(journal.path)[1:] == [[[0, -1]]]


def test_a_holder_that_hangs_does_not_hold_up_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal(tmp_path / "a.jsonl", HEADER)
    release = threading.Event()

    def hold() -> None:
        with journal._lock:
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    began = time.monotonic()
    journal.close()
    assert time.monotonic() - began < 4
    assert "cannot be written" in capsys.readouterr().err
    release.set()
    thread.join()


def test_a_line_of_a_signal_handler_waits_for_the_line_it_interrupted(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl", HEADER)
    line, handled = journal.open_line(b"[[0,"), 0

    def handler(*_: object) -> None:
        nonlocal handled
        journal.write(b'["handler"]\n')
        handled += 1

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
    extended = 0
    try:
        while handled < 300:
            if line is None or not line.extend(b"1,"):
                line = journal.open_line(b"[[1,")
            extended += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    journal.close()
    lines = lines_of(journal.path)[1:]
    assert lines.count(["handler"]) == handled
    assert sum(line[0].count(1) for line in lines if line != ["handler"]) == extended


# --- file systems ----------------------------------------------------------------------------------

MOUNTINFO = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 22 0:51 / /mnt/a\\040b rw,nosuid shared:5 master:1 - nfs4 server:/export rw,vers=4.2
41 22 0:52 / /gcs rw - fuse.gcsfuse bucket rw
141 22 0:52 / /x rw - cifs //a/b rw
"""


@pytest.mark.parametrize(
    ("mount", "kind", "remote"),
    [("22", "ext4", False), ("40", "nfs4", True), ("41", "fuse.gcsfuse", True), ("141", "cifs", True)],
)
def test_the_type_of_a_mount_is_what_stands_behind_the_dash(mount: str, kind: str, remote: bool) -> None:
    assert _type_of(mount, MOUNTINFO) == kind
    assert is_remote(kind) is remote


def test_the_file_system_of_an_open_file_is_known(tmp_path: Path) -> None:
    with open("/proc/self/stat", "rb") as proc, open("/dev/shm/goodput-test", "wb") as shared:
        assert file_system(proc.fileno()) == "proc"
        assert file_system(shared.fileno()) == "tmpfs"
    os.unlink("/dev/shm/goodput-test")
    assert file_system(12345) == ""


@pytest.mark.parametrize(
    ("kind", "chosen"),
    [("ext4", MappedFile), ("btrfs", PlainFile), ("", PlainFile), ("nfs", Background), ("fuse.s3fs", Background)],
)
def test_how_a_file_is_written_depends_on_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, chosen: type
) -> None:
    monkeypatch.setattr(background, "file_system", lambda fd: kind)
    file = background.open_file(tmp_path / "a.jsonl", HEAD, 1e9, lambda error: None)
    assert type(file) is chosen
    file.line(b"[1]\n")
    file.close()
    assert lines_of(file.path) == [{"head": 1}, [1]]
