"""What will break or be silently ignored when a manifest's engine starts, by release."""
