"""The status of a front end, in figures and in sentences."""
