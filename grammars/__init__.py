"""Which grammar backends ship with specinfer? Found through the entry-point group `specinfer.grammars`; none yet."""
