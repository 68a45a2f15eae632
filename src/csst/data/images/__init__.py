"""Images: folders, archives and arrays, and their weak and strong views."""
