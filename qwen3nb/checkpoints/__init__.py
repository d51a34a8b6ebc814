"""Weight files of a training, read, averaged and written without building a model."""
