"""The figures of a page, drawn by matplotlib as inline SVG."""
