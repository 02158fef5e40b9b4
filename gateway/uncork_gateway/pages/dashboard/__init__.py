"""The page at ``/dashboard``: what goes on, live, for people who look."""
