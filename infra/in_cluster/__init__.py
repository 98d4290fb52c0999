"""Programs that run as pods of a platform.

A ConfigMap brings these files into the pods unchanged. So they import only the standard library and
each other.
"""
