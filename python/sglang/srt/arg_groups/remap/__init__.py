"""Requested versus resolved: which settings the server changed, and who decided."""
