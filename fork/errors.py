"""The one error that a build stops with."""


class BuildError(Exception):
    """A build cannot go on; the message says what was expected and what to do."""
