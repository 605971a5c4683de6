"""The agent: a process of its own that sends what a run's journals hold, while the run trains and after.

``door`` is how others reach it, ``tail`` reads the journals, ``position`` remembers on disk what was
sent, ``loop`` goes round, ``history`` fetches what other machines recorded of the run. ``metrics`` is a
thread beside it that hands ``reports`` to the exporters that ``settings`` want and ``making`` makes, each in a
``slot``. ``succession`` tells which agent serves where there are several. ``start`` is what the command line calls.
What sends is in :mod:`goodput_plugins.exporters`; the training process starts the agent
(:mod:`goodput_plugins.core.shipper`) and imports nothing of it.
"""
