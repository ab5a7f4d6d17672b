"""What reads topics of records: thin, each registers itself with an app."""
