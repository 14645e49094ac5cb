"""The wire's keys in `_meta`, which programs write and read, and no model is shown."""

AHEAD = "ncu-server/ahead"
"""Of a progress notification: how many are ahead, an integer; there exactly while the call waits its turn, for a core
to build on or for the device."""

WHOLE = "ncu-server/whole"
"""Of a call of profile_kernel: where it is true, reports come in full; else they are cut to what a model can take."""
