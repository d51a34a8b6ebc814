"""Read, average and write the weight files of a training, without building a model."""
