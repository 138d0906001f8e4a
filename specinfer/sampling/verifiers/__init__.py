"""Which draft tokens stand? One file a rule."""
