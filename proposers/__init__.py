"""Which drafting methods ship with specinfer? One short file each, found through `specinfer.proposers`."""
