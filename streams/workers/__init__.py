"""What reads topics of work: thin, each registers itself with an app."""
