"""Statistics on arrays: tests, intervals, corrections."""
