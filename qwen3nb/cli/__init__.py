"""The command line, built on click; each command calls one public function."""
