"""The commands, by subject; each calls one public function."""
