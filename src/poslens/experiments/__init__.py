"""Profiles, the grid and its runners."""
