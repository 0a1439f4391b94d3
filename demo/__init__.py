"""``make demo``: real text from a real server, with NEXTN and without, side by side."""
