"""What ``uncork check`` measures of a service, and how it judges that; the judges look at figures only."""
