"""Random training jobs whose every second is known.

``play(seed)`` plays a job as real ones behave: starts, compilation, steps, saves, evaluations, stalls,
crashes, restarts. ``journal(job)`` and ``entries(job)`` write down what hooks of ours, or Google's
library and Orbax's cloud logger, would have seen of it. ``truth(job, foreign=...)`` says where each
second went by the rules of the design, from what was played and not from what was written down.
"""

from simulation.logs import entries, journal
from simulation.play import play
from simulation.tape import Job
from simulation.truth import Truth, truth

__all__ = ["Job", "Truth", "entries", "journal", "play", "truth"]
