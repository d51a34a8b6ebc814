"""Turn a training checkpoint into a verified model directory, and publish it."""
