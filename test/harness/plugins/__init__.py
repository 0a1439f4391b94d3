"""Plugins that tests have a server load, to see inside it."""
