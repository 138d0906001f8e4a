"""Who can win, and how much? The commands that run, compare and report experiments."""
