"""The source of every notebook: text, puzzle, targets, hints and solution. Never installed."""
