"""Where models come from: each file has ``models()``, functions that build them, by name."""
