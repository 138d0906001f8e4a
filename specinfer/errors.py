"""What can go wrong that a user can mend?

Every error here is a ValueError, names the offending value and says the way out. Broken invariants are
assertions instead: they are our faults, not the user's.
"""


class SpecinferError(ValueError):
    """Root of the errors that a user can mend."""


class ConfigError(SpecinferError):
    """A configuration that cannot work, whatever the requests."""


class RequestError(SpecinferError):
    """One request that cannot be served; the engine and the other requests go on."""


class UnsupportedModelError(SpecinferError):
    """A model that the paged engine would run wrongly, refused by name."""


class PluginError(SpecinferError):
    """A plugin that is unknown, fails to import, or broke its protocol."""
