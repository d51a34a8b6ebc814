"""Rehearse the change from one model to another on own documents and queries."""
