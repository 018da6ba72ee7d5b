"""What surrounds every route: limits, deadlines, metrics."""
