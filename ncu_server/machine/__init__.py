"""What a server owns of its machine: folders, devices, leases."""
