"""The page at ``/dashboard``: the live status of a front end."""
