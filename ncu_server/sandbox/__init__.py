"""A candidate's processes: forked, walled in, watched and ended."""
