"""Programs that run as pods of a platform: files that need nothing but Python and each other."""
