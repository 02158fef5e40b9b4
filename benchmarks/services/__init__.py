"""Tiny services the bench serves. They are run by file path and never imported by loadtests."""
