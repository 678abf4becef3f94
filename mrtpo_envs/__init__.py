"""Environments with several verifiable rewards, and what each verifier checked."""
