"""What the core learns from traffic: execution time, arrivals, returning clients, worker speed."""
