"""The wire of progress notifications: words in `message`, and beside them in `_meta` what a program reads."""

AHEAD = "ncu-server/ahead"
"""How many are ahead, an integer; there exactly while the call waits for a core to build on or for the device."""
