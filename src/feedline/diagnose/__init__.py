"""What the commands do. Findings are data; rendering is separate; nothing here is imported by `import feedline`."""
