"""How fast and how right: measurements of the package itself."""
