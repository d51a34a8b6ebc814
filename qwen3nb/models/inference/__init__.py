"""Fast, exact forward passes: packing, attention, linear layers, shared prefixes."""
