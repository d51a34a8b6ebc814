"""The command line: click only; each command calls one public function."""
