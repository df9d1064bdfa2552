"""Pictures as plain SVG, without dependencies: for the documentation, reports and notebooks."""
