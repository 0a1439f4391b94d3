"""The engine that applies named edits to upstream's source files."""
