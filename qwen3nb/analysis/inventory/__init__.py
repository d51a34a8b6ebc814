"""Score files of trainings found on disk, with what their metadata says."""
