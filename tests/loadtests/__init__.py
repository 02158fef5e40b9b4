"""Tests of the load generators and the bench."""
