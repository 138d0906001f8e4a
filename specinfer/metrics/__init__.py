"""What do the events say? Every figure is a documented function of the event log."""
