"""A model under the clock: inputs that change, devices, memory."""
