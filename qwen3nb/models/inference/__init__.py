"""Fast exact forwards: packing, attention, linear layers, shared prefixes."""
