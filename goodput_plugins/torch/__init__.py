"""PyTorch: what the training thread waits for.

The switch installs this plugin when the script imports ``torch.utils.data``. It sees the waits for a
``DataLoader``: starting its iterator (worker processes included) and each next batch, on the thread that
waits. A loader inside a loader counts once; worker processes record nothing.
"""
