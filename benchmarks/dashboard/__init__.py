"""What the dashboard costs: its weight, its time to the first chart, and the gateway's processor time."""
