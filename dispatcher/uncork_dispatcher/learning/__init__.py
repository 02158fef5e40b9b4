"""Learns from traffic: execution times, arrivals, returning clients, worker speeds."""
