"""How many tokens to draft? One file a policy."""
