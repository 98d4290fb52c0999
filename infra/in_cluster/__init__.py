"""Programs that run as pods of a platform, each one file that needs nothing but Python."""
