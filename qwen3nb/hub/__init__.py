"""The Hugging Face hub: requests with limits, downloads that are checked, errors in one line."""
