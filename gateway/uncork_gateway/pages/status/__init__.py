"""The status of a front end, as numbers and sentences."""
