"""The costs of the dashboard: its weight, its time to the first chart, the gateway's processor time."""
