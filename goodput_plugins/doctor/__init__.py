"""Why is nothing measured, or nothing sent? ``goodput doctor`` looks at each link of the chain.

A check is a small function that takes a :class:`~goodput_plugins.doctor.case.Case` and yields diagnoses. None can
hang or raise: one that takes too long, or fails, is a diagnosis of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from goodput_plugins.doctor import cloud, disk, frameworks, notes, run, script, switch, targets, uploads
from goodput_plugins.doctor.case import Case
from goodput_plugins.doctor.diagnosis import Diagnosis, unknown

Check = Callable[[Case], Iterable[Diagnosis]]

GROUPS: tuple[tuple[str, tuple[Check, ...]], ...] = (
    ("The switch", switch.CHECKS),
    ("Frameworks", frameworks.CHECKS),
    ("The run", (*run.CHECKS, *disk.CHECKS, *script.CHECKS)),
    ("Where it is sent", (*cloud.CHECKS, *targets.CHECKS, *notes.CHECKS, *uploads.CHECKS)),
)

PATIENCE = 30.0
"""How long one check may take, s."""


def examine(case: Case, *, patience: float = PATIENCE) -> Iterator[tuple[str, list[Diagnosis]]]:
    """Each group's title and what its checks found."""
    for title, checks in GROUPS:
        yield title, [diagnosis for check in checks for diagnosis in examined(check, case, patience)]


def examined(check: Check, case: Case, patience: float = PATIENCE) -> list[Diagnosis]:
    """What one check found."""
    found: list[Diagnosis] = []
    name = check.__name__.replace("_", "-")

    def look() -> None:
        try:
            found.extend(check(case))
        except Exception as error:
            found.append(unknown(name, f"the check failed by a fault of ours ({type(error).__name__}: {error})"))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(patience)
    if looking.is_alive():
        return [unknown(name, f"no answer within {patience:g} s", "A disk or a network does not answer.")]
    return found
