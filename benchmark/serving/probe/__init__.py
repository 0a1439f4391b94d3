"""Plugins that measure inside a real server, and readers of what they noted."""
