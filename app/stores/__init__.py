"""Calibration stores, one file each; a file is the only importer of its vendor's package."""
