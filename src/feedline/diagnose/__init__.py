"""The work of the commands. Findings are data; rendering is separate; `import feedline` imports nothing from here."""
