"""Clients of other makers, each against a real server on stdio and over HTTP."""
