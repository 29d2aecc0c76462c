"""Terminal, HTML and JSON renderings of one ``Report`` value."""
