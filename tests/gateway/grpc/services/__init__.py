"""Tests of the services that need no batch."""
