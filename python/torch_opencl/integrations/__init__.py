"""Adapters for libraries that have a place for devices they do not know."""
