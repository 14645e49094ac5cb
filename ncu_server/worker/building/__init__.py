"""How sources become modules on either side of the wall."""
