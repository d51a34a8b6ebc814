"""Read test collections from a mirror, a folder or a file. Loads no model."""
