"""What runs Banyan: command line, settings, and the one place where the parts are put together."""
