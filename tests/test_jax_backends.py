"""Accelerator start-up is told as it happens, and the rank as soon as it is known."""

from __future__ import annotations

import json
import socket
import threading

from observing import armed

STARTED = """
import json, time
{before}
begun = time.perf_counter()
jax.devices()
measured = time.perf_counter() - begun
begins, ends = seen.of(Kind.BEGIN, Activity.DEVICE_INIT), seen.of(Kind.FINISH, Activity.DEVICE_INIT)
told = (ends[-1].time - begins[0].time) / 1e9
ranks = [[event.step, event.data] for event in seen.of(Kind.RANK)]
print(json.dumps([[event.name for event in begins], len(ends), abs(measured - told) < 0.1, ranks]))
"""


def test_the_first_look_at_the_devices_is_initialization() -> None:
    done = armed(STARTED.format(before=""), JAX_PLATFORMS="cpu")
    assert json.loads(done.stdout) == [["backends", "cpu"], 2, True, [[0, 1]]], done.stderr


def test_a_backend_that_fails_is_closed_and_the_host_gets_its_error() -> None:
    done = armed(
        """
try:
    jax.devices()
except RuntimeError as error:
    print(str(error)[:38], len(seen.stretches(Activity.DEVICE_INIT)), seen.of(Kind.RANK))
""",
        JAX_PLATFORMS="nowhere",
    )
    assert done.stdout.strip() == "Unable to initialize backend 'nowhere' 2 []", done.stderr + done.stdout


def test_a_hang_in_initialization_is_seen_while_it_hangs() -> None:
    done = armed(
        """
from jax._src import xla_bridge
def absent():
    print(len(seen.of(Kind.BEGIN, Activity.DEVICE_INIT)) - len(seen.of(Kind.FINISH, Activity.DEVICE_INIT)), "open")
    raise RuntimeError("no such device")
xla_bridge.register_backend_factory("absent", absent, priority=0, fail_quietly=True)
jax.devices()
""",
        JAX_PLATFORMS="",
    )
    assert done.stdout.strip() == "2 open", done.stderr


def test_building_a_mesh_is_initialization() -> None:
    done = armed(
        """
jax.devices()
mesh = jax.make_mesh((1,), ("x",))
print(mesh.shape["x"], len(seen.stretches(Activity.DEVICE_INIT, "mesh")))
""",
        JAX_PLATFORMS="cpu",
    )
    assert done.stdout.strip() == "1 1", done.stderr


def test_two_distributed_processes_know_their_ranks() -> None:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    told: dict[int, str] = {}

    def process(index: int) -> None:
        before = f"jax.distributed.initialize('localhost:{port}', 2, {index})"
        done = armed(STARTED.format(before=before), JAX_PLATFORMS="cpu")
        told[index] = done.stdout or done.stderr

    threads = [threading.Thread(target=process, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in range(2):
        names, ends, _, ranks = json.loads(told[index].splitlines()[-1])
        assert (names, ends) == (["distributed", "backends", "cpu"], 3)
        assert ranks == [[index, 2], [index, 2]]
