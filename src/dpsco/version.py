"""The version of the library; packages take theirs from here."""

__version__ = "0.2.0"
